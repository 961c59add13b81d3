"""The room of a session: asked for, remembered, and entered again by a session that starts over.

One question at a time. A question whose connection was lost is asked again on the next one; that a
session is in the room already is then the answer hoped for, if it is this room. If it is still in
one that it left, the server has not heard of that: it is told, and asked once more. Who enters the
room again that it left may still be told of its former stay there, which is no answer: a stay is
known by when it began (`joined_at`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.client.events import RoomRefused
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.from_client import RoomCreate, RoomJoin, RoomLeave
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
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


# When to ask again if the server does not say.
AGAIN_MS = 500


class Rooms:
    """What a session asks about rooms, and the room it is in."""

    def __init__(self, send: Callable[[FromClient], None], own_session: Callable[[], str]) -> None:
        # Sends if there is a connection.
        self._send = send
        self._own_session = own_session
        # How to enter the room again that the session is in.
        self._entry: RoomJoin | None = None
        # The room it left last: the server may not have heard of it, and there is no answer.
        self._left = ""
        # Since when it is in its room, and since when it had been in the one it left; 0: not known.
        self._stay = self._left_stay = 0
        self._turn = asyncio.Lock()
        self._question: RoomCreate | RoomJoin | None = None
        self._answer: asyncio.Future[str] | None = None
        # The question was asked before, on a connection that was lost or of a store that was away.
        self._is_repeated = False
        self._again: asyncio.TimerHandle | None = None

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
            self._left, self._left_stay = self._entry.room_code, self._stay
            self._send(RoomLeave(room_code=self._left))
            self._entry = None
            self._stay = 0

    def connected(self, *, is_other_session: bool) -> None:
        """There is a connection: ask again, and let a new session into the old one's room.

        Before any audio, which is for whoever is there then.
        """
        if not is_other_session:
            self._leave_again()
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
        elif isinstance(message, ErrorMessage):
            self._not_now(message)
        elif isinstance(message, self._expected):
            self._entered(message.room_code, self._stay_in(message))
        elif isinstance(message, RoomMembers) and message.room_code == self.code:
            self._stay = self._stay_in(message) or self._stay

    def _stay_in(self, message: RoomCreateAck | RoomMembers) -> int:
        """Return since when the session is in a room, as its list of members says."""
        own = self._own_session()
        members = message.members if isinstance(message, RoomMembers) else ()
        return next((one.joined_at for one in members if one.session_id == own), 0)

    def _leave_again(self) -> None:
        """Say once more that the session left, unless it is about to enter the same room again.

        It may be in again already, and the server have died before it said so. If it is still in
        from before, that is said when it asks to enter.
        """
        wanted = self._question.room_code if isinstance(self._question, RoomJoin) else self.code
        if self._left and self._left != wanted:
            self._send(RoomLeave(room_code=self._left))

    def _not_now(self, error: ErrorMessage) -> None:
        """The store was away, perhaps for our question: ask once more when it may be back."""
        is_away = error.code == ErrorCode.SCHEDULER_DEPENDENCY_DOWN
        if is_away and (self._question is not None or self._left) and self._again is None:
            loop = asyncio.get_running_loop()
            wait_ms = error.retry_after_ms or AGAIN_MS
            self._again = loop.call_later(wait_ms / 1000, self._ask_again)

    def _ask_again(self) -> None:
        self._again = None
        # First of all: who is still in the former room cannot be in another.
        self._leave_again()
        self._repeat()

    def _repeat(self) -> None:
        if self._question is not None and self._answer is not None and not self._answer.done():
            self._is_repeated = True
            self._send(self._question)

    def end(self, error: LinguaError) -> None:
        """The session has ended: nothing will be answered."""
        if self._again is not None:
            self._again.cancel()
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

    def _entered(self, code: str, stay: int = 0) -> None:
        question = self._question
        assert question is not None
        if self._answer is None or self._answer.done():
            return
        if isinstance(question, RoomJoin) and question.room_code != code:
            return
        if code == self._left and self._left_stay and stay == self._left_stay:
            return  # as it was before it left
        self._left, self._stay = "", stay
        self._entry = RoomJoin(
            room_code=code,
            display_name=question.display_name,
            preferred_lang=question.preferred_lang,
        )
        self._answer.set_result(code)

    def _refused(self, error: RoomError) -> None:
        if error.code == ErrorCode.NOT_IN_ROOM:
            self._left = ""  # it had heard of it
            return
        if self._answer is None or self._answer.done():
            return
        if error.code == ErrorCode.ALREADY_IN_ROOM and self._entry is None:
            if error.room_code and error.room_code == self._left:
                self._send(RoomLeave(room_code=self._left))
                self._repeat()
                return
            if self._is_repeated and (room := self._room_of(error)):
                self._entered(room)
                return
        self._answer.set_exception(RoomRefused(error.code, error.message or ""))

    def _room_of(self, error: RoomError) -> str:
        """Return the room that a repeated question has led into; empty if it led to none."""
        if isinstance(self._question, RoomJoin):
            # Older servers do not say which room it is.
            wanted = self._question.room_code
            return wanted if error.room_code in (None, wanted) else ""
        return error.room_code or ""
