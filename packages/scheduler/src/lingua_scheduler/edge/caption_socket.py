"""`/ws/captions`: the captions of a room for one reader, each event a JSON text message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.auth.bearer import offered_token
from lingua_scheduler.auth.tokens import InvalidToken
from lingua_scheduler.edge import token_advice
from lingua_scheduler.edge.guard import Problem
from lingua_scheduler.edge.request_head import Refusal
from lingua_scheduler.edge.room_door import RoomDoor, Visitor
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.to_client import ErrorMessage

if TYPE_CHECKING:
    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.auth.tokens import ClientGrant
    from lingua_scheduler.edge.request_head import RequestHead
    from lingua_scheduler.edge.websocket import WebSocket
    from lingua_scheduler.rooms.caption_events import CaptionEvent
    from lingua_scheduler.rooms.caption_feed import CaptionFeed
    from lingua_scheduler.tasks import Tasks

OPEN_S = 5.0
QUERY_CHARS_MAX = 128
# The close code of each refusal, by its HTTP status.
CLOSES = {
    403: CloseCode.FORBIDDEN,
    429: CloseCode.RATE_LIMITED,
    503: CloseCode.TRY_AGAIN_LATER,
}

_encode = msgspec.json.Encoder().encode


def reader_of(gate: TokenGate, head: RequestHead) -> Visitor:
    """Return who reads, or raise `Refusal`."""
    authorization = head.headers.get("authorization", "")
    token = offered_token(authorization, head.subprotocols) or head.query.get("token")
    try:
        return Visitor(gate.client(token), head.remote)
    except InvalidToken as problem:
        raise Refusal(401, str(problem), token_advice.challenge(problem)) from None


class CaptionSocket:
    """One reader: the receiver of its socket, a reader of a feed, and the holder of its token."""

    def __init__(
        self, wire: WebSocket, door: RoomDoor, gate: TokenGate, tasks: Tasks, visitor: Visitor
    ) -> None:
        self._wire = wire
        self._door = door
        self._gate = gate
        self._tasks = tasks
        self._visitor = visitor
        # None until the room was found.
        self._feed: CaptionFeed | None = None

    def begin(self, query: dict[str, str]) -> None:
        """Find the room; nothing can be sent before the socket is accepted."""
        self._gate.watch(self)
        self._tasks.start(self._open(query))

    async def _open(self, query: dict[str, str]) -> None:
        code, lang = query.get("room", ""), query.get("lang", "")[:QUERY_CHARS_MAX]
        try:
            async with asyncio.timeout(OPEN_S):
                feed = await self._door.feed(self._visitor, code, lang)
        except Problem as problem:
            self._refuse(ErrorCode(problem.code), str(problem), problem.status)
        except (StoreUnavailable, StoreRejected, TimeoutError):
            down = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            self._refuse(down, down.hint, 503)
        else:
            if self._wire.is_open:
                self._feed = feed
                feed.attach(self, query.get("after", "")[:QUERY_CHARS_MAX])

    def _refuse(self, code: ErrorCode, message: str, status: int) -> None:
        self._wire.send_text(_encode(ErrorMessage(code=code, message=message)))
        self._wire.close(CLOSES.get(status, CloseCode.REFUSED), message)

    # The receiver

    def text(self, data: bytes) -> None:
        """Ignore what a reader sends: the feed is read-only."""

    def binary(self, data: bytes) -> None:
        """Ignore what a reader sends: the feed is read-only."""

    def lost(self) -> None:
        """Leave the feed."""
        if self._feed is not None:
            self._feed.detach(self)

    # The reader

    @property
    def is_open(self) -> bool:
        """Tell whether the reader is connected."""
        return self._wire.is_open

    @property
    def is_behind(self) -> bool:
        """Tell whether so much is unread that partial texts are left out."""
        return self._wire.is_behind

    def send(self, event: CaptionEvent) -> None:
        """Send an event; the socket drops a reader that is far behind (4408)."""
        self._wire.send_text(event.json)

    def beat(self) -> None:
        """Do nothing: pings show that the connection lives."""

    def close(self, reason: str) -> None:
        """Close the socket; after the end of the room nothing else follows."""
        has_ended = self._feed is not None and self._feed.has_ended
        self._wire.close(CloseCode.NORMAL if has_ended else CloseCode.GOING_AWAY, reason)

    # The token

    @property
    def grant(self) -> ClientGrant | None:
        """Return what the token allows."""
        return self._visitor.grant

    def token_expires(self, in_ms: int) -> bool:  # noqa: ARG002 no event for it
        """Send nothing: a reader comes back with another token."""
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close the socket."""
        self._wire.close(code, reason)
