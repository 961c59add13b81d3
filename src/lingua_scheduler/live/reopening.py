"""A session whose store lost its memory, or part of it: it goes on where its instance stands.

The store is told again of the session, of every job without an outcome, and of those that
listeners heard a moment ago; whatever it knows already is a repetition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.live.assembly import spec_for_readers, spec_of_owner
from lingua_scheduler.state.records import AS_SPOKEN
from lingua_scheduler.state.reply import ADMITTED, Reply

if TYPE_CHECKING:
    from lingua_scheduler.live.admission import Admission
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.session import LiveSession


class Reopening:
    """Brings one session back into the store."""

    def __init__(self, session: LiveSession, admission: Admission, board: JobBoard) -> None:
        self._session = session
        self._admission = admission
        self._board = board
        # One at a time finds out where the store stands.
        self._lock = asyncio.Lock()

    async def reopen(self, *, restart: bool = False) -> None:
        """The store forgot the session, or part of it: go on where we stand.

        With `restart` it went back behind what was delivered: positions start over.
        """
        board, session = self._board, self._session
        epoch_before = session.epoch
        async with self._lock:
            if session.lapsed or session.epoch != epoch_before:
                return  # somebody was quicker
            reply, epoch, _ = await board.insist(lambda: session.open_in_store(restart=restart))
            if reply is Reply.FENCED:
                session.drop()
                return
            if epoch == epoch_before:
                return
            session.new_epoch(epoch)
        if reply is not Reply.OPENED:
            await self._fill_delivered()
            self._submit_passed()
            return
        self._admission.forget_lanes()
        # In order, so that the first one of each lane tells where the lane begins.
        for job in board.passed_of(session):
            self._begin_again(job)
            board.tasks.start(self._enter_passed(job))
        for job in board.jobs_of(session):
            self._begin_again(job)
            if not job.entering:
                board.tasks.start(self._admission.enter(job))

    def _begin_again(self, job: LiveJob) -> None:
        job.spec = self._admission.in_lane(spec_of_owner(job.spec, self._session.fence))
        if job.spec.readers:
            readers_from = self._admission.unheard_before(AS_SPOKEN, job.spec.index)
            job.spec = spec_for_readers(job.spec, readers_from)
        job.attempt, job.node = 0, ""

    async def _fill_delivered(self) -> None:
        """Places whose outcomes are out already, and which the store forgot, are not waited for."""
        board, session = self._board, self._session
        again = {(job.spec.lane, job.spec.index) for job in board.passed_of(session)}
        for lane, last in session.deliverer.done.items():
            reply, index = Reply.SETTLED, last
            while reply is not Reply.INDEX_RELEASED and index >= 0:
                if (lane, index) not in again:
                    reply = await self._fill(lane, index)
                index -= 1

    async def _fill(self, lane: str, index: int) -> Reply:
        board, session = self._board, self._session
        answer, work = await board.insist(
            lambda: board.dispatcher.fill(
                session.home, session.id, lane, index=index, fence=session.fence
            )
        )
        board.perform(work)
        return answer.reply

    def submit_again(self) -> None:
        """The store may have lost what it confirmed last: whatever it knows already is a repeat."""
        board, session = self._board, self._session
        self._submit_passed()
        for job in board.jobs_of(session):
            if not job.entering:
                job.spec = spec_of_owner(job.spec, session.fence)
                board.tasks.start(self._admission.enter(job))

    def _submit_passed(self) -> None:
        board, fence = self._board, self._session.fence
        for job in board.passed_of(self._session):
            job.spec = spec_of_owner(job.spec, fence)
            board.tasks.start(self._enter_passed(job))

    async def _enter_passed(self, job: LiveJob) -> None:
        """Listeners heard it a moment ago: if the store forgot that, some of them may not have."""
        board = self._board
        if job.id in board.jobs:
            return
        answer = await board.submit(job)
        is_over = answer.reply is Reply.DUPLICATE and answer.state == "RELEASED"
        if (is_over or answer.reply not in ADMITTED) and board.jobs.get(job.id) is job:
            del board.jobs[job.id]
