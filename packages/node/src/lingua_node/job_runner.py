"""The jobs of one node: starting, cancelling and reporting them, with or without a connection.

A `JobRunner` has no socket: it handles the scheduler's messages and sends through a
`MessageSender`. Jobs continue while there is no connection. A result is kept until the scheduler
has acknowledged it, and sent again after every reconnect.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_node.job import Handler, Job, JobFailed, Result, failure_message
from lingua_node.result_buffer import ResultBuffer
from lingua_node.start_reports import StartReports
from lingua_node.stream_runner import StreamRunner
from lingua_wire.from_node import JobCancelAck, JobStarted
from lingua_wire.shared import RunningJob

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_node.result_buffer import MessageSender
    from lingua_wire.shared import ResultAck
    from lingua_wire.to_node import JobAssign, JobCancel, JobResultAck, JobResultAcks

RUNNING_LISTED_MAX: Final = 2000
# What msgspec raises for values that cannot be encoded.
UNSENDABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_logger = logging.getLogger(__name__)


class JobRunner:
    """Runs the handler for every job, one task each."""

    def __init__(
        self,
        handler: Handler,
        outbox: MessageSender,
        *,
        node_id: str,
        max_jobs: int,
        acks: bool,
        streams: StreamRunner | None = None,
    ) -> None:
        # What the node hears before there are jobs.
        self.streams = streams or StreamRunner(None, outbox, max_streams=0)
        self.stats = self.streams.stats
        # The id under which the scheduler knows this node.
        self.node_id = node_id
        self._handler = handler
        self._outbox = outbox
        self._max_jobs = max_jobs
        self._acks = acks
        # Why no new jobs are taken; None while they are.
        self._closed_for: str | None = None
        # Job id -> the running job and its task.
        self._running: dict[str, tuple[Job, asyncio.Task[Result]]] = {}
        # Tasks of replaced attempts that have not ended yet.
        self._replaced: set[asyncio.Task[Result]] = set()
        self._results = ResultBuffer(outbox, self.stats)
        self._starts = StartReports(outbox, self._report_started)
        # Done when a job ends or a result is acknowledged; None if nothing waits for that.
        self._change: asyncio.Future[None] | None = None

    @property
    def running_count(self) -> int:
        """Return how many jobs are running."""
        return len(self._running)

    @property
    def unacknowledged_count(self) -> int:
        """Return how many results are kept."""
        return len(self._results)

    def running(self) -> tuple[RunningJob, ...]:
        """Return the running jobs, for a heartbeat."""
        return tuple(
            RunningJob(job_id=job.assign.job_id, attempt_id=job.assign.attempt_id)
            for job, _ in self._running.values()
        )

    def held(self) -> tuple[RunningJob, ...]:
        """Return the running jobs and those whose results are kept, for a registration.

        The scheduler would take a job that is done but unacknowledged for lost otherwise.
        """
        done = (job for job in self._results.jobs() if job.job_id not in self._running)
        return (*self.running(), *done)[:RUNNING_LISTED_MAX]

    def assign(self, message: JobAssign) -> None:
        """Start a job, or refuse it."""
        if not self._is_new(message):
            self.stats.duplicates += 1
            return
        if self._closed_for is not None:
            self._refuse(message, "NODE_UNAVAILABLE", self._closed_for)
        elif len(self._running) >= self._max_jobs:
            self._refuse(message, "NODE_OVERLOADED", f"{self._max_jobs} jobs are running")
        else:
            self._start(message)

    def refuse_new(self, reason: str) -> None:
        """Refuse new jobs and streams; running jobs continue."""
        self._closed_for = reason
        self.streams.refuse_new(reason)

    def cancel(self, message: JobCancel) -> None:
        """Cancel a job; the acknowledgement is sent when its handler has really ended."""
        job, task = self._running.get(message.job_id, (None, None))
        if job is None or task is None or message.attempt_id not in {None, job.assign.attempt_id}:
            attempt_id = message.attempt_id or 0
            unknown = JobCancelAck(job_id=message.job_id, attempt_id=attempt_id, stopped=False)
            self._outbox.send(unknown)
            return
        job.cancelled = True
        self._starts.forget(job)
        task.cancel()

    def acknowledge_all(self, message: JobResultAcks) -> None:
        """Drop the results that the scheduler has."""
        for ack in message.results:
            self.acknowledge(ack)

    def acknowledge(self, message: JobResultAck | ResultAck) -> None:
        """Drop a result that the scheduler has."""
        if self._results.attempt_of(message.job_id) == message.attempt_id:
            self._results.remove(message.job_id)
            self._report_change()

    def resend(self) -> None:
        """Send every kept result, and what was not reported so far, on a new connection."""
        self._results.resend_all()
        self._starts.report_due()

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that changes when a job ends or a result is acknowledged."""
        while not condition():
            self._change = asyncio.get_running_loop().create_future()
            await self._change

    async def stop(self) -> None:
        """Cancel the running jobs without a report, and wait for their handlers."""
        self._starts.stop_timer()
        tasks = [*(task for _, task in self._running.values()), *self._replaced]
        for job, _ in self._running.values():
            job.cancelled = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.streams.stop()

    def _is_new(self, message: JobAssign) -> bool:
        """Tell whether an attempt must be started; a newer attempt ends an older one."""
        running = self._running.get(message.job_id)
        if running is not None:
            job, task = running
            if message.attempt_id > job.assign.attempt_id:
                self._replace(job, task)
            else:
                is_known = message.attempt_id == job.assign.attempt_id and not job.cancelled
                if is_known and self._acks:
                    # The instance did not receive the first report, or is another one.
                    self._starts.report(job)
                return False
        kept_attempt = self._results.attempt_of(message.job_id)
        if kept_attempt is None:
            return True
        if message.attempt_id == kept_attempt:
            self._results.resend(message.job_id)
        elif message.attempt_id > kept_attempt:
            self._results.remove(message.job_id)
            return True
        return False

    def _replace(self, job: Job, task: asyncio.Task[Result]) -> None:
        job.cancelled = True
        self._starts.forget(job)
        task.cancel()
        del self._running[job.assign.job_id]
        self._replaced.add(task)

    def _start(self, message: JobAssign) -> None:
        self.stats.jobs += 1
        stream = self.streams.take(message.stream_id)
        job = Job(message, self.node_id, self._starts.send, stream)
        task = asyncio.create_task(self._handler(job))
        self._running[message.job_id] = (job, task)
        task.add_done_callback(partial(self._ended, job))
        if self._acks:
            self._starts.begin(job)

    def _report_started(self, job: Job) -> None:
        # No `job_ack` before it: a job never waits here; beyond `max_jobs` it is refused.
        assign = job.assign
        self._outbox.send(
            JobStarted(
                job_id=assign.job_id,
                attempt_id=assign.attempt_id,
                node_id=self.node_id,
                session_id=assign.session_id,
                trace_id=assign.trace_id,
                running_ms=round(job.running_ms),
            )
        )

    def _ended(self, job: Job, task: asyncio.Task[Result]) -> None:
        self.streams.give_back(job.stream)
        error = None if task.cancelled() else task.exception()
        if task in self._replaced:
            self._replaced.discard(task)
        else:
            del self._running[job.assign.job_id]
            # Before the result: nothing may say afterwards that the attempt runs.
            self._starts.forget(job)
            self._report(job, task, error)
        self._report_change()

    def _report(self, job: Job, task: asyncio.Task[Result], error: BaseException | None) -> None:
        assign = job.assign
        if job.cancelled:
            self.stats.cancelled += 1
            self._outbox.send(JobCancelAck(job_id=assign.job_id, attempt_id=assign.attempt_id))
        elif isinstance(error, JobFailed):
            self._fail(assign, error)
        elif error is not None:
            _logger.error("the handler failed on job %s", assign.job_id, exc_info=error)
            self._fail(assign, JobFailed("INTERNAL_ERROR", "the node's handler failed"))
        elif task.cancelled():
            self._fail(assign, JobFailed("INTERNAL_ERROR", "the node's handler gave up"))
        else:
            self._succeed(job, task.result())

    def _succeed(self, job: Job, result: Result) -> None:
        if not isinstance(result, Result):
            _logger.error("the handler returned %s, not a Result", type(result).__name__)
            self._fail(job.assign, JobFailed("INTERNAL_ERROR", "the node's handler gave no result"))
            return
        try:
            self._results.add(result.as_message(job, self.node_id))
        except UNSENDABLE:
            _logger.exception("the result of job %s cannot be sent", job.job_id)
            self._fail(job.assign, JobFailed("INTERNAL_ERROR", "the result cannot be sent"))
        else:
            self.stats.succeeded += 1

    def _refuse(self, assign: JobAssign, code: str, reason: str) -> None:
        self.stats.refused += 1
        self._fail(assign, JobFailed(code, reason))

    def _fail(self, assign: JobAssign, failed: JobFailed) -> None:
        self.stats.failed += 1
        try:
            self._results.add(failure_message(assign, self.node_id, failed))
        except UNSENDABLE:
            _logger.exception("the details of %s cannot be sent", failed.code)
            plain = JobFailed(str(failed.code), str(failed.message))
            self._results.add(failure_message(assign, self.node_id, plain))

    def _report_change(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
