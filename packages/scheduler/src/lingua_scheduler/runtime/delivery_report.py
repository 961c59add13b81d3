"""What is counted and logged of outcomes that were delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.state.records import Released


class DeliveryReport:
    """Counts and logs the outcomes of all sessions."""

    def __init__(self, metrics: LiveMetrics, counts: PlacementMetrics, log: JobLog) -> None:
        self._metrics = metrics
        self._ended = counts.ended
        self._end_to_end = metrics.results.end_to_end_seconds
        self._order_wait = metrics.results.order_wait_seconds
        self._to_deliver = metrics.results.result_to_deliver_seconds
        self._log = log

    def delivered(
        self,
        record: SessionRecord,
        outcome: Released,
        job: LiveJob | None,
        now_ms: float,
        wall_ms: int,
    ) -> None:
        """Count and log one outcome."""
        self._ended[outcome.kind].inc()
        self._log.ended(record, outcome, job, wall_ms)
        if outcome.reason == "gap_timeout":
            self._metrics.results.result_gap_timeout_total.inc()
        if job is None:
            return
        times = job.times
        self._end_to_end.observe((now_ms - times.speech_end) / 1000)
        if times.settled:
            self._order_wait.observe((now_ms - times.settled) / 1000)
            self._to_deliver.observe((times.settled - times.result) / 1000)
