"""Letters of other instances and what each of them does here.

Every letter is a nudge to look at the store, so that applying one twice, late or in another place
than it was sent to is harmless. A letter of a dead instance's inbox is applied by whoever adopts
it: what it asks for is done where its node or its session is now.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lingua_scheduler.between.letters import (
    Outcomes,
    Partial,
    Progress,
    Push,
    Relay,
    Resend,
    RoomChanged,
    Said,
    Stop,
    Taken,
    Trouble,
    Undeliverable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lingua_scheduler.between.letters import Envelope, Letter
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.hall import Hall
    from lingua_scheduler.live.job import LiveJob


# One letter must not hold up those behind it.
APPLY_S = 5.0


class Mail:
    """Applies letters on one instance."""

    def __init__(self, board: JobBoard, hall: Hall) -> None:
        self._board = board
        self._hall = hall
        # What needs the store, and what does not.
        self._slow: dict[type, Callable[[Any], Coroutine[Any, Any, None]]] = {
            Push: self._push,
            Outcomes: self._outcomes,
            RoomChanged: self._room_changed,
        }
        self._quick: dict[type, Callable[[Any], None]] = {
            Stop: self._stop,
            Resend: self._resend,
            Progress: self._progress,
            Partial: self._partial,
            Trouble: self._trouble,
            Taken: self._taken,
            Relay: self._relay,
            Said: self._board.hearing.told,
        }

    async def apply(self, envelope: Envelope) -> None:
        """Do what a letter asks for; it is acknowledged when this returns."""
        letter = envelope.letter
        quick = self._quick.get(type(letter))
        if quick is not None:
            quick(letter)
            return
        try:
            async with asyncio.timeout(APPLY_S):
                await self._slow[type(letter)](letter)
        except TimeoutError:
            raise Undeliverable("too_slow") from None

    def take(self, letter: Letter) -> None:
        """Take a letter to ourselves."""
        quick = self._quick.get(type(letter))
        if quick is not None:
            quick(letter)
        else:
            self._board.tasks.start(self._slow[type(letter)](letter))

    async def apply_adopted(self, envelope: Envelope) -> None:
        """Do what a dead instance was asked for, where that can be done now."""
        letter = envelope.letter
        if isinstance(letter, Push):
            await self._push(letter)
        elif isinstance(letter, Stop):
            host = await self._board.host_of(letter.node)
            if host and host != self._board.instance:
                await self._board.post.send(host, letter)
            elif host:
                self._stop(letter)
        # Everything else was for a client's socket that died with the instance: whoever owns the
        # session now reads its outbox by itself.

    # To a node's instance

    async def _push(self, letter: Push) -> None:
        await self._board.workshop.take_push(letter)

    def _stop(self, letter: Stop) -> None:
        self._board.workshop.forget(letter.job, letter.node)
        node = self._board.nodes.get(letter.node)
        if node is not None:
            node.cancel(letter.job, letter.attempt, letter.reason)

    # To a session's owner

    def _job_of(self, letter: Progress | Partial | Trouble | Resend) -> LiveJob | None:
        return self._board.jobs.get(letter.job)

    def _resend(self, letter: Resend) -> None:
        board, job = self._board, self._job_of(letter)
        if job is None:
            board.tasks.start(board.audio_lost(letter))
            return
        push = Push(
            letter.job, letter.attempt, letter.node, letter.home,
            body=job.body(), audio=job.audio,
        )  # fmt: skip
        board.write(letter.host, push)

    def _progress(self, letter: Progress) -> None:
        job = self._job_of(letter)
        if job is None or letter.attempt < job.attempt:
            return
        job.attempt, job.node = letter.attempt, letter.node
        if letter.step == "kept":
            job.is_kept = True
        elif not job.marks.accepted or job.marks.accepted < job.marks.push:
            job.marks.accepted = self._board.clock.now_ms()
            job.session.teller.event(job, "NODE_ACCEPTED")
        if letter.step == "running":
            job.state = "processing"

    def _partial(self, letter: Partial) -> None:
        job = self._job_of(letter)
        if job is not None and letter.attempt >= job.attempt:
            job.session.teller.partial(job, letter.text, is_final=letter.is_final)

    def _trouble(self, letter: Trouble) -> None:
        job = self._job_of(letter)
        if job is not None:
            job.session.teller.failed(job, letter.code)

    async def _outcomes(self, letter: Outcomes) -> None:
        session = self._board.sessions.get(letter.session)
        if session is None or letter.epoch != session.epoch:
            return
        now = self._board.clock.now_ms()
        for span in letter.spans:
            job = self._board.jobs.get(span.job)
            if job is not None and not job.marks.settled:
                job.marks.take_span(span.accepted_ms, span.result_ms, now)
                job.session.teller.event(job, "ASR_FINAL")
                job.session.teller.event(job, "NMT_DONE")
        if letter.seq > session.deliverer.seq:
            await session.recover()

    def _taken(self, letter: Taken) -> None:
        session = self._board.sessions.get(letter.session)
        if session is not None and session.fence < letter.fence:
            session.drop()

    # Rooms

    async def _room_changed(self, letter: RoomChanged) -> None:
        await self._hall.room_changed(letter.code)

    def _relay(self, letter: Relay) -> None:
        self._hall.relayed(letter.session, letter.message)
