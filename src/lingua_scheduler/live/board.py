"""The jobs of an instance's own sessions, and the way from the store's decisions to sockets.

`Dispatcher` decides with the store and returns `Work`; here the work is sent where it belongs: to
a node or a session on this instance directly, to one elsewhere by a letter to its instance. Every
path ends in `perform`, so that whoever caused a placement (a submit, a freed slot, a sweep) needs
not know where its node or its session is. What nodes here do is `workshop.py`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from lingua_scheduler.between.letters import Outcomes, Push, Span, Stop
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live.hearing import HeardResults, Hearing
from lingua_scheduler.live.journal import Journal
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.state.records import Placement
from lingua_scheduler.state.reply import UNPLACEABLE, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.between.letters import Letter, Resend
    from lingua_scheduler.between.post import Post
    from lingua_scheduler.jobs.dispatcher import Delivery, Dispatcher, Move, Work
    from lingua_scheduler.jobs.relay import Relay
    from lingua_scheduler.live.clock import Clock
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.node import LiveNode
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.tasks import Tasks
    from lingua_scheduler.live.workshop import Workshop
    from lingua_scheduler.metrics import Counter, LiveMetrics
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.records import Cancelled, Speech, Submitted
    from lingua_scheduler.state.store import Store

T = TypeVar("T")

OUTCOMES = ("completed", "completed_no_text", "failed", "expired", "cancelled", "missing")
# By which rule a node was found -> how its pool is counted; none: in another cell.
CHOICES = {"pool": "hit", "fallback": "fallback", "": "fallback"}
# How often a step that met an unreachable store is tried again, and how long at most.
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0
# How long the store may forget what it has confirmed (docs/guarantees.md, "Windows of the store").
STORE_FORGETS_MS = 5_000
# Answers to a submit that end a job because nobody could take it.
GIVEN_UP = frozenset({Reply.QUEUE_FULL, Reply.SETTLED})
# A call to the store that takes longer is counted as slow.
SLOW_MS = 50


class Report(Protocol):
    """How the board tells the world what it could not do itself."""

    def __call__(self, event: str, **fields: object) -> None:
        """Log one event."""

    def error(self, event: str, **fields: object) -> None:
        """Log what somebody should look at now."""


@dataclass(frozen=True, slots=True)
class Means:
    """What everything on an instance works with: time, counts, tasks, logs, the post."""

    clock: Clock
    metrics: LiveMetrics
    tasks: Tasks
    log: Report
    post: Post
    relay: Relay
    journal: Journal = field(default_factory=Journal)


class JobBoard:
    """The sessions of this instance and their jobs; knows where everybody else is reached."""

    # Set by the instance: what nodes here do, who takes letters that are for ourselves, and who is
    # told of sessions that went on elsewhere.
    workshop: Workshop
    take_letter: Callable[[Letter], None]
    on_dropped: Callable[[LiveSession], None]

    def __init__(
        self,
        instance: str,
        store: Store,
        dispatcher: Dispatcher,
        cells: Cells,
        means: Means,
    ) -> None:
        self.instance = instance
        self.store = store
        self.dispatcher = dispatcher
        self.cells = cells
        self.clock = means.clock
        self.metrics = means.metrics
        self.tasks = means.tasks
        self.log = means.log
        self.post = means.post
        self.journal = means.journal
        # Jobs of local sessions that have no delivered outcome yet.
        self.jobs: dict[str, LiveJob] = {}
        # Those that listeners heard a moment ago: the store may forget them, and then they are
        # brought in again. Job -> until when.
        self._passed: dict[str, tuple[float, LiveJob]] = {}
        self.nodes: dict[str, LiveNode] = {}
        self.sessions: dict[str, LiveSession] = {}
        self.results = HeardResults(store)
        self.hearing = Hearing(instance, self.sessions, cells, self.results, self.tasks, self.write)
        self._relay = means.relay
        # The instance stops: nothing new is admitted, so that what was admitted can be finished.
        self.draining = False
        # Steps that wait for the store now: while there are any, it cannot be reached.
        self._waiting_for_store = 0
        # Bound once: finding a labelled counter costs more than counting.
        self.ended = {kind: self.metrics.jobs_total.labels(outcome=kind) for kind in OUTCOMES}
        self._reserved = {
            result: self.metrics.reserve_attempt_total.labels(result=result)
            for result in ("success", "fail", "error")
        }
        # By pool and rule, for the same reason.
        self._chosen: dict[tuple[str, str], Counter] = {}
        self._timed = {
            name: self.metrics.store_call_seconds.labels(script=name)
            for name in ("job_submit", "job_settle")
        }

    # Admission

    async def submit(self, job: LiveJob) -> Submitted:
        """Admit a job; if the store cannot be reached, try again until it can."""
        (answer,) = await self.submit_all((job,))
        return answer

    async def submit_all(self, jobs: Sequence[LiveJob]) -> list[Submitted]:
        """Admit the jobs of one utterance in one step: none is there without the others."""
        first = jobs[0]
        for job in jobs:
            self.jobs.setdefault(job.id, job)
        submit = partial(
            self.dispatcher.submit_all, first.home,
            [(job.id, job.spec, job.body()) for job in jobs],
            first.audio if first.spec.audio else b"",
        )  # fmt: skip
        try:
            results = await submit()
        except StoreUnavailable:
            self._reserved["error"].inc()
            for job in jobs:
                job.may_be_in = True
            results = await self.insist(submit, partial(self._store_lost, first))
            for job, (answer, _) in zip(jobs, results, strict=True):
                self._push_if_lost(job, answer)
        return [
            self._submitted(job, answer, work)
            for job, (answer, work) in zip(jobs, results, strict=True)
        ]

    def _push_if_lost(self, job: LiveJob, answer: Submitted) -> None:
        """Push a job whose lost answer said who has it: nobody else will."""
        is_ours = answer.known is not None and answer.known.is_place_of(job.spec)
        if is_ours and answer.node and not answer.outcome:
            self.tasks.start(self._push_again(job, answer.attempt, answer.node))

    def _submitted(self, job: LiveJob, answer: Submitted, work: Work) -> Submitted:
        """Take note of the store's answer, and do what it asks for."""
        now = self.clock.now_ms()
        self.note_call("job_submit", now - job.marks.submit)
        if answer.placement is not None:
            job.marks.placed = now
            self._reserved["success"].value += 1
            if job.may_be_in and self._is_news(job, answer.placement):
                # The store forgot it, with its later attempts: it counts from one again.
                job.attempt, job.node = 0, ""
            self._count_pool(answer.placement)
        elif answer.reply is Reply.QUEUED:
            job.marks.queued = now
            if self.journal.tells_all:
                self.journal.queued(job, answer)
        if answer.code in UNPLACEABLE or answer.reply in GIVEN_UP:
            self._note_unplaced("submit", answer.label)
        self.perform(work)
        return answer

    def _store_lost(self, job: LiveJob) -> None:
        self._reserved["error"].inc()
        job.store_lost()

    def _note_unplaced(self, selector: str, label: str) -> None:
        """Nobody could take a job at once: it waits, or is not taken at all."""
        self._reserved["fail"].inc()
        self.metrics.pool_selected_total.labels(pool="none", outcome="miss").inc()
        self.metrics.no_available_node_total.labels(
            selector=selector, reason=label or "queue_full"
        ).inc()

    def _count_pool(self, placement: Placement) -> None:
        """Count a choice among pools; a turn's or a preferred node was none."""
        counted = self._chosen.get((placement.pool, placement.how))
        if counted is None:
            outcome = CHOICES.get(placement.how)
            if outcome is None:
                return
            pool = placement.pool or "elsewhere"
            counted = self.metrics.pool_selected_total.labels(pool=pool, outcome=outcome)
            self._chosen[placement.pool, placement.how] = counted
        counted.value += 1

    def _is_news(self, job: LiveJob, placement: Placement) -> bool:
        """Tell whether a job that is admitted anew is not on that node here already."""
        is_held = self.workshop.held.get(job.id) is job
        return not is_held or placement[1:3] != (job.attempt, job.node)

    async def insist(
        self, step: Callable[[], Awaitable[T]], on_loss: Callable[[], None] | None = None
    ) -> T:
        """Take a step until the store takes it: every step may be repeated."""
        delay_s, has_failed = RETRY_FIRST_S, False
        try:
            while True:
                try:
                    return await step()
                except StoreUnavailable:
                    if not has_failed:
                        has_failed = True
                        self._waiting_for_store += 1
                    if on_loss is not None:
                        on_loss()
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, RETRY_MAX_S)
        finally:
            self._waiting_for_store -= has_failed

    @property
    def store_is_there(self) -> bool:
        """Tell whether nothing waits for the store to come back."""
        return not self._waiting_for_store

    def note_call(self, script: str, took_ms: float) -> None:
        """Count how long a call of the usual path took."""
        self._timed[script].observe(took_ms / 1000)
        if took_ms > SLOW_MS:
            self.metrics.slow_path_total.labels(path=script).inc()

    def jobs_of(self, session: LiveSession) -> list[LiveJob]:
        """Return the jobs of a session that have no outcome yet, in order."""
        mine = (job for job in self.jobs.values() if job.session is session)
        return sorted(mine, key=lambda job: job.spec.index)

    def keep(self, job: LiveJob) -> None:
        """Keep a job that listeners have heard, for as long as the store may forget that."""
        now, passed = self.clock.now_ms(), self._passed
        passed[job.id] = (now + STORE_FORGETS_MS, job)
        while (first := next(iter(passed))) != job.id and passed[first][0] < now:
            del passed[first]

    def passed_of(self, session: LiveSession) -> list[LiveJob]:
        """Return the jobs of a session that listeners heard a moment ago, in order."""
        now = self.clock.now_ms()
        mine = (job for until, job in self._passed.values() if until >= now)
        return sorted((job for job in mine if job.session is session), key=lambda j: j.spec.index)

    def forget(self, session: LiveSession) -> None:
        """Drop what an ended session left: nobody is there for its outcomes."""
        for job in self.jobs_of(session):
            del self.jobs[job.id]

    def dropped(self, session: LiveSession) -> None:
        """A session is another instance's now: its jobs go on, their outcomes are told there."""
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
        self.forget(session)
        self.on_dropped(session)
        if session.outlet is not None:
            session.outlet.close(CloseCode.REPLACED, "the session went on elsewhere")
        self.metrics.sessions_handed_over_total.inc()

    # What scripts ask for

    def perform(self, work: Work) -> None:
        """Do on sockets, here or elsewhere, what a step of the store asks for."""
        for move in work.moved:
            self._note_move(move)
        for placement in work.push:
            self.push(placement)
        for delivery in work.deliver:
            self.deliver(delivery)
        for heard in work.heard:
            self.hearing.tell(heard)
        for home, session in work.relay:
            self.tasks.start(self._bring(home, session))
        for told in work.stop:
            self._stop(told)
        for speech in work.spoken:
            self.count_speech(speech)

    def _note_move(self, move: Move) -> None:
        """Count a job that left its node: its end is no move, and one that waited left nobody."""
        if move.node and move.reply is not Reply.SETTLED:
            self.metrics.failovers_total.labels(reason=move.reason).inc()
        if move.reason == "no_ack":
            self.metrics.ack_timeout_total.inc()
        if move.to is not None:
            self._reserved["success"].inc()
            self._count_pool(move.to)
        elif move.reply is Reply.QUEUED:
            self._note_unplaced("failover", move.label)
        job = self.jobs.get(move.job) or self.workshop.held.get(move.job)
        if job is None:
            self.tasks.start(self._tell_move(move))
        else:
            pushed = job.marks.push if move.node else 0
            self.journal.moved(move, job, round(self.clock.now_ms() - pushed) if pushed else 0)

    async def _tell_move(self, move: Move) -> None:
        """Tell of a job of others, which is known by its record only."""
        record = await self.store.records.show(self.cells.named(move.home), move.job)
        self.journal.moved(move, record)

    async def _bring(self, home: str, session: str) -> None:
        """Bring what a speaker said to listeners in other cells; else its timer does."""
        self.perform(await self._relay.run(self.cells.named(home), session))

    def count_speech(self, speech: Speech) -> None:
        """Count what became of the speech of a session that ended: whoever ends it, and once."""
        silence = speech.silence_at(speech.heard_ms)
        total = self.metrics.coverage_ms_total
        total.labels(fate="delivered").inc(speech.delivered)
        total.labels(fate="silent").inc(speech.silent + silence)
        total.labels(fate="failed").inc(speech.failed)
        total.labels(fate="skipped").inc(speech.skipped + speech.passed)

    def push(self, placement: Placement) -> None:
        """Send a placed job to its node: over its socket, or by way of its instance."""
        job = self.jobs.get(placement.job)
        # As the store says: a socket here may be one that its node has left without a word.
        is_here = placement.instance == self.instance
        if job is None:
            if self.journal.tells_all:
                self.journal.placed(placement, None)
            if is_here:
                self.tasks.start(self.workshop.fetch_and_push(placement))
            else:
                self.tasks.start(self._send_push(placement))
            return
        if placement.attempt < job.attempt or placement[1:3] == (job.attempt, job.node):
            return  # pushed already, or overtaken by a later attempt
        self._note_push(job, placement)
        if self.journal.tells_all:
            self.journal.placed(placement, job)
        if not is_here:
            self.tasks.start(self._send_push(placement, job))
        elif self.workshop.push(job, placement):
            job.session.teller.event(job, "DISPATCHED")
        else:
            self.tasks.start(self.push_failed(placement, self.nodes.get(placement.node)))

    def _note_push(self, job: LiveJob, placement: Placement) -> None:
        now = self.clock.now_ms()
        job.attempt, job.node, job.state = placement.attempt, placement.node, "assigned"
        job.marked, job.pushed_at_ms = "", int(now)
        # It was placed just now; one whose answer was lost has no end in it.
        job.ends_ms = now + self.dispatcher.attempt_ms if placement.ends_at_ms else 0
        marks = job.marks
        if not marks.placed:
            marks.placed = now
            self.metrics.queue_wait_seconds.observe((now - marks.cut) / 1000)
        marks.push = self.clock.now_ms()
        if not marks.first_push:
            marks.first_push = marks.push
            self.metrics.accept_to_assign_seconds.observe((marks.push - marks.cut) / 1000)
            self.metrics.dispatch_latency_seconds.observe((marks.push - marks.submit) / 1000)

    async def _push_again(self, job: LiveJob, attempt: int, node: str) -> None:
        """Push what the store placed in an answer that never came."""
        instance = await self.insist(lambda: self.host_of(node))
        self.push(
            Placement(
                job.id, attempt, node, self.cells.of_node(node).name, instance,
                context_reset=False, ends_at_ms=0, home=job.home.name,
            )
        )  # fmt: skip

    async def _send_push(self, placement: Placement, job: LiveJob | None = None) -> None:
        """Ask the instance of a node to push a job; one that has no inbox is gone."""
        carries = job is not None and not job.spec.audio
        letter = Push(
            placement.job, placement.attempt, placement.node, placement.home,
            placement.context_reset, placement.ends_at_ms,
            body=job.body() if job is not None and carries else b"",
            audio=job.audio if job is not None and carries else b"",
        )  # fmt: skip
        if not placement.instance:
            await self.move(placement, "push_failed")
        elif not await self.insist(lambda: self.post.send(placement.instance, letter)):
            await self._host_gone(placement)
        elif job is not None:
            job.session.teller.event(job, "DISPATCHED")

    async def _host_gone(self, placement: Placement) -> None:
        """Nobody reads there: what its nodes hold moves, and they get nothing until they beat."""
        lost = placement.instance
        self.perform(await self.insist(lambda: self.dispatcher.instance_lost(lost)))
        await self.move(placement, "push_failed")

    async def push_failed(self, placement: Placement, node: LiveNode | None) -> None:
        """A socket that takes nothing is closed or closing: its node gets no more until it is back.

        Else the idle node would be chosen again and again, until no attempt is left.
        """
        if node is not None:
            await self.insist(lambda: self.workshop.node_lost(node))
        await self.move(placement, "push_failed")

    async def move(self, placement: Placement, reason: str) -> None:
        """Take an attempt from its node; whoever else can takes it."""
        home = self.cells.named(placement.home)
        _, work = await self.insist(
            lambda: self.dispatcher.failover(
                home, placement.job, placement.attempt, node=placement.node, reason=reason
            )
        )
        self.perform(work)

    async def audio_lost(self, asked: Resend) -> None:
        """Nobody has the audio of a job any more, so that no node can do it."""
        home = self.cells.named(asked.home)
        _, work = await self.insist(
            lambda: self.dispatcher.settle(
                home, asked.job, asked.attempt, asked.node, kind="failed", reason="audio_lost"
            )
        )
        self.perform(work)

    def deliver(self, delivery: Delivery) -> None:
        """Hand outcomes to their session's owner: they are in its outbox already."""
        if delivery.owner == self.instance:
            session = self.sessions.get(delivery.session)
            if session is not None:
                session.deliver(delivery.epoch, delivery.outcomes)
            else:
                self._unheard(delivery)
        elif delivery.owner:
            held = (self.workshop.held.get(outcome.job) for outcome in delivery.outcomes)
            spans = tuple(
                Span(job.id, job.marks.since_push(job.marks.accepted),
                     job.marks.since_push(job.marks.result))
                for job in held
                if job is not None
            )  # fmt: skip
            last = delivery.outcomes[-1].seq
            self.write(delivery.owner, Outcomes(delivery.session, delivery.epoch, last, spans))

        else:
            self._unheard(delivery)

    def _unheard(self, delivery: Delivery) -> None:
        for outcome in delivery.outcomes:
            job = self.jobs.get(outcome.job) or self.workshop.held.get(outcome.job)
            self.journal.ended_unheard(delivery.session, outcome, job)

    def _stop(self, told: Cancelled) -> None:
        self.workshop.forget(told.job, told.node)
        node = self.nodes.get(told.node)
        if node is not None:
            node.cancel(told.job, told.attempt, "cancelled")
        else:
            self.tasks.start(self._stop_elsewhere(told))

    async def _stop_elsewhere(self, told: Cancelled) -> None:
        host = await self.host_of(told.node)
        if host and host != self.instance:
            self.write(host, Stop(told.job, told.attempt, told.node, "cancelled"))

    # Letters

    def write(self, to: str, letter: Letter) -> None:
        """Write to an instance, if need be to ourselves; a letter that is lost costs time only."""
        if to == self.instance:
            self.take_letter(letter)
        elif to:
            self.tasks.start(self.post.send(to, letter))

    async def host_of(self, node: str) -> str:
        """Return the instance that has a node's socket, '' if there is none."""
        found: str = await self.store.node_host(self.cells.of_node(node), node)
        return found

    # Slices that old nodes keep

    async def end_buffered_slice(self, job: LiveJob) -> None:
        """End a slice whose old node keeps its audio in silence, to make room for what follows."""
        job.state = "completed_no_text"
        _, work = await self.insist(
            lambda: self.dispatcher.settle(
                job.home, job.id, job.attempt, job.node, kind="completed_no_text",
                reason="buffered",
            )
        )  # fmt: skip
        self.workshop.forget(job.id, job.node)
        self.perform(work)

    def buffered_slice(self, session: LiveSession) -> LiveJob | None:
        """Return the oldest slice of a session that a node of the older protocol sits on."""
        for job in self.jobs_of(session):
            node = self.nodes.get(job.node)
            is_kept = job.is_kept or (node is not None and node.is_old)
            if job.spec.is_slice and job.state == "assigned" and is_kept:
                return job
        return None
