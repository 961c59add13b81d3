"""`job_started` for the jobs that last: a job that ends at once is reported by its result alone.

The result of a job says all that `job_started` would have said before, and each message costs both
sides. So a start is reported when the job still runs some time later, or before the first thing
that the job itself sends. One timer serves all jobs of a node. When none waits it is not set again.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_node.job import Job, JobNews
    from lingua_node.result_buffer import MessageSender

# Long enough for jobs that hardly do anything, and far below the time in which the scheduler wants
# to hear of a job (`jobs.ack_ms`, 2 s).
STARTED_AFTER_S: Final = 0.02
# The clock of a loop may count whole milliseconds: a timer without this could be early.
TIMER_MARGIN_S: Final = 0.001


class StartReports:
    """The jobs whose start is not reported yet."""

    def __init__(self, outbox: MessageSender, report: Callable[[Job], None]) -> None:
        self._outbox = outbox
        # Sends `job_started`.
        self._report = report
        # By job id, oldest first; each of them runs.
        self._waiting: dict[str, Job] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, job: Job) -> None:
        """Report this job if it lasts."""
        self._waiting[job.assign.job_id] = job
        if self._timer is None:
            self._set_timer(STARTED_AFTER_S)

    def forget(self, job: Job) -> None:
        """Do not report this job any more: it has ended, or was told to."""
        self._waiting.pop(job.assign.job_id, None)

    def report(self, job: Job) -> None:
        """Report this job now, also a second time."""
        self.forget(job)
        self._report(job)

    def send(self, news: JobNews) -> None:
        """Send what a job says while it runs, after its start."""
        job = self._waiting.get(news.job_id)
        if job is not None and self._outbox.is_open:
            self.report(job)
        self._outbox.send(news)

    def report_due(self) -> None:
        """Report the jobs that have lasted; without a connection they wait for the next one."""
        self.stop_timer()
        if not self._outbox.is_open:
            return
        due_at = perf_counter() - STARTED_AFTER_S
        for job in tuple(self._waiting.values()):
            if job.started_at > due_at:
                self._set_timer(job.started_at - due_at)
                return
            self.report(job)

    def stop_timer(self) -> None:
        """Wait for no job any more, until another one begins."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds + TIMER_MARGIN_S, self.report_due)
