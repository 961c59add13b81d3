"""The jobs of one node: starting, cancelling, reporting them, whatever the connection does.

A `Worker` knows no socket: it is told the scheduler's messages and sends through `Outlet`. Jobs go
on while there is no connection. A result is kept until the scheduler has acknowledged it and sent
again after every reconnect; what is kept is bounded, because an older scheduler never acknowledges.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lingua_scheduler.messages.codec import encode_msgpack
from lingua_scheduler.messages.from_node import (
    FromNode,
    JobAck,
    JobCancelAck,
    JobResult,
    JobStarted,
)
from lingua_scheduler.messages.shared import RunningJob
from lingua_scheduler.node.job import Handler, Job, JobFailed, Result, failure_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.messages.to_node import JobAssign, JobCancel, JobResultAck

KEPT_MAX: Final = 512
KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
# After this no scheduler waits for the result any more.
KEPT_S: Final = 120.0
# A result that closes the connection each time (too big for the scheduler) must not do so forever.
SENDS_MAX: Final = 5
RUNNING_LISTED_MAX: Final = 2000
# What msgspec raises for values that no message can carry.
UNSENDABLE: Final = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_logger = logging.getLogger(__name__)


class Outlet(Protocol):
    """Where messages go: told whether the scheduler listens now."""

    def send(self, message: FromNode) -> None:
        """Send if there is a connection on which the node is registered, else do nothing."""

    @property
    def is_open(self) -> bool:
        """Tell whether there is one."""


class Stats:
    """What a node has done so far."""

    __slots__ = (
        "cancelled", "duplicates", "failed", "jobs", "lost_results", "reconnects", "refused",
        "resent", "succeeded",
    )  # fmt: skip

    def __init__(self) -> None:
        # Jobs started, and how they ended here.
        self.jobs = 0
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        # Jobs beyond `max_jobs`, or that came while the node drains.
        self.refused = 0
        # Assignments that were running or done already, or older than what is known.
        self.duplicates = 0
        # Results sent once more, and those given up unacknowledged.
        self.resent = 0
        self.lost_results = 0
        # Registrations after the first.
        self.reconnects = 0


class Kept:
    """A result that is not acknowledged yet."""

    __slots__ = ("at", "result", "sends")

    def __init__(self, result: JobResult) -> None:
        self.result = result
        # When the job ended, by `monotonic`.
        self.at = monotonic()
        # How often it was sent.
        self.sends = 0

    @property
    def bytes(self) -> int:
        """Return about how much memory it takes."""
        return len(self.result.tts_audio or b"")


class Worker:
    """Runs the handler for every job, one task each."""

    def __init__(self, handler: Handler, outlet: Outlet, *, max_jobs: int, acks: bool) -> None:
        self.stats = Stats()
        # As the scheduler knows this node.
        self.node_id = ""
        self._handler = handler
        self._outlet = outlet
        self._max_jobs = max_jobs
        self._acks = acks
        # Why no new jobs are taken, or None while they are.
        self._closed_for: str | None = None
        # Job id -> the job being worked on and its task.
        self._running: dict[str, tuple[Job, asyncio.Task[Result]]] = {}
        # Tasks of replaced attempts that have not ended yet.
        self._replaced: set[asyncio.Task[Result]] = set()
        # Job id -> unacknowledged result, oldest first.
        self._kept: dict[str, Kept] = {}
        self._kept_bytes = 0
        # Somebody waits for jobs to end or results to be acknowledged.
        self._change: asyncio.Future[None] | None = None

    @property
    def running_count(self) -> int:
        """Return how many jobs are being worked on."""
        return len(self._running)

    @property
    def unacknowledged_count(self) -> int:
        """Return how many results are kept."""
        return len(self._kept)

    def running(self) -> tuple[RunningJob, ...]:
        """Return the jobs being worked on, as a heartbeat lists them."""
        return tuple(
            RunningJob(job_id=job.assign.job_id, attempt_id=job.assign.attempt_id)
            for job, _ in self._running.values()
        )

    def held(self) -> tuple[RunningJob, ...]:
        """Return the running jobs and those whose results come next, as a registration lists them.

        A job that is done but unacknowledged would otherwise look lost until its result is read.
        """
        done = (
            RunningJob(job_id=kept.result.job_id, attempt_id=kept.result.attempt_id)
            for kept in self._kept.values()
            if kept.result.job_id not in self._running
        )
        return (*self.running(), *done)[:RUNNING_LISTED_MAX]

    def assign(self, message: JobAssign) -> None:
        """Start a job, or say why not."""
        if not self._is_news(message):
            self.stats.duplicates += 1
            return
        if self._closed_for is not None:
            self._refuse(message, "NODE_UNAVAILABLE", self._closed_for)
        elif len(self._running) >= self._max_jobs:
            self._refuse(message, "NODE_OVERLOADED", f"{self._max_jobs} jobs are running")
        else:
            self._start(message)

    def refuse_new(self, reason: str) -> None:
        """Start nothing any more; what runs goes on."""
        self._closed_for = reason

    def cancel(self, message: JobCancel) -> None:
        """Stop a job; the acknowledgement follows when its handler has really ended."""
        job, task = self._running.get(message.job_id, (None, None))
        if job is None or task is None or message.attempt_id not in {None, job.assign.attempt_id}:
            attempt_id = message.attempt_id or 0
            unknown = JobCancelAck(job_id=message.job_id, attempt_id=attempt_id, stopped=False)
            self._outlet.send(unknown)
            return
        job.cancelled = True
        task.cancel()

    def acknowledged(self, message: JobResultAck) -> None:
        """Forget a result that the scheduler has."""
        kept = self._kept.get(message.job_id)
        if kept is not None and kept.result.attempt_id == message.attempt_id:
            self._forget(message.job_id)
            self._changed()

    def resend(self) -> None:
        """Send every kept result, on a new connection."""
        oldest = monotonic() - KEPT_S
        for job_id, kept in tuple(self._kept.items()):
            if kept.at < oldest or kept.sends >= SENDS_MAX:
                self._give_up(job_id)
                continue
            self.stats.resent += 1 if kept.sends else 0
            self._send_kept(kept)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that the end of a job or an acknowledgement can bring."""
        while not condition():
            self._change = asyncio.get_running_loop().create_future()
            await self._change

    async def stop(self) -> None:
        """Cancel what runs, unreported, and wait for it."""
        tasks = [*(task for _, task in self._running.values()), *self._replaced]
        for job, _ in self._running.values():
            job.cancelled = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _is_news(self, message: JobAssign) -> bool:
        """Tell whether an attempt is to be started; a newer one ends what is left of an older."""
        running = self._running.get(message.job_id)
        if running is not None:
            job, task = running
            if message.attempt_id > job.assign.attempt_id:
                self._replace(job, task)
            else:
                if message.attempt_id == job.assign.attempt_id and not job.cancelled:
                    # The instance that asks did not hear it, or is another one than then.
                    self._tell_accepted(message)
                return False
        kept = self._kept.get(message.job_id)
        if kept is None:
            return True
        if message.attempt_id == kept.result.attempt_id:
            self.stats.resent += 1
            self._send_kept(kept)
        elif message.attempt_id > kept.result.attempt_id:
            self._forget(message.job_id)
            return True
        return False

    def _replace(self, job: Job, task: asyncio.Task[Result]) -> None:
        job.cancelled = True
        task.cancel()
        del self._running[job.assign.job_id]
        self._replaced.add(task)

    def _start(self, message: JobAssign) -> None:
        self.stats.jobs += 1
        self._tell_accepted(message)
        job = Job(message, self.node_id, self._outlet.send)
        task = asyncio.create_task(self._handler(job))
        self._running[message.job_id] = (job, task)
        task.add_done_callback(partial(self._ended, job))

    def _tell_accepted(self, message: JobAssign) -> None:
        # Both at once: a job never waits here, beyond `max_jobs` it is refused.
        for kind in (JobAck, JobStarted) if self._acks else ():
            self._outlet.send(
                kind(
                    job_id=message.job_id,
                    attempt_id=message.attempt_id,
                    node_id=self.node_id,
                    session_id=message.session_id,
                    trace_id=message.trace_id,
                )
            )

    def _ended(self, job: Job, task: asyncio.Task[Result]) -> None:
        error = None if task.cancelled() else task.exception()
        if task in self._replaced:
            self._replaced.discard(task)
        else:
            del self._running[job.assign.job_id]
            self._report(job, task, error)
        self._changed()

    def _report(self, job: Job, task: asyncio.Task[Result], error: BaseException | None) -> None:
        assign = job.assign
        if job.cancelled:
            self.stats.cancelled += 1
            self._outlet.send(JobCancelAck(job_id=assign.job_id, attempt_id=assign.attempt_id))
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
            self._keep(result.as_message(job, self.node_id))
        except UNSENDABLE:
            _logger.exception("the result of job %s cannot be sent", job.job_id)
            self._fail(job.assign, JobFailed("INTERNAL_ERROR", "the result cannot be sent"))
        else:
            self.stats.succeeded += 1

    def _refuse(self, assign: JobAssign, code: str, why: str) -> None:
        self.stats.refused += 1
        self._fail(assign, JobFailed(code, why))

    def _fail(self, assign: JobAssign, failed: JobFailed) -> None:
        self.stats.failed += 1
        try:
            self._keep(failure_message(assign, self.node_id, failed))
        except UNSENDABLE:
            _logger.exception("the details of %s cannot be sent", failed.code)
            plain = JobFailed(str(failed.code), str(failed.message))
            self._keep(failure_message(assign, self.node_id, plain))

    def _keep(self, result: JobResult) -> None:
        """Send a result if that is possible now, and keep it for when it must be sent again."""
        kept = Kept(result)
        self._send_kept(kept)
        self._kept[result.job_id] = kept
        self._kept_bytes += kept.bytes
        while len(self._kept) > KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._give_up(next(iter(self._kept)))

    def _send_kept(self, kept: Kept) -> None:
        if self._outlet.is_open:
            kept.sends += 1
            self._outlet.send(kept.result)
        else:
            # Only to learn now whether it can be sent at all.
            encode_msgpack(kept.result)

    def _forget(self, job_id: str) -> None:
        self._kept_bytes -= self._kept.pop(job_id).bytes

    def _give_up(self, job_id: str) -> None:
        self.stats.lost_results += 1
        self._forget(job_id)

    def _changed(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)
