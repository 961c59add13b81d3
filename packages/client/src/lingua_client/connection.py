"""One connection of a session: opened, its first message answered, then attached to the session.

The answer is handed on in the read callback, because outcomes may follow it in the same read. A
detached connection is ignored: messages that still arrive on it, and its close, have no effect.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lingua_wire.codec import CLIENT_MESSAGES, SERVER_MESSAGES
from lingua_wire.socket_client import Socket, SocketCodecs, open_socket
from lingua_wire.to_client import (
    ErrorMessage,
    ResumeRejected,
    ServerMessage,
    SessionInitAck,
    SessionResumed,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lingua_client.options import Options
    from lingua_wire.from_client import FromClient

    Receive = Callable[[ServerMessage], None]

OpeningAnswer = SessionInitAck | SessionResumed | ResumeRejected | ErrorMessage
OPENING_ANSWERS: Final = (SessionInitAck, SessionResumed, ResumeRejected, ErrorMessage)


class SessionConnection:
    """A connection to one URL."""

    def __init__(
        self, url: str, on_answer: Callable[[SessionConnection, OpeningAnswer], None]
    ) -> None:
        self.url = url
        # Done when the connection has ended; raises what the session raised in a callback.
        self.ended: asyncio.Future[None]
        # A first message was sent and not answered: the server may still act on it.
        self.is_unanswered = False
        self._on_answer = on_answer
        self._socket: Socket[ServerMessage, FromClient] | None = None
        self._answer: asyncio.Future[OpeningAnswer] | None = None
        # Receives the messages; None before the answer and after `detach`.
        self._receive: Receive | None = None

    async def open(self, options: Options, tls: ssl.SSLContext | None) -> None:
        """Connect; raises OSError, TimeoutError or WSError."""
        codecs = SocketCodecs(SERVER_MESSAGES, CLIENT_MESSAGES, options.offered)
        self._socket = await open_socket(
            self.url, codecs, self._handle, silence_s=options.silence_s, tls=tls
        )
        self.ended = asyncio.ensure_future(self._socket.closed())

    async def request(self, first: FromClient) -> OpeningAnswer:
        """Send a first message and return its answer; raises ConnectionResetError without one."""
        answer: asyncio.Future[OpeningAnswer] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self.is_unanswered = True
        self.send(first)
        ends: set[asyncio.Future[Any]] = {answer, self.ended}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise ConnectionResetError(self.end_reason())
        return answer.result()

    def attach(self, receive: Receive, on_congestion: Callable[[bool], None]) -> None:
        """Pass all further messages to the session."""
        assert self._socket is not None
        self._receive = receive
        self._socket.on_congestion = on_congestion

    def detach(self) -> None:
        """Stop passing messages to the session."""
        self._receive = None
        if self._socket is not None:
            self._socket.on_congestion = None

    def send(self, message: FromClient) -> None:
        """Send a message; it is dropped if the connection has ended."""
        assert self._socket is not None
        self._socket.send(message)

    def pause(self) -> None:
        """Read nothing until `resume`."""
        assert self._socket is not None
        self._socket.pause()

    def resume(self) -> None:
        """Read again."""
        assert self._socket is not None
        self._socket.resume()

    def abort(self) -> None:
        """End the connection as if it were lost."""
        if self._socket is not None:
            self._socket.abort()

    async def drop(self) -> None:
        """Detach, end the connection at once and wait until it has ended."""
        self.detach()
        if self._socket is not None:
            self._socket.abort()
            await self.ended

    async def close(self) -> None:
        """Send what is buffered, close with a close frame and wait until it has ended."""
        assert self._socket is not None
        await self._socket.finish()
        await self.drop()

    @property
    def close_code(self) -> int:
        """Return the server's close code; 0 if the connection was lost without one."""
        return self._socket.close_code if self._socket is not None else 0

    def end_reason(self) -> str:
        """Return why the connection has ended, as a sentence."""
        socket = self._socket
        if socket is None or not socket.close_code:
            return "the connection was lost"
        return f"closed with {socket.close_code} {socket.close_reason}".strip()

    def _handle(self, message: ServerMessage) -> None:
        if self._receive is not None:
            self._receive(message)
        elif (
            self._answer is not None
            and not self._answer.done()
            and isinstance(message, OPENING_ANSWERS)
        ):
            self.is_unanswered = False
            self._answer.set_result(message)
            self._on_answer(self, message)
