"""The jobs of an utterance on their way into the store, until it takes or refuses each for good.

All languages of an utterance go in one step, so that none is there without the others, and a piece
of the stream after the one before it: a client forgets what comes before the last one that was
taken, so that what was overtaken would be nobody's. What refuses for now (a full outbox, a store
that forgot the session, an earlier piece that is not in) is mended or waited for here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.live.assembly import spec_of_owner
from lingua_scheduler.state.records import Submitted
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Awaitable, Callable, Mapping

    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.piece import Piece, StreamEnd
    from lingua_scheduler.live.requests import Requests
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.state.script import Word

# Refusals that pass by themselves: the utterance waits here and is submitted again.
PASSING = frozenset({Reply.IN_FLIGHT_LIMIT, Reply.OUTBOX_FULL})
LOST = frozenset({Reply.NO_SESSION, Reply.SESSION_CLOSED})
# Whatever is done about them, the utterance is submitted again.
AGAIN = PASSING | LOST | {Reply.FENCED, Reply.TOO_EARLY}
AGAIN_S = 0.1


class Submission:
    """Brings the jobs of one session into the store."""

    def __init__(
        self,
        session: LiveSession,
        board: JobBoard,
        requests: Requests,
        reopen: Callable[[], Awaitable[None]],
        untold: deque[Piece],
    ) -> None:
        self._session = session
        self._board = board
        self._requests = requests
        self._reopen = reopen
        # Pieces of the stream, in order, that the client was not told of yet.
        self._untold = untold
        # Jobs whose admission the store has not confirmed yet.
        self.entering = 0

    async def insist(self, jobs: list[LiveJob]) -> list[Submitted]:
        """Submit the jobs of an utterance until the store takes or refuses each for good."""
        self._note_entering(jobs, is_entering=True)
        try:
            answers = await self._ask_first(jobs)
            while not self._session.lapsed:
                again = [at for at, answer in enumerate(answers) if answer.reply in AGAIN]
                if not again:
                    break
                refused = [jobs[at] for at in again]
                await self._mend(refused, answers[again[0]].reply)
                repeated = await self._board.submit_all(refused)
                for at, answer in zip(again, repeated, strict=True):
                    answers[at] = answer
            return answers
        finally:
            self._note_entering(jobs, is_entering=False)

    async def _ask_first(self, jobs: list[LiveJob]) -> list[Submitted]:
        if not (self._requests.is_spread and jobs[0].spec.sound):
            return await self._board.submit_all(jobs)
        return [await self._claim(job) for job in jobs]

    async def _claim(self, job: LiveJob) -> Submitted:
        """Submit a job of a named request, unless another cell has it."""
        found = await self._requests.elsewhere(job)
        if found is not None:
            return Submitted(Reply.DUPLICATE, state=found.state, known=found.spec)
        return await self._board.submit(job)

    async def _mend(self, jobs: list[LiveJob], reply: Reply) -> None:
        """Do what may let the store take jobs that it has refused for now."""
        board, session, first = self._board, self._session, jobs[0]
        if reply in PASSING:
            await board.insist(session.deliverer.trim)
            await asyncio.sleep(AGAIN_S)
        elif reply is Reply.TOO_EARLY:
            await self.wait_for_turn(first.spec.index, first.before)
        elif reply in LOST or first.spec.fence == session.fence:
            # Another is its owner, or the store forgot that we are: the higher number counts.
            await self._reopen()
        # Else the client came back to us meanwhile: we are its owner, by a later number.
        for job in jobs:
            job.spec = spec_of_owner(job.spec, session.fence)

    async def wait_for_turn(self, index: int, before: StreamEnd) -> None:
        """Let those that were said before go first; if none is left, the store forgot the last."""
        if self._is_behind(index):
            await asyncio.sleep(AGAIN_S)
            return
        await self.note(
            {"heard": before.seq, "heard_ms": before.end_ms, "speech": before.speech_ms}
        )

    def _is_behind(self, index: int) -> bool:
        """Tell whether anything that was said before is on its way to the store."""
        if self._untold and self._untold[0].index < index:
            return True
        jobs = self._board.jobs_of(self._session)
        return any(job.entering and job.spec.index < index for job in jobs)

    async def note(self, fields: Mapping[str, Word], heard_after: int = -1) -> Reply:
        """Note in the store what a later owner needs."""
        board, session = self._board, self._session
        return await board.insist(
            lambda: board.store.session_note(
                session.home, session.id, session.fence, fields, heard_after=heard_after
            )
        )

    def _note_entering(self, jobs: list[LiveJob], *, is_entering: bool) -> None:
        self.entering += len(jobs) if is_entering else -len(jobs)
        for job in jobs:
            job.entering = is_entering
