"""One connection of a session: dialled, its first message answered, then the session's.

The answer is handed on in the read callback, because outcomes may follow it in the same read. A
line that the session has left is deaf: whatever still comes on it, its close too, means nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.dial import Dialect, Socket, dial
from lingua_scheduler.messages.codec import CLIENT_MESSAGES, SERVER_MESSAGES
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    ResumeRejected,
    ServerMessage,
    SessionInitAck,
    SessionResumed,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lingua_scheduler.client.options import Options
    from lingua_scheduler.messages.from_client import FromClient

    Receive = Callable[[ServerMessage], None]

Answer = SessionInitAck | SessionResumed | ResumeRejected | ErrorMessage
ANSWERS: Final = (SessionInitAck, SessionResumed, ResumeRejected, ErrorMessage)


class Line:
    """A connection to one URL."""

    def __init__(self, url: str, welcome: Callable[[Line, Answer], None]) -> None:
        self.url = url
        # Done when the connection has ended; raises what the session raised in a callback.
        self.ended: asyncio.Future[None]
        # A first message was sent and nothing came back: the server may still act on it.
        self.is_unanswered = False
        self._welcome = welcome
        self._socket: Socket[ServerMessage, FromClient] | None = None
        self._answer: asyncio.Future[Answer] | None = None
        # Who gets the messages; nobody before the answer and after `mute`.
        self._receive: Receive | None = None

    async def dial(self, options: Options, tls: ssl.SSLContext | None) -> None:
        """Connect; raises OSError, TimeoutError or WSError."""
        dialect = Dialect(SERVER_MESSAGES, CLIENT_MESSAGES, options.offered)
        self._socket = await dial(
            self.url, dialect, self._take, silence_s=options.silence_s, tls=tls
        )
        self.ended = asyncio.ensure_future(self._socket.closed())

    async def ask(self, first: FromClient) -> Answer:
        """Send a first message and return its answer; raises ConnectionResetError without one."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self.is_unanswered = True
        self.send(first)
        ends: set[asyncio.Future[Any]] = {answer, self.ended}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionResetError(self.why_ended())
        return answer.result()

    def connect(self, receive: Receive, on_congestion: Callable[[bool], None]) -> None:
        """From now on the session has this line."""
        assert self._socket is not None
        self._receive = receive
        self._socket.on_congestion = on_congestion

    def mute(self) -> None:
        """The session has left this line."""
        self._receive = None
        if self._socket is not None:
            self._socket.on_congestion = None

    def send(self, message: FromClient) -> None:
        """Send a message; on a line that has ended it is dropped."""
        assert self._socket is not None
        self._socket.send(message)

    def pause(self) -> None:
        """Read nothing until `go_on`."""
        assert self._socket is not None
        self._socket.pause()

    def go_on(self) -> None:
        """Read again."""
        assert self._socket is not None
        self._socket.go_on()

    def abort(self) -> None:
        """Lose the connection on purpose."""
        if self._socket is not None:
            self._socket.abort()

    async def leave(self) -> None:
        """End the connection at once and see it end."""
        self.mute()
        if self._socket is not None:
            self._socket.abort()
            await self.ended

    async def finish(self) -> None:
        """Send what was said, close politely and see it end."""
        assert self._socket is not None
        await self._socket.finish()
        await self.leave()

    @property
    def close_code(self) -> int:
        """Return what the server gave when it closed; 0 for a connection that was lost."""
        return self._socket.close_code if self._socket is not None else 0

    def why_ended(self) -> str:
        """Return why the connection has ended, for people."""
        socket = self._socket
        if socket is None or not socket.close_code:
            return "the connection was lost"
        return f"closed with {socket.close_code} {socket.close_reason}".strip()

    def _take(self, message: ServerMessage) -> None:
        if self._receive is not None:
            self._receive(message)
        elif self._answer is not None and not self._answer.done() and isinstance(message, ANSWERS):
            self.is_unanswered = False
            self._answer.set_result(message)
            self._welcome(self, message)
