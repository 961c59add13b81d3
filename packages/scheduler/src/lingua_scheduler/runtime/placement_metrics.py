"""Counts of the usual path: placements, pools, outcomes, and calls of the store.

Labelled counters are bound once, because looking one up costs more than counting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_scheduler.metrics import Counter, LiveMetrics
    from lingua_scheduler.session.timeline import Marks
    from lingua_scheduler.state.records import Placement, Speech
    from lingua_wire.shared import ServiceTimings

OUTCOMES = ("completed", "completed_no_text", "failed", "expired", "cancelled", "missing")
# By which rule a node was found -> how its pool is counted; "": in another cell.
CHOICES = {"pool": "hit", "fallback": "fallback", "": "fallback"}
# A call to the store that takes longer is counted as slow.
SLOW_MS = 50


class PlacementMetrics:
    """What an instance counts of its jobs."""

    def __init__(self, metrics: LiveMetrics) -> None:
        self._metrics = metrics
        self.ended = {kind: metrics.jobs.jobs_total.labels(outcome=kind) for kind in OUTCOMES}
        self._reserved = {
            result: metrics.jobs.reserve_attempt_total.labels(result=result)
            for result in ("success", "fail", "error")
        }
        # By pool and rule.
        self._chosen: dict[tuple[str, str], Counter] = {}
        self._calls = {
            name: metrics.instance.store_call_seconds.labels(script=name)
            for name in ("job_submit", "job_settle")
        }
        self._success = self._reserved["success"]
        self._to_assign = metrics.jobs.accept_to_assign_seconds
        self._to_push = metrics.jobs.dispatch_latency_seconds

        self._stages = {
            name: metrics.results.stage_seconds.labels(stage=name) for name in ("asr", "nmt", "tts")
        }

    def placed(self, placement: Placement) -> None:
        """Count a node that was found."""
        self._success.inc()
        counted = self._chosen.get((placement.pool, placement.how))
        if counted is None:
            outcome = CHOICES.get(placement.how)
            if outcome is None:
                return  # the turn's or a preferred node: no choice among pools
            pool = placement.pool or "elsewhere"
            counted = self._metrics.jobs.pool_selected_total.labels(pool=pool, outcome=outcome)
            self._chosen[placement.pool, placement.how] = counted
        counted.inc()

    def pushed(self, times: Marks) -> None:
        """Count how long it took until a job went to its first node."""
        self._to_assign.observe((times.push - times.cut) / 1000)
        self._to_push.observe((times.push - times.submit) / 1000)

    def unplaced(self, selector: str, label: str) -> None:
        """Count a job that no node could take at once."""
        self._reserved["fail"].inc()
        self._metrics.jobs.pool_selected_total.labels(pool="none", outcome="miss").inc()
        self._metrics.jobs.no_available_node_total.labels(
            selector=selector, reason=label or "queue_full"
        ).inc()

    def unavailable(self) -> None:
        """Count a submission that met an unavailable store."""
        self._reserved["error"].inc()

    def called(self, script: str, took_ms: float) -> None:
        """Count how long a call of the usual path took."""
        self._calls[script].observe(took_ms / 1000)
        if took_ms > SLOW_MS:
            self._metrics.instance.slow_path_total.labels(path=script).inc()

    def stages(self, timings: ServiceTimings) -> None:
        """Count how long the stages of a job took, as its node reported them."""
        took = (timings.asr_ms, timings.nmt_ms, timings.tts_ms)
        for stage, took_ms in zip(self._stages.values(), took, strict=True):
            if took_ms is not None and took_ms >= 0:
                stage.observe(took_ms / 1000)

    def speech_ended(self, speech: Speech) -> None:
        """Count what became of the speech of a session that ended, once for each session."""
        silence = speech.silence_at(speech.heard_ms)
        total = self._metrics.speech.coverage_ms_total
        total.labels(fate="delivered").inc(speech.delivered)
        total.labels(fate="silent").inc(speech.silent + silence)
        total.labels(fate="failed").inc(speech.failed)
        total.labels(fate="skipped").inc(speech.skipped + speech.passed)
