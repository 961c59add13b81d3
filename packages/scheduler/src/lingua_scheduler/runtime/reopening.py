"""Restores a session in a store that lost it, or part of it, from what its instance knows.

The session, every job without an outcome, and jobs that listeners received a moment ago are written
to the store again. Writing what it already has changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.runtime.job_builder import spec_for_readers, spec_of_owner
from lingua_scheduler.state.records import AS_SPOKEN
from lingua_scheduler.state.reply import ADMITTED, Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any

    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_submitter import JobSubmitter
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.session_state import SessionRecord
    from lingua_scheduler.runtime.utterance_indices import UtteranceIndices
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.tasks import Tasks


@dataclass(slots=True, kw_only=True, eq=False)
class Reopening:
    """Brings one session back into the store."""

    record: SessionRecord
    indices: UtteranceIndices
    jobs: JobTable
    submitter: JobSubmitter
    dispatcher: Dispatcher
    effects: Effects
    retry: StoreRetry
    tasks: Tasks
    # How the session is opened in the store, restarted there, submits a job, and is given up.
    open_in_store: Callable[[bool], Awaitable[tuple[Reply, str, int]]]
    start_epoch: Callable[[str], None]
    enter: Callable[[LiveJob], Coroutine[Any, Any, object]]
    give_up: Callable[[], None]
    # Lane -> the last index delivered.
    delivered: Callable[[], dict[str, int]]
    # One task at a time finds out what the store has.
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def reopen(self, *, restart: bool = False) -> None:
        """Restore the session from here: the store lost it, or part of it.

        With `restart` the store has less than was delivered: positions start over.
        """
        record = self.record
        epoch_before = record.epoch
        async with self.lock:
            if record.is_over or record.epoch != epoch_before:
                return  # another task was quicker
            reply, epoch, _ = await self.retry.until_stored(lambda: self.open_in_store(restart))
            if reply is Reply.FENCED:
                self.give_up()
                return
            if epoch == epoch_before:
                return
            self.start_epoch(epoch)
        if reply is not Reply.OPENED:
            await self._fill_delivered()
            self._submit_passed()
            return
        self.indices.forget_lanes()
        # In order, so that the first job of each lane defines where the lane begins.
        for job in self.jobs.passed_of(record.id):
            self._restart(job)
            self.tasks.start(self._enter_passed(job))
        for job in self.jobs.of(record.id):
            self._restart(job)
            if not job.is_entering:
                self.tasks.start(self.enter(job))

    def _restart(self, job: LiveJob) -> None:
        spec = self.indices.in_lane(spec_of_owner(job.spec, self.record.fence))
        if spec.readers:
            readers_from = self.indices.unheard_before(AS_SPOKEN, spec.index)
            spec = spec_for_readers(spec, readers_from)
        job.with_spec(spec).run.restart()

    async def _fill_delivered(self) -> None:
        """Fill places whose outcomes are delivered and which the store lost."""
        passed = self.jobs.passed_of(self.record.id)
        again = {(job.spec.lane, job.spec.index) for job in passed}
        for lane, last in self.delivered().items():
            reply, index = Reply.SETTLED, last
            while reply is not Reply.INDEX_RELEASED and index >= 0:
                if (lane, index) not in again:
                    reply = await self._fill(lane, index)
                index -= 1

    async def _fill(self, lane: str, index: int) -> Reply:
        record = self.record
        answer, work = await self.retry.until_stored(
            lambda: self.dispatcher.fill(
                record.home, record.id, lane, index=index, fence=record.fence
            )
        )
        self.effects.perform(work)
        return answer.reply

    def submit_again(self) -> None:
        """Submit all jobs again: the store may have lost what it confirmed last."""
        record = self.record
        self._submit_passed()
        for job in self.jobs.of(record.id):
            if not job.is_entering:
                job.with_spec(spec_of_owner(job.spec, record.fence))
                self.tasks.start(self.enter(job))

    def _submit_passed(self) -> None:
        record = self.record
        for job in self.jobs.passed_of(record.id):
            job.with_spec(spec_of_owner(job.spec, record.fence))
            self.tasks.start(self._enter_passed(job))

    async def _enter_passed(self, job: LiveJob) -> None:
        """Submit a job that listeners received lately: the store may have lost its outcome."""
        if job.id in self.jobs:
            return
        answer = await self.submitter.submit(job)
        is_over = answer.reply is Reply.DUPLICATE and answer.state == "RELEASED"
        if is_over or answer.reply not in ADMITTED:
            self.jobs.remove(job)
