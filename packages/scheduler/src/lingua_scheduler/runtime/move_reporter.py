"""Jobs that left their node: counted and logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.dispatcher import Move
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.store import Store


class MoveReporter:
    """Counts and logs moves of jobs."""

    def __init__(
        self,
        *,
        metrics: LiveMetrics,
        counts: PlacementMetrics,
        log: JobLog,
        clock: Clock,
        store: Store,
        cells: Cells,
    ) -> None:
        self._metrics = metrics
        self._counts = counts
        self._log = log
        self._clock = clock
        self._store = store
        self._cells = cells

    def count(self, move: Move) -> None:
        """Count a job that left its node; its end is no move, and a waiting job left no node."""
        if move.node and move.reply is not Reply.SETTLED:
            self._metrics.jobs.failovers_total.labels(reason=move.reason).inc()
        if move.reason == "no_ack":
            self._metrics.jobs.ack_timeout_total.inc()
        if move.to is not None:
            self._counts.placed(move.to)
        elif move.reply is Reply.QUEUED:
            self._counts.unplaced("failover", move.label)

    def log(self, move: Move, job: LiveJob) -> None:
        """Log the move of a job that is known here."""
        pushed_ms = job.times.push if move.node else 0
        held_ms = round(self._clock.now_ms() - pushed_ms) if pushed_ms else 0
        self._log.moved(move, job, held_ms)

    async def log_recorded(self, move: Move) -> None:
        """Log the move of a job that is known by its record in the store only."""
        record = await self._store.jobs.show(self._cells.named(move.home), move.job)
        self._log.moved(move, record)
