"""The room of a session: asked for, remembered, and entered again by a session that starts over.

One question at a time. A question whose connection was lost is asked again on the next one; that a
session is in the room already is then the answer hoped for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.client.events import RoomRefused
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import RoomCreate, RoomJoin, RoomLeave
from lingua_scheduler.messages.to_client import (
    RoomCreateAck,
    RoomError,
    RoomExpired,
    RoomMembers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.errors import LinguaError
    from lingua_scheduler.messages.from_client import FromClient
    from lingua_scheduler.messages.to_client import ToClient


class Rooms:
    """What a session asks about rooms, and the room it is in."""

    def __init__(self, send: Callable[[FromClient], None]) -> None:
        # Sends if there is a connection.
        self._send = send
        # How to enter the room again that the session is in.
        self._entry: RoomJoin | None = None
        self._turn = asyncio.Lock()
        self._question: RoomCreate | RoomJoin | None = None
        self._answer: asyncio.Future[str] | None = None
        # The question was asked before, on a connection that was lost.
        self._is_repeated = False

    @property
    def code(self) -> str:
        """Return the code of the room; empty outside of rooms."""
        return self._entry.room_code if self._entry is not None else ""

    @property
    def _expected(self) -> tuple[type[RoomCreateAck | RoomMembers], ...]:
        """Return what answers the question that is asked."""
        if self._question is None:
            return ()
        return (RoomCreateAck if isinstance(self._question, RoomCreate) else RoomMembers,)

    async def create(self, question: RoomCreate) -> str:
        """Make a room and return its code."""
        return await self._ask(question)

    async def join(self, question: RoomJoin) -> None:
        """Join a room."""
        await self._ask(question)

    def leave(self) -> None:
        """Leave the room, if there is one; there is no answer."""
        if self._entry is not None:
            self._send(RoomLeave(room_code=self._entry.room_code))
            self._entry = None

    def connected(self, *, is_other_session: bool) -> None:
        """There is a connection: ask again, and let a new session into the old one's room."""
        if self._question is not None:
            self._is_repeated = not is_other_session
            self._send(self._question)
        elif is_other_session and self._entry is not None:
            self._send(self._entry)

    def take(self, message: ToClient) -> None:
        """Look at a message for an answer, and at the end of the room."""
        if isinstance(message, RoomExpired):
            self._entry = None
        elif isinstance(message, RoomError):
            self._refused(message)
        elif isinstance(message, self._expected):
            self._entered(message.room_code)

    def end(self, error: LinguaError) -> None:
        """The session has ended: nothing will be answered."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    async def _ask(self, question: RoomCreate | RoomJoin) -> str:
        async with self._turn:
            self._question = question
            self._is_repeated = False
            self._answer = asyncio.get_running_loop().create_future()
            self._send(question)
            try:
                return await self._answer
            finally:
                self._question = self._answer = None

    def _entered(self, code: str) -> None:
        question = self._question
        assert question is not None
        if self._answer is None or self._answer.done():
            return
        if isinstance(question, RoomJoin) and question.room_code != code:
            return
        self._entry = RoomJoin(
            room_code=code,
            display_name=question.display_name,
            preferred_lang=question.preferred_lang,
        )
        self._answer.set_result(code)

    def _refused(self, error: RoomError) -> None:
        if self._answer is None or self._answer.done():
            return
        question = self._question
        is_in = error.code == ErrorCode.ALREADY_IN_ROOM and self._is_repeated
        if is_in and isinstance(question, RoomJoin):
            self._entered(question.room_code)
        else:
            self._answer.set_exception(RoomRefused(error.code, error.message or ""))
