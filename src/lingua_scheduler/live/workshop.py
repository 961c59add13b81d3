"""What the nodes of this instance do: jobs pushed to them, and everything they report.

A job may be of a session here or of one on another instance; then it is read from the store when
its placement arrives. Results are settled from here in either case, so that none is lost with the
session's instance.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.between.letters import Resend
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live.job import LiveJob, decode_body
from lingua_scheduler.live.outcome import encode_result, stored, verdict_of, without_sound
from lingua_scheduler.live.remote import RemoteSession
from lingua_scheduler.live.tasks import all_of
from lingua_scheduler.messages.shared import NetworkTimings
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.records import Placement
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.between.letters import Push
    from lingua_scheduler.jobs.dispatcher import Work
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.node import LiveNode
    from lingua_scheduler.live.outcome import StoredResult, Verdict
    from lingua_scheduler.messages.from_node import JobResult, NodeAsrPartial
    from lingua_scheduler.messages.shared import ServiceTimings
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Fetched, Lease, Settled

# A job that ends sooner than this is never marked in the store as accepted or running.
MARK_AFTER_MS = 500
# Jobs whose cell is remembered after they left: their nodes may still report them.
HOMES_MAX = 8192
# How often and how long a result waits for its job to be brought in again.
FORGOTTEN_TRIES = 10
FORGOTTEN_EVERY_S = 0.25
FREED_NAMES = frozenset({Reply.STALE_ATTEMPT, Reply.NODE_MISMATCH, Reply.JOB_ENDED, Reply.NO_JOB})

# Errors with which a node hands a job back before it has begun it -> how that is counted.
REJECTS = {
    "NODE_OVERLOADED": "full",
    "NODE_UNAVAILABLE": "not_ready",
    "MODEL_NOT_AVAILABLE": "other",
    "MODEL_LOAD_FAILED": "other",
    "MODEL_VERIFY_FAILED": "other",
    "MODEL_CORRUPTED": "other",
}


class Workshop:
    """The jobs that nodes of this instance hold."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board
        self._store = board.store
        self._clock = board.clock
        self._metrics = board.metrics
        # Jobs that are on a node here now.
        self.held: dict[str, LiveJob] = {}
        # The cell of every job that was lately on a node here.
        self._homes: OrderedDict[str, Cell] = OrderedDict()
        self._stages = {
            name: self._metrics.stage_seconds.labels(stage=name) for name in ("asr", "nmt", "tts")
        }

    # To nodes

    def push(self, job: LiveJob, placement: Placement) -> bool:
        """Send a job to its node's socket; tells whether it was there to take it."""
        node = self._board.nodes.get(placement.node)
        left_ms = None
        if job.ends_ms:
            left_ms = max(1, round(job.ends_ms - self._clock.now_ms()))
        if node is None or not node.assign(job, placement, left_ms):
            return False
        self.held[job.id] = job
        self._remember(job.id, job.home)
        return True

    def _remember(self, job_id: str, home: Cell) -> None:
        homes = self._homes
        homes[job_id] = home
        if len(homes) > HOMES_MAX:
            homes.popitem(last=False)

    async def take_push(self, letter: Push) -> None:
        """Another instance placed a job on a node that is, or was, here."""
        board, cell = self._board, self._board.cells.of_node(letter.node)
        host = board.instance
        if letter.node not in board.nodes:
            host = await board.host_of(letter.node)
        placement = Placement(
            letter.job, letter.attempt, letter.node, cell.name, host,
            letter.context_reset, letter.ends_at_ms, letter.home,
        )  # fmt: skip
        if host == board.instance:
            await self.fetch_and_push(placement, letter)
        else:
            # It registered elsewhere meanwhile; nowhere, if there is no host.
            board.push(placement)

    async def fetch_and_push(self, placement: Placement, letter: Push | None = None) -> None:
        """Push a job of a session elsewhere, read from the store (or from the letter)."""
        board, home = self._board, self._board.cells.named(placement.home)
        held = self.held.get(placement.job)
        if held is not None and (held.attempt, held.node) == placement[1:3]:
            return  # a letter that came twice
        own = board.jobs.get(placement.job)
        if own is not None and (own.attempt, own.node) != placement[1:3]:
            board.push(placement)
            return
        has_audio = own is not None or (letter is not None and bool(letter.audio))
        boot = self._boot_of(placement.node)
        found = await self._store.job_fetch(
            home, placement.job, placement.attempt, placement.node, boot, audio=not has_audio
        )
        if found.reply is not Reply.OK or found.spec is None:
            return  # it has gone on, or has ended
        if self._boot_of(placement.node) != boot:
            return  # another process of the node came: what the one before it held is moved by that
        if own is not None:
            # It was pushed by way of another instance, and its node is here now.
            await self._push_here(own, placement)
            return
        audio = letter.audio if letter is not None and has_audio else found.audio
        if not audio:
            await self._ask_for_audio(placement, found)
            return
        await self._push_here(self._adopt(placement, found, audio), placement)

    def _boot_of(self, node_id: str) -> str:
        node = self._board.nodes.get(node_id)
        return node.boot if node is not None else ""

    async def _push_here(self, job: LiveJob, placement: Placement) -> None:
        board = self._board
        if not self.push(job, placement):
            await board.push_failed(placement, board.nodes.get(placement.node))
        elif job.spec.is_slice and board.nodes[placement.node].is_old and job.id not in board.jobs:
            job.session.teller.event(job, "KEPT")

    def _adopt(self, placement: Placement, found: Fetched, audio: bytes) -> LiveJob:
        board, spec = self._board, found.spec
        assert spec is not None
        body = decode_body(found.body)
        job = LiveJob(
            placement.job, board.cells.named(placement.home), spec, body.assign, audio,
            RemoteSession(spec.session, found.owner, board.write), lanes=body.lanes,
        )  # fmt: skip
        now, ago_ms = self._clock.now_ms(), self._clock.now_ms() - self._clock.wall_ms()
        job.attempt, job.node, job.state = placement.attempt, placement.node, "assigned"
        job.pushed_at_ms, job.marks.cut, job.marks.push = int(now), now, now
        if body.cut_at_ms:
            # By the owner's wall clock: as good as the two machines agree.
            job.marks.speech_end = min(now, body.speech_end_at_ms + ago_ms)
            job.marks.cut = min(now, body.cut_at_ms + ago_ms)
        job.ends_ms = now + found.left_ms
        return job

    async def _ask_for_audio(self, placement: Placement, found: Fetched) -> None:
        """The store does not keep the audio: the session's owner has it, if it lives."""
        board = self._board
        job, attempt, node = placement[:3]
        letter = Resend(job, attempt, node, placement.home, board.instance)
        is_asked = False
        if found.owner and found.owner != board.instance:
            is_asked = await board.insist(lambda: board.post.send(found.owner, letter))
        if not is_asked:
            await board.audio_lost(letter)

    def take_back(self, node: LiveNode, leases: tuple[Lease, ...]) -> None:
        """A node came back with its jobs, from another instance or after a lost socket."""
        cell = self._board.cells.of_node(node.id)
        for lease in leases:
            home = self._board.cells.named(lease.home) if lease.home else cell
            self._remember(lease.job, home)
            if node.is_old or lease.job in self.held:
                continue
            # Whoever pushed it may have died before it did: a node knows an attempt it has.
            placement = Placement(
                lease.job, lease.attempt, node.id, cell.name, self._board.instance,
                context_reset=False, ends_at_ms=0, home=home.name,
            )  # fmt: skip
            self._board.tasks.start(self.fetch_and_push(placement))

    def forget(self, job_id: str, node: str) -> None:
        """A job is not on that node any more."""
        job = self.held.get(job_id)
        if job is not None and job.node == node:
            del self.held[job_id]

    # What nodes report

    async def report(self, node: LiveNode, result: JobResult) -> None:
        """Settle a job by its node's report, or move it where another node may do better."""
        job = self.held.get(result.job_id) or self._board.jobs.get(result.job_id)
        home = job.home if job is not None else self._homes.get(result.job_id)
        if home is None:
            self._metrics.results_stale_total.labels(reason="no_job").inc()
            node.answer(result.job_id, result.attempt_id, "unknown")
            return
        now = self._clock.now_ms()
        verdict = verdict_of(result)
        if not result.success:
            self._board.journal.node_error(node.id, job, result)
        if verdict.reason == "MODEL_NOT_AVAILABLE":
            await self._model_missing(node, result)
        if verdict.retryable:
            await self._give_back(node, job, home, result)
            return
        answer, work = await self._settle(node, job, home, result)
        tries_left = FORGOTTEN_TRIES
        while answer.reply is Reply.NO_JOB and job is not None and tries_left:
            # The store forgot a job that is here: its session's owner brings it in again.
            tries_left -= 1
            await self._board.insist(job.session.recover)
            await asyncio.sleep(FORGOTTEN_EVERY_S)
            answer, work = await self._settle(node, job, home, result)
        is_news = job is not None and answer.reply is Reply.ALREADY and not job.marks.settled
        if job is not None and (answer.reply is Reply.SETTLED or is_news):
            self._settled(job, verdict, result, now)
        elif answer.reply in FREED_NAMES:
            self._metrics.results_stale_total.labels(reason=answer.reply.name.lower()).inc()
        node.answer(result.job_id, result.attempt_id, _status_of(answer.reply))
        self._board.perform(work)
        self.forget(result.job_id, node.id)
        if job is not None and is_news:
            # The answer that carried the outcome was lost.
            await job.session.recover()

    async def _settle(
        self, node: LiveNode, job: LiveJob | None, home: Cell, result: JobResult
    ) -> tuple[Settled, Work]:
        verdict = verdict_of(result)
        payload: bytes | tuple[bytes, bytes] = b""
        if verdict.kind == "completed":
            trace = job.assign.trace_id if job is not None else result.trace_id
            network = self._network_of(job, result) if job is not None else None
            kept = stored(result, trace, network)
            if job is not None and job.spec.audience:
                kept = self._for_listeners(job, kept)
                payload = encode_result(kept), encode_result(without_sound(kept))
            else:
                payload = encode_result(kept)
        settle = partial(
            self._board.dispatcher.settle, home, result.job_id, result.attempt_id, node.id,
            kind=verdict.kind, reason=verdict.reason, payload=payload,
        )  # fmt: skip
        try:
            return await settle()
        except StoreUnavailable:
            return await self._board.insist(settle)

    def _for_listeners(self, job: LiveJob, kept: StoredResult) -> StoredResult:
        """Add what the owners of listeners cannot know: where the time went so far."""
        marks = replace(job.marks, result=self._clock.now_ms())
        marks.take_stages(kept.timings)
        return msgspec.structs.replace(
            kept, timeline=timeline(marks), settled_at_ms=self._clock.wall_ms()
        )

    def _settled(self, job: LiveJob, verdict: Verdict, result: JobResult, at_ms: float) -> None:
        marks, teller = job.marks, job.session.teller
        marks.result, marks.settled = at_ms, self._clock.now_ms()
        self._board.note_call("job_settle", marks.settled - at_ms)
        job.state = verdict.kind
        if verdict.kind == "completed":
            timings = result.extra.service_timings if result.extra is not None else None
            marks.take_stages(timings)
            if timings is not None:
                self._note_stages(timings)
            teller.event(job, "ASR_FINAL")
            teller.event(job, "NMT_DONE")
        elif verdict.kind == "failed":
            teller.failed(job, verdict.reason)

    def _note_stages(self, timings: ServiceTimings) -> None:
        for name, took_ms in zip(
            ("asr", "nmt", "tts"), (timings.asr_ms, timings.nmt_ms, timings.tts_ms), strict=True
        ):
            if took_ms is not None and took_ms >= 0:
                self._stages[name].observe(took_ms / 1000)

    async def _give_back(
        self, node: LiveNode, job: LiveJob | None, home: Cell, result: JobResult
    ) -> None:
        board, reason = self._board, verdict_of(result).reason
        moved, work = await board.insist(
            lambda: board.dispatcher.failover(
                home, result.job_id, result.attempt_id, node=node.id, reason=reason
            )
        )
        if moved.reply in FREED_NAMES:
            self._metrics.results_stale_total.labels(reason=moved.reply.name.lower()).inc()
        elif reason in REJECTS:
            self._metrics.node_overload_reject_total.labels(reason=REJECTS[reason]).inc()
        if moved.reply is Reply.SETTLED and job is not None:
            job.state = "failed"
            job.session.teller.failed(job, reason)
        node.answer(result.job_id, result.attempt_id, _status_of(moved.reply))
        self.forget(result.job_id, node.id)
        board.perform(work)

    async def _model_missing(self, node: LiveNode, result: JobResult) -> None:
        details = result.error.details if result.error is not None else None
        service = ""
        if isinstance(details, dict):
            service = str(details.get("service_id") or details.get("model_id") or "")
        self._metrics.model_na_received_total.inc()
        if not service:
            return
        cell = self._board.cells.of_node(node.id)
        answer = await self._board.insist(
            lambda: self._store.node_mark(cell, node.id, service[:128])
        )
        if answer.reply is Reply.RATE_LIMITED:
            self._metrics.model_na_rate_limited_total.inc()
        elif answer.reply is Reply.OK:
            self._metrics.model_na_marked_total.inc()

    def accepted(self, node: LiveNode, job_id: str, attempt: int, *, running: bool) -> None:
        """A node has the job, or works on it."""
        job = self.held.get(job_id)
        if job is None or job.attempt != attempt or job.node != node.id:
            return
        if not job.marks.accepted or job.marks.accepted < job.marks.push:
            job.marks.accepted = self._clock.now_ms()
            job.session.teller.event(job, "NODE_ACCEPTED")
        job.state = "processing" if running else "assigned"

    def heard(self, node: LiveNode, report: NodeAsrPartial) -> None:
        """Pass on what was recognised so far, while the job has no outcome."""
        job = self.held.get(report.job_id)
        if job is None or job.node != node.id or job.marks.settled:
            return
        if report.attempt_id is not None and report.attempt_id != job.attempt:
            return
        self.accepted(node, job.id, job.attempt, running=True)
        job.session.teller.partial(job, report.text, is_final=report.is_final)

    def holds_for(self, node: LiveNode) -> bool:
        """Tell whether a node has any job."""
        return any(job.node == node.id for job in self.held.values())

    def let_go(self, node: LiveNode) -> None:
        """A node is not here any more, with all it holds."""
        for job in [job for job in self.held.values() if job.node == node.id]:
            del self.held[job.id]

    async def node_lost(self, node: LiveNode) -> None:
        """A node's socket is gone: whatever it held goes to others."""
        started = self._clock.now_ms()
        _, work = await self._board.dispatcher.node_lost(node.id, node.conn)
        self.let_go(node)
        self._board.perform(work)
        took_s = (self._clock.now_ms() - started) / 1000
        for move in work.moved:
            # What another node got at once; an idle node leaves nothing to be done again.
            if move.to is not None:
                self._metrics.redispatch_seconds.observe(took_s)

    # What the clock asks for

    async def mark_lasting(self) -> None:
        """Tell the store of jobs that last: acknowledged ones get their whole attempt's time."""
        limit = self._clock.now_ms() - MARK_AFTER_MS
        lasting = [job for job in self.held.values() if job.node and job.pushed_at_ms <= limit]
        await all_of(
            self._mark(job, state)
            for job in lasting
            if not job.marks.settled and (state := _state_of(job)) != job.marked
        )

    async def _mark(self, job: LiveJob, state: str) -> None:
        attempt, node = job.attempt, job.node
        reply = await self._store.job_mark(job.home, job.id, attempt, node, state)
        if reply in FREED_NAMES:
            self.forget(job.id, node)
        elif job.attempt == attempt:
            job.marked = state

    def _network_of(self, job: LiveJob, result: JobResult) -> NetworkTimings | None:
        wall = self._clock.wall_ms()

        def span(start: int | None, end: int) -> int | None:
            return end - start if start is not None and 0 <= end - start < 3_600_000 else None

        return NetworkTimings(
            web_to_scheduler_ms=span(job.first_client_ts_ms, job.received_at_ms),
            scheduler_to_node_ms=max(0, round(job.marks.push - job.marks.cut)),
            node_to_scheduler_ms=span(result.node_completed_at_ms, wall),
        )


def _state_of(job: LiveJob) -> str:
    if job.marks.accepted < job.marks.push:
        return "DISPATCHED"
    return "RUNNING" if job.state == "processing" else "ACCEPTED"


def _status_of(reply: Reply) -> str:
    if reply in (Reply.SETTLED, Reply.ALREADY):
        return "accepted"
    return "moved" if reply not in FREED_NAMES else "stale"
