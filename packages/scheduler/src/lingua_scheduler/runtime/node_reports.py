"""What nodes of this instance report about their jobs: accepted, partial texts, results.

A job may be of a session here or on another instance. Results are settled from here in either
case, so that none is lost with the session's instance.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.job import JobState
from lingua_scheduler.jobs.result import for_listeners, message_of, verdict_of, without_sound
from lingua_scheduler.jobs.result_format import encode_result
from lingua_scheduler.peers.messages import PartSpoken
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.tasks import all_of
from lingua_wire.shared import NetworkTimings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.jobs.result import Verdict
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import Lease, Settled
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.from_node import JobAudioPart, JobResult, NodeAsrPartial
    from lingua_wire.to_client import TranslationResult

# A job that ends sooner than this is never marked in the store as accepted or running.
MARK_AFTER_MS = 500
SETTLED = Reply.SETTLED
# How often and how long a result waits for its lost job to be stored again.
LOST_JOB_TRIES = 10
LOST_JOB_EVERY_S = 0.25
# Times of two clocks that are further apart say nothing about the network.
CLOCKS_DIFFER_MS = 3_600_000
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


@dataclass(slots=True, kw_only=True, eq=False)
class NodeReports:
    """Handles the reports of this instance's nodes."""

    store: Store
    cells: Cells
    dispatcher: Dispatcher
    retry: StoreRetry
    effects: Effects
    jobs: JobTable
    held: HeldJobs
    counts: PlacementMetrics
    metrics: LiveMetrics
    log: JobLog
    clock: Clock
    tasks: Tasks

    def restore_held(self, node: LiveNode, leases: tuple[Lease, ...]) -> None:
        """Hold what a node brought along from another instance or from a lost socket."""
        cell = self.cells.of_node(node.id)
        for lease in leases:
            home = self.cells.named(lease.home) if lease.home else cell
            self.held.remember(lease.job, home)
            if node.traits.resumes and lease.job not in self.held:
                # The pushing instance may have died before it pushed: a node knows an attempt that
                # it has already.
                instance = self.effects.peers.instance
                placement = self.effects.placement_of(
                    lease.job, lease.attempt, node.id, home=home.name, instance=instance
                )
                self.tasks.start(self.effects.fetch_and_push(placement))

    # What nodes report

    async def report(self, node: LiveNode, result: JobResult) -> None:
        """Settle a job by its node's report, or move it if another node may do better."""
        job = self.held.get(result.job_id) or self.jobs.get(result.job_id)
        home = job.home if job is not None else self.held.home_of(result.job_id)
        if home is None:
            self.metrics.results.results_stale_total.labels(reason="no_job").inc()
            node.answer(result.job_id, result.attempt_id, "unknown")
            return
        now = self.clock.now_ms()
        verdict = verdict_of(result)
        if not result.success:
            await self._failed(node, job, result, verdict)
            if verdict.retryable:
                await self._give_back(node, job, home, result)
                return
        payload = self._payload_of(job, result) if verdict.kind == "completed" else b""
        try:
            answer = await self._settle(home, node.id, result, verdict, payload)
        except StoreUnavailable:
            settle = partial(self._settle, home, node.id, result, verdict=verdict, payload=payload)
            answer = await self.retry.until_stored(settle)
        if answer.reply is not SETTLED:
            settle = partial(self._settle, home, node.id, result, verdict=verdict, payload=payload)
            answer = await self._not_settled(job, answer, settle)
        is_news = job is not None and answer.reply is Reply.ALREADY and not job.times.settled
        if job is not None and (answer.reply is SETTLED or is_news):
            self._settled(job, verdict, result, now)
        node.answer(result.job_id, result.attempt_id, _status_of(answer.reply))
        if answer.effects.freed:
            self.effects.perform(await self.dispatcher.follow(home, answer.effects))
        else:
            self.effects.follow(answer.effects)
        self.held.remove(result.job_id, node.id)
        if job is not None and is_news:
            # The answer that carried the outcome was lost.
            await job.owner.recover()

    def _settle(
        self,
        home: Cell,
        node: str,
        result: JobResult,
        verdict: Verdict,
        payload: bytes | tuple[bytes, bytes],
    ) -> Awaitable[Settled]:
        """End a job in the store."""
        return self.store.jobs.settle(
            home,
            result.job_id,
            result.attempt_id,
            node,
            kind=verdict.kind,
            reason=verdict.reason,
            payload=payload,
        )

    async def _failed(
        self, node: LiveNode, job: LiveJob | None, result: JobResult, verdict: Verdict
    ) -> None:
        """Log that a node could not do a job, and note a model that it lacks."""
        self.log.node_error(node.id, job, result)
        if verdict.reason == "MODEL_NOT_AVAILABLE":
            await self._model_missing(node, result)

    async def _not_settled(
        self, job: LiveJob | None, answer: Settled, settle: Callable[[], Awaitable[Settled]]
    ) -> Settled:
        """Settle a job again that the store lost; count one that is not this node's any more."""
        tries_left = LOST_JOB_TRIES
        while answer.reply is Reply.NO_JOB and job is not None and tries_left:
            # The store lost a job that is here: its session's owner submits it again.
            tries_left -= 1
            await self.retry.until_stored(job.owner.recover)
            await asyncio.sleep(LOST_JOB_EVERY_S)
            answer = await self.retry.until_stored(settle)
        if answer.reply in FREED_NAMES:
            self.metrics.results.results_stale_total.labels(reason=answer.reply.name.lower()).inc()
        return answer

    def _payload_of(self, job: LiveJob | None, result: JobResult) -> bytes | tuple[bytes, bytes]:
        """Return what the store keeps of a result; for listeners also without its sound."""
        if job is None:
            return encode_result(message_of(result, result.trace_id, None))
        sent_at_ms, ended_at_ms = job.first_client_ts_ms, result.node_completed_at_ms
        network = NetworkTimings(
            web_to_scheduler_ms=_span_ms(sent_at_ms, job.received_at_ms) if sent_at_ms else None,
            scheduler_to_node_ms=max(0, round(job.times.push - job.times.cut)),
            node_to_scheduler_ms=_span_ms(ended_at_ms, self.clock.wall_ms())
            if ended_at_ms
            else None,
        )
        message = message_of(result, job.assign.trace_id, network)
        payload: bytes | tuple[bytes, bytes]
        if job.spec.audience:
            message = self._for_listeners(job, message)
            payload = encode_result(message), encode_result(without_sound(message))
        else:
            payload = encode_result(message)
        job.report(message, payload)
        return payload

    def _for_listeners(self, job: LiveJob, message: TranslationResult) -> TranslationResult:
        times = msgspec.structs.replace(job.times, result=self.clock.now_ms())
        times.set_stages(message.service_timings)
        return for_listeners(message, timeline(times), self.clock.wall_ms())

    def _settled(self, job: LiveJob, verdict: Verdict, result: JobResult, at_ms: float) -> None:
        notifier, now = job.owner.notifier, self.clock.now_ms()
        job.run.settled(verdict.kind, at_ms, now)
        self.counts.called("job_settle", now - at_ms)
        if verdict.kind == "completed":
            timings = result.extra.service_timings if result.extra is not None else None
            job.times.set_stages(timings)
            if timings is not None:
                self.counts.stages(timings)
            notifier.event(job, "ASR_FINAL")
            notifier.event(job, "NMT_DONE")
        elif verdict.kind == "failed":
            notifier.failed(job, verdict.reason)

    async def _give_back(
        self, node: LiveNode, job: LiveJob | None, home: Cell, result: JobResult
    ) -> None:
        reason = verdict_of(result).reason
        moved, work = await self.retry.until_stored(
            lambda: self.dispatcher.failover(
                home, result.job_id, result.attempt_id, node=node.id, reason=reason
            )
        )
        if moved.reply in FREED_NAMES:
            self.metrics.results.results_stale_total.labels(reason=moved.reply.name.lower()).inc()
        elif reason in REJECTS:
            self.metrics.fleet.node_overload_reject_total.labels(reason=REJECTS[reason]).inc()
        if moved.reply is Reply.SETTLED and job is not None:
            job.run.finish("failed")
            job.owner.notifier.failed(job, reason)
        node.answer(result.job_id, result.attempt_id, _status_of(moved.reply))
        self.held.remove(result.job_id, node.id)
        self.effects.perform(work)

    async def _model_missing(self, node: LiveNode, result: JobResult) -> None:
        details = result.error.details if result.error is not None else None
        service = ""
        if isinstance(details, dict):
            service = str(details.get("service_id") or details.get("model_id") or "")
        self.metrics.fleet.model_na_received_total.inc()
        if not service:
            return
        cell = self.cells.of_node(node.id)
        answer = await self.retry.until_stored(
            lambda: self.store.nodes.mark(cell, node.id, service[:128])
        )
        if answer.reply is Reply.RATE_LIMITED:
            self.metrics.fleet.model_na_rate_limited_total.inc()
        elif answer.reply is Reply.OK:
            self.metrics.fleet.model_na_marked_total.inc()

    def accepted(
        self, node: LiveNode, job_id: str, attempt: int, *, is_running: bool, ago_ms: int = 0
    ) -> None:
        """Note that a node has the job, or works on it, since so long ago."""
        job = self.held.get(job_id)
        if job is None:
            return
        current = job.run.current
        if current.number == attempt and current.node == node.id:
            since_ms = max(job.times.push, self.clock.now_ms() - ago_ms)
            job.accepted(since_ms, is_running=is_running)

    def partial_text(self, node: LiveNode, report: NodeAsrPartial) -> None:
        """Pass on the text recognised so far, while the job has no outcome."""
        job = self.held.get(report.job_id)
        if job is None or job.node != node.id or job.times.settled:
            return
        if report.attempt_id is not None and report.attempt_id != job.attempt:
            return
        job.accepted(self.clock.now_ms(), is_running=True)
        job.owner.notifier.partial(job, report.text, is_final=report.is_final)

    def audio_part(self, node: LiveNode, report: JobAudioPart) -> None:
        """Pass on a part of the spoken translation, while the job has no outcome."""
        job = self.held.get(report.job_id)
        if job is None or job.node != node.id or job.times.settled:
            return
        if report.attempt_id == job.attempt and job.assign.tts_parts:
            job.owner.notifier.part(
                job,
                PartSpoken(
                    session=job.spec.session,
                    job=job.id,
                    attempt=report.attempt_id,
                    part_index=report.part_index,
                    audio=report.audio,
                    audio_format=report.audio_format,
                ),
            )

    # Periodically

    async def mark_lasting(self) -> None:
        """Mark lasting jobs in the store: accepted ones get the whole time of their attempt."""
        limit = self.clock.now_ms() - MARK_AFTER_MS
        lasting = [job for job in self.held if job.node and job.run.current.pushed_at_ms <= limit]
        await all_of(
            self._mark(job, state)
            for job in lasting
            if not job.times.settled and (state := _state_of(job)) != job.run.current.marked
        )

    async def _mark(self, job: LiveJob, state: str) -> None:
        attempt, node = job.attempt, job.node
        reply = await self.store.jobs.mark(job.home, job.id, attempt, node, state)
        if reply in FREED_NAMES:
            self.held.remove(job.id, node)
        else:
            job.run.mark(attempt, state)


def _span_ms(start: int, end: int) -> int | None:
    """Return the time between two clocks, if that can be true."""
    return end - start if 0 <= end - start < CLOCKS_DIFFER_MS else None


def _state_of(job: LiveJob) -> str:
    if job.times.accepted < job.times.push:
        return JobState.DISPATCHED
    return JobState.RUNNING if job.run.state is JobState.RUNNING else JobState.ACCEPTED


def _status_of(reply: Reply) -> str:
    if reply is SETTLED or reply is Reply.ALREADY:
        return "accepted"
    return "moved" if reply not in FREED_NAMES else "stale"
