"""The jobs of one instance: submitted, pushed to nodes, settled, delivered.

`Dispatcher` decides with the store and returns `Work`; here the work is done on sockets. Every
path ends in `perform`, so that whoever caused a placement (a submit, a freed slot, a sweep) needs
not know where its node or its session is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live.outcome import encode_result, stored, verdict_of
from lingua_scheduler.messages.shared import NetworkTimings
from lingua_scheduler.state.records import Placement
from lingua_scheduler.state.reply import UNPLACEABLE, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.jobs.dispatcher import Delivery, Dispatcher, Work
    from lingua_scheduler.live.clock import Clock
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.node import LiveNode
    from lingua_scheduler.live.outcome import Verdict
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.live.tasks import Tasks
    from lingua_scheduler.messages.from_node import JobResult, NodeAsrPartial
    from lingua_scheduler.messages.shared import ServiceTimings
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.records import Cancelled, Settled, Submitted
    from lingua_scheduler.state.store import Store

T = TypeVar("T")

OUTCOMES = ("completed", "completed_no_text", "failed", "expired", "cancelled", "missing")
# How often a step that met an unreachable store is tried again, and how long at most.
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0
# A job that ends sooner than this is never marked in the store as accepted or running.
MARK_AFTER_MS = 500
# A call to the store that takes longer is counted as slow.
SLOW_MS = 50
FREED_NAMES = frozenset({Reply.STALE_ATTEMPT, Reply.NODE_MISMATCH, Reply.JOB_ENDED, Reply.NO_JOB})


class Report(Protocol):
    """How the board tells the world what it could not do itself."""

    def __call__(self, event: str, **fields: object) -> None:
        """Log one event."""

    def error(self, event: str, **fields: object) -> None:
        """Log what somebody should look at now."""


@dataclass(frozen=True, slots=True)
class Means:
    """What everything on an instance works with: time, counts, tasks, a log."""

    clock: Clock
    metrics: LiveMetrics
    tasks: Tasks
    log: Report


class JobBoard:
    """Every job whose session or node is on this instance."""

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
        # Jobs of local sessions that have no delivered outcome yet.
        self.jobs: dict[str, LiveJob] = {}
        self.nodes: dict[str, LiveNode] = {}
        self.sessions: dict[str, LiveSession] = {}
        # The instance stops: nothing new is admitted, so that what was admitted can be finished.
        self.draining = False
        # Bound once: finding a labelled counter costs more than counting.
        self.ended = {kind: self.metrics.jobs_total.labels(outcome=kind) for kind in OUTCOMES}
        reserved = self.metrics.reserve_attempt_total
        self._reserved = (reserved.labels(result="fail"), reserved.labels(result="success"))
        self._timed = {
            name: self.metrics.store_call_seconds.labels(script=name)
            for name in ("job_submit", "job_settle")
        }
        self._stages = {
            name: self.metrics.stage_seconds.labels(stage=name) for name in ("asr", "nmt", "tts")
        }

    # Admission

    async def submit(self, job: LiveJob) -> Submitted:
        """Admit a job; if the store cannot be reached, try again until it can."""
        self.jobs.setdefault(job.id, job)
        spec, body = job.spec, job.body()
        audio = job.audio if spec.audio else b""
        submit = self.dispatcher.submit
        try:
            answer, work = await submit(job.home, job.id, spec, body, audio)
        except StoreUnavailable:
            answer, work = await self.insist(
                lambda: submit(job.home, job.id, spec, body, audio), job.session.teller.store_lost
            )
            if answer.reply is Reply.DUPLICATE and answer.node and not answer.outcome:
                # The lost answer said who has it: nobody else will push it.
                cell = self.cells.of_node(answer.node).name
                work.push.append(
                    Placement(
                        job.id, answer.attempt, answer.node, cell, self.instance,
                        context_reset=False, ends_at_ms=0,
                    )
                )  # fmt: skip
        now = self.clock.now_ms()
        self._note_call("job_submit", now - job.marks.submit)
        self._reserved[answer.placement is not None].inc()
        if answer.placement is not None:
            job.marks.placed = now
        elif answer.reply is Reply.QUEUED:
            job.marks.queued = now
        if answer.code in UNPLACEABLE:
            self.metrics.no_available_node_total.labels(
                selector="submit", reason=answer.label
            ).inc()
        self.perform(work)
        return answer

    async def insist(
        self, step: Callable[[], Awaitable[T]], on_loss: Callable[[], None] | None = None
    ) -> T:
        """Take a step until the store takes it: every step may be repeated."""
        delay_s = RETRY_FIRST_S
        while True:
            try:
                return await step()
            except StoreUnavailable:
                if on_loss is not None:
                    on_loss()
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, RETRY_MAX_S)

    def jobs_of(self, session: LiveSession) -> list[LiveJob]:
        """Return the jobs of a session that have no outcome yet, in order."""
        mine = (job for job in self.jobs.values() if job.session is session)
        return sorted(mine, key=lambda job: job.spec.index)

    def forget(self, session: LiveSession) -> None:
        """Drop what an ended session left: nobody is there for its outcomes."""
        for job in self.jobs_of(session):
            del self.jobs[job.id]

    # What scripts ask for

    def perform(self, work: Work) -> None:
        """Do on sockets what a step of the store asks for."""
        for placement in work.push:
            self.push(placement)
        for delivery in work.deliver:
            self._deliver(delivery)
        for told in work.stop:
            self._stop(told)
        for reason in work.moved:
            self.metrics.failovers_total.labels(reason=reason).inc()
            if reason == "no_ack":
                self.metrics.ack_timeout_total.inc()

    def push(self, placement: Placement) -> None:
        """Send a placed job to its node, or move it on if that cannot be."""
        job = self.jobs.get(placement.job)
        node = self.nodes.get(placement.node)
        if job is None:
            # Of a session that was another process's: its deadline, or the session's, ends it.
            self.log("job.unknown", job=placement.job, node=placement.node)
            return
        if placement.attempt < job.attempt or placement[1:3] == (job.attempt, job.node):
            return  # pushed already, or overtaken by a later attempt
        now = self.clock.now_ms()
        job.attempt, job.node, job.state = placement.attempt, placement.node, "assigned"
        job.marked, job.pushed_at_ms = "", int(now)
        marks = job.marks
        if not marks.placed:
            marks.placed = now
            self.metrics.queue_wait_seconds.observe((now - marks.cut) / 1000)
        if node is None or not node.assign(job, placement):
            self.tasks.start(self._move(job, "push_failed"))
            return
        marks.push = self.clock.now_ms()
        if not marks.first_push:
            marks.first_push = marks.push
            self.metrics.accept_to_assign_seconds.observe((marks.push - marks.cut) / 1000)
            self.metrics.dispatch_latency_seconds.observe((marks.push - marks.submit) / 1000)
        job.session.teller.event(job, "DISPATCHED")

    def _deliver(self, delivery: Delivery) -> None:
        session = self.sessions.get(delivery.session)
        if session is not None:
            session.deliver(delivery.epoch, delivery.outcomes)

    def _stop(self, told: Cancelled) -> None:
        node = self.nodes.get(told.node)
        if node is not None:
            node.cancel(told.job, told.attempt, "cancelled")

    # What nodes report

    async def report(self, node: LiveNode, result: JobResult) -> None:
        """Settle a job by its node's report, or move it where another node may do better."""
        job = self.jobs.get(result.job_id)
        if job is None:
            self.metrics.results_stale_total.labels(reason="no_job").inc()
            node.answer(result.job_id, result.attempt_id, "unknown")
            return
        now = self.clock.now_ms()
        verdict = verdict_of(result)
        if verdict.reason == "MODEL_NOT_AVAILABLE":
            await self._model_missing(node, result)
        if verdict.retryable:
            await self._give_back(node, job, result, verdict.reason)
            return
        answer, work = await self._settle(node, job, result, verdict)
        is_news = answer.reply is Reply.ALREADY and not job.marks.settled
        if answer.reply is Reply.SETTLED or is_news:
            self._settled(job, verdict, result, now)
        elif answer.reply in FREED_NAMES:
            self.metrics.results_stale_total.labels(reason=answer.reply.name.lower()).inc()
        node.answer(job.id, result.attempt_id, _status_of(answer.reply))
        self.perform(work)
        if is_news or answer.reply is Reply.NO_JOB:
            # The answer that carried the outcome was lost, or the store forgot the job.
            await job.session.recover()

    async def _settle(
        self, node: LiveNode, job: LiveJob, result: JobResult, verdict: Verdict
    ) -> tuple[Settled, Work]:
        payload = b""
        if verdict.kind == "completed":
            kept = stored(result, job.assign.trace_id, self._network_of(job, result))
            payload = encode_result(kept)
        settle = partial(
            self.dispatcher.settle, job.home, job.id, result.attempt_id, node.id,
            kind=verdict.kind, reason=verdict.reason, payload=payload,
        )  # fmt: skip
        try:
            return await settle()
        except StoreUnavailable:
            return await self.insist(settle)

    def _settled(self, job: LiveJob, verdict: Verdict, result: JobResult, at_ms: float) -> None:
        marks, teller = job.marks, job.session.teller
        marks.result, marks.settled = at_ms, self.clock.now_ms()
        self._note_call("job_settle", marks.settled - at_ms)
        job.state = verdict.kind
        if verdict.kind == "completed":
            timings = result.extra.service_timings if result.extra is not None else None
            marks.take_stages(timings)
            if timings is not None:
                self._note_stages(timings)
            teller.event(job, "ASR_FINAL")
            teller.event(job, "NMT_DONE")
        elif verdict.kind == "failed":
            teller.failed(job, verdict.reason, result.error)

    def _note_call(self, script: str, took_ms: float) -> None:
        self._timed[script].observe(took_ms / 1000)
        if took_ms > SLOW_MS:
            self.metrics.slow_path_total.labels(path=script).inc()

    def _note_stages(self, timings: ServiceTimings) -> None:
        for name, took_ms in zip(
            ("asr", "nmt", "tts"), (timings.asr_ms, timings.nmt_ms, timings.tts_ms), strict=True
        ):
            if took_ms is not None and took_ms >= 0:
                self._stages[name].observe(took_ms / 1000)

    async def end_buffered_slice(self, job: LiveJob) -> None:
        """End a slice whose old node keeps its audio in silence, to make room for what follows."""
        job.state = "completed_no_text"
        _, work = await self.insist(
            lambda: self.dispatcher.settle(
                job.home, job.id, job.attempt, job.node, kind="completed_no_text",
                reason="buffered",
            )
        )  # fmt: skip
        self.perform(work)

    def buffered_slice(self, session: LiveSession) -> LiveJob | None:
        """Return the oldest slice of a session that a node of the older protocol sits on."""
        for job in self.jobs_of(session):
            node = self.nodes.get(job.node)
            is_kept = job.spec.is_slice and job.state == "assigned"
            if is_kept and node is not None and node.is_old:
                return job
        return None

    async def _give_back(
        self, node: LiveNode, job: LiveJob, result: JobResult, reason: str
    ) -> None:
        moved, work = await self.insist(
            lambda: self.dispatcher.failover(
                job.home, job.id, result.attempt_id, node=node.id, reason=reason
            )
        )
        if moved.reply in FREED_NAMES:
            self.metrics.results_stale_total.labels(reason=moved.reply.name.lower()).inc()
        if reason == "NODE_OVERLOADED":
            self.metrics.node_overload_reject_total.labels(reason="full").inc()
        if moved.reply is Reply.SETTLED:
            job.state = "failed"
            job.session.teller.failed(job, reason, result.error)
        node.answer(job.id, result.attempt_id, _status_of(moved.reply))
        self.perform(work)

    async def _move(self, job: LiveJob, reason: str) -> None:
        attempt, node = job.attempt, job.node
        _, work = await self.insist(
            lambda: self.dispatcher.failover(job.home, job.id, attempt, node=node, reason=reason)
        )
        self.perform(work)

    async def _model_missing(self, node: LiveNode, result: JobResult) -> None:
        details = result.error.details if result.error is not None else None
        service = ""
        if isinstance(details, dict):
            service = str(details.get("service_id") or details.get("model_id") or "")
        self.metrics.model_na_received_total.inc()
        if not service:
            return
        cell = self.cells.of_node(node.id)
        answer = await self.insist(lambda: self.store.node_mark(cell, node.id, service[:128]))
        if answer.reply is Reply.RATE_LIMITED:
            self.metrics.model_na_rate_limited_total.inc()
        elif answer.reply is Reply.OK:
            self.metrics.model_na_marked_total.inc()

    def accepted(self, node: LiveNode, job_id: str, attempt: int, *, running: bool) -> None:
        """A node has the job, or works on it."""
        job = self.jobs.get(job_id)
        if job is None or job.attempt != attempt or job.node != node.id:
            return
        if not job.marks.accepted or job.marks.accepted < job.marks.push:
            job.marks.accepted = self.clock.now_ms()
            job.session.teller.event(job, "NODE_ACCEPTED")
        job.state = "processing" if running else "assigned"

    def heard(self, node: LiveNode, report: NodeAsrPartial) -> None:
        """Pass on what was recognised so far, while the job has no outcome."""
        job = self.jobs.get(report.job_id)
        if job is None or job.node != node.id or job.marks.settled:
            return
        if report.attempt_id is not None and report.attempt_id != job.attempt:
            return
        self.accepted(node, job.id, job.attempt, running=True)
        job.session.teller.partial(job, report.text, is_final=report.is_final)

    async def node_lost(self, node: LiveNode) -> None:
        """A node's socket is gone: whatever it held goes to others."""
        started = self.clock.now_ms()
        _, work = await self.dispatcher.node_lost(node.id, node.conn)
        self.perform(work)
        self.metrics.redispatch_seconds.observe((self.clock.now_ms() - started) / 1000)

    # What the clock asks for

    async def mark_lasting(self) -> None:
        """Tell the store of jobs that last: acknowledged ones get their whole attempt's time."""
        limit = self.clock.now_ms() - MARK_AFTER_MS
        for job in list(self.jobs.values()):
            if not job.node or job.pushed_at_ms > limit or job.marks.settled:
                continue
            state = "DISPATCHED"
            if job.marks.accepted >= job.marks.push:
                state = "RUNNING" if job.state == "processing" else "ACCEPTED"
            if job.marked == state:
                continue
            attempt = job.attempt
            await self.store.job_mark(job.home, job.id, attempt, job.node, state)
            if job.attempt == attempt:
                job.marked = state

    def _network_of(self, job: LiveJob, result: JobResult) -> NetworkTimings | None:
        wall = self.clock.wall_ms()

        def span(start: int | None, end: int) -> int | None:
            return end - start if start is not None and 0 <= end - start < 3_600_000 else None

        return NetworkTimings(
            web_to_scheduler_ms=span(job.first_client_ts_ms, job.received_at_ms),
            scheduler_to_node_ms=max(0, round(job.marks.push - job.marks.cut)),
            node_to_scheduler_ms=span(result.node_completed_at_ms, wall),
        )


def _status_of(reply: Reply) -> str:
    if reply in (Reply.SETTLED, Reply.ALREADY):
        return "accepted"
    return "moved" if reply not in FREED_NAMES else "stale"
