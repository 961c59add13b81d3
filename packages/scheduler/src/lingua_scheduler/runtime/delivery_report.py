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
        self._counts = counts
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
        self._counts.ended[outcome.kind].value += 1
        self._log.ended(record, outcome, job, wall_ms)
        if outcome.reason == "gap_timeout":
            self._metrics.results.result_gap_timeout_total.inc()
        if job is not None:
            self._counts.delivered(job.times, now_ms)
