"""The room of a session: requested, remembered, and joined again by a session that starts over.

There is one request at a time. A request whose connection was lost is sent again on the next one;
if the session is then already in the requested room, the first request had succeeded. If the
session is still in a room that it left, the server has not received the leave: it is sent again,
and so is the request. A session that joins again a room that it left may still receive the member
list of its former stay, which does not answer the request; `joined_at` distinguishes the stays.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_client.events import RoomRefused
from lingua_wire.codes import ErrorCode
from lingua_wire.from_client import RoomCreate, RoomJoin, RoomLeave
from lingua_wire.to_client import (
    ErrorMessage,
    RoomCreateAck,
    RoomError,
    RoomExpired,
    RoomMembers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_wire.errors import LinguaError
    from lingua_wire.from_client import FromClient
    from lingua_wire.to_client import ToClient


# When to send a request again if the server does not say.
RETRY_MS = 500


class RoomMembership:
    """The room that a session is in, and its request to create or join one."""

    def __init__(self, send: Callable[[FromClient], None], own_session: Callable[[], str]) -> None:
        # Sends if there is a connection.
        self._send = send
        self._own_session = own_session
        # The request that joins the present room again; None outside of rooms.
        self._rejoin: RoomJoin | None = None
        # The room that was left last: leaving is not answered, so the server may not know of it.
        self._left = ""
        # Since when the session is in its room, and was in the room it left; 0: not known.
        self._joined_at = self._left_joined_at = 0
        self._lock = asyncio.Lock()
        self._request: RoomCreate | RoomJoin | None = None
        self._answer: asyncio.Future[str] | None = None
        # The request was sent before, on a connection that was lost or to an unavailable store.
        self._is_repeated = False
        self._retry_timer: asyncio.TimerHandle | None = None

    @property
    def code(self) -> str:
        """Return the code of the room; empty outside of rooms."""
        return self._rejoin.room_code if self._rejoin is not None else ""

    @property
    def _expected(self) -> tuple[type[RoomCreateAck | RoomMembers], ...]:
        """Return the types of message that answer the present request."""
        if self._request is None:
            return ()
        return (RoomCreateAck if isinstance(self._request, RoomCreate) else RoomMembers,)

    async def create(self, request: RoomCreate) -> str:
        """Create a room and return its code."""
        return await self._perform(request)

    async def join(self, request: RoomJoin) -> None:
        """Join a room."""
        await self._perform(request)

    def leave(self) -> None:
        """Leave the room, if there is one; the server does not answer."""
        if self._rejoin is not None:
            self._left, self._left_joined_at = self._rejoin.room_code, self._joined_at
            self._send(RoomLeave(room_code=self._left))
            self._rejoin = None
            self._joined_at = 0

    def begin_connection(self, *, is_new_session: bool) -> None:
        """Send the request again on a new connection; a new session joins the old one's room.

        Called before any audio is sent, because audio goes to the members present at that time.
        """
        if not is_new_session:
            self._leave_again()
        if self._request is not None:
            self._is_repeated = not is_new_session
            self._send(self._request)
        elif is_new_session and self._rejoin is not None:
            self._send(self._rejoin)

    def handle(self, message: ToClient) -> None:
        """Check whether a message answers the request, or ends the membership."""
        if isinstance(message, RoomExpired):
            self._rejoin = None
        elif isinstance(message, RoomError):
            self._handle_error(message)
        elif isinstance(message, ErrorMessage):
            self._handle_outage(message)
        elif isinstance(message, self._expected):
            self._complete(message.room_code, self._joined_at_in(message))
        elif isinstance(message, RoomMembers) and message.room_code == self.code:
            self._joined_at = self._joined_at_in(message) or self._joined_at

    def end(self, error: LinguaError) -> None:
        """Fail the request: the session has ended."""
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _joined_at_in(self, message: RoomCreateAck | RoomMembers) -> int:
        """Return since when the session is in a room, according to the list of members."""
        own = self._own_session()
        members = message.members if isinstance(message, RoomMembers) else ()
        return next((one.joined_at for one in members if one.session_id == own), 0)

    def _leave_again(self) -> None:
        """Send the last leave again, unless the session is about to join the same room.

        The session may already have joined it, on a server that died before its answer. If it is
        still in the room from before, the leave is sent when the join is refused.
        """
        wanted = self._request.room_code if isinstance(self._request, RoomJoin) else self.code
        if self._left and self._left != wanted:
            self._send(RoomLeave(room_code=self._left))

    def _handle_outage(self, error: ErrorMessage) -> None:
        """Send the request again later: the store was unavailable, possibly for this request."""
        is_outage = error.code == ErrorCode.SCHEDULER_DEPENDENCY_DOWN
        if is_outage and (self._request is not None or self._left) and self._retry_timer is None:
            loop = asyncio.get_running_loop()
            wait_ms = error.retry_after_ms or RETRY_MS
            self._retry_timer = loop.call_later(wait_ms / 1000, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        # Leave first: a session can be in one room only.
        self._leave_again()
        self._repeat()

    def _repeat(self) -> None:
        if self._request is not None and self._answer is not None and not self._answer.done():
            self._is_repeated = True
            self._send(self._request)

    async def _perform(self, request: RoomCreate | RoomJoin) -> str:
        async with self._lock:
            self._request = request
            self._is_repeated = False
            self._answer = asyncio.get_running_loop().create_future()
            self._send(request)
            try:
                return await self._answer
            finally:
                self._request = self._answer = None

    def _complete(self, code: str, joined_at: int = 0) -> None:
        request = self._request
        assert request is not None
        if self._answer is None or self._answer.done():
            return
        if isinstance(request, RoomJoin) and request.room_code != code:
            return
        if code == self._left and self._left_joined_at and joined_at == self._left_joined_at:
            return  # the list of the stay before it left
        self._left, self._joined_at = "", joined_at
        self._rejoin = RoomJoin(
            room_code=code,
            display_name=request.display_name,
            preferred_lang=request.preferred_lang,
        )
        self._answer.set_result(code)

    def _handle_error(self, error: RoomError) -> None:
        if error.code == ErrorCode.NOT_IN_ROOM:
            self._left = ""  # the server had received the leave
            return
        if self._answer is None or self._answer.done():
            return
        if error.code == ErrorCode.ALREADY_IN_ROOM and self._rejoin is None:
            if error.room_code and error.room_code == self._left:
                self._send(RoomLeave(room_code=self._left))
                self._repeat()
                return
            if self._is_repeated and (room := self._room_of(error)):
                self._complete(room)
                return
        self._answer.set_exception(RoomRefused(error.code, error.message or ""))

    def _room_of(self, error: RoomError) -> str:
        """Return the room that the first of two equal requests led to; empty if none."""
        if isinstance(self._request, RoomJoin):
            # Older servers do not name the room.
            wanted = self._request.room_code
            return wanted if error.room_code in (None, wanted) else ""
        return error.room_code or ""
