"""Dialling out: one WebSocket to a scheduler, whole messages in and out, decoded and encoded.

Messages are given to a receiver in the read callback. What they mean, the first one to be said and
coming back after a loss belong to who dials: the SDKs of nodes (`node/wire.py`) and of clients
(`client/line.py`); both ask here for the token they show. A message that cannot be read is skipped,
because a newer scheduler may send kinds that this one does not know.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from socket import SO_RCVBUF, SOL_SOCKET
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSProtocolError,
    WSTransport,
    ws_connect,
)

from lingua_scheduler.errors import InvalidMessage
from lingua_scheduler.messages.codec import Codec, form_of

if TYPE_CHECKING:
    import ssl

    from picows import WSUpgradeRequest, WSUpgradeResponse

CONNECT_S: Final = 10.0
UPGRADE_S: Final = 5.0
GOODBYE_S: Final = 1.0
MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
PROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"
# How long a provider of tokens may take, and how soon it is asked again after it had none.
TOKEN_S: Final = 10.0
TOKEN_AGAIN_S: Final = 1.0

# A token, or what gives one each time it is needed: at once, or when awaited.
TokenSource = str | Callable[[], str | Awaitable[str]] | None

In = TypeVar("In")
Out = TypeVar("Out")

_logger = logging.getLogger(__name__)
# It tells of every connection; whoever listens here is told by who dials. An adapter, because for a
# plain logger picows makes one more for each connection.
_picows_logger = logging.getLogger(f"{__name__}.picows")
_picows_logger.setLevel(logging.CRITICAL)
_PICOWS_LOG: Final = logging.LoggerAdapter(_picows_logger, {})


@dataclass(frozen=True, slots=True)
class Dialect(Generic[In]):
    """How one end of a socket talks: each pair is JSON, then MessagePack."""

    reads: tuple[Codec[In], Codec[In]]
    writes: tuple[Codec[Any], Codec[Any]]
    # Subprotocols in the order of preference; without any, JSON as the older protocol.
    offered: tuple[str, ...]


async def fresh_token(source: TokenSource) -> str | None:
    """Return the token to show now; raises TimeoutError, or what a provider raises."""
    if not callable(source):
        return source
    given = source()
    if inspect.isawaitable(given):
        async with asyncio.timeout(TOKEN_S):
            given = await given
    return given


async def insist_on_token(source: TokenSource) -> str | None:
    """Return a fresh token, however often its provider cannot reach whom it asks."""
    while True:
        try:
            return await fresh_token(source)
        except (OSError, TimeoutError) as error:
            _logger.warning("no token now: %s", str(error) or type(error).__name__)
            await asyncio.sleep(TOKEN_AGAIN_S)


async def dial(
    url: str,
    dialect: Dialect[In],
    receive: Callable[[In], None],
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> Socket[In, Any]:
    """Open a socket that ends by itself when the peer gives no sign of life for `silence_s`."""
    socket: Socket[In, Any] = Socket(dialect, receive)
    offered = dialect.offered

    def accept(_: WSUpgradeRequest, response: WSUpgradeResponse) -> Socket[In, Any]:
        socket.use_protocol(response.headers.get(PROTOCOL_HEADER))
        return socket

    try:
        async with asyncio.timeout(CONNECT_S):
            await ws_connect(
                accept,
                url,
                ssl_context=tls,
                websocket_handshake_timeout=UPGRADE_S,
                logger_name=_PICOWS_LOG,
                # A ping after half the time, the other half to answer it.
                enable_auto_ping=True,
                auto_ping_idle_timeout=silence_s / 2,
                auto_ping_reply_timeout=silence_s / 2,
                max_frame_size=MESSAGE_BYTES_MAX,
                extra_headers={PROTOCOL_HEADER: ", ".join(offered)} if offered else None,
            )
    except BaseException:
        # picows would still finish the upgrade after this task was cancelled.
        socket.abandon()
        raise
    if not socket.was_open:
        raise ConnectionResetError("the connection was lost during the upgrade")
    return socket


class Socket(WSListener, Generic[In, Out]):
    """One connection; `closed()` ends when it does, and then `close_code` tells why."""

    def __init__(self, dialect: Dialect[In], receive: Callable[[In], None]) -> None:
        # What the peer gave when it closed: 0 for a connection that was just lost.
        self.close_code = 0
        self.close_reason = ""
        # The upgrade was completed at some time.
        self.was_open = False
        # Messages that could not be read.
        self.unread = 0
        # Told whether the peer reads slower than we write.
        self.on_congestion: Callable[[bool], None] | None = None
        self._dialect = dialect
        self._receive = receive
        self._transport: WSTransport | None = None
        # Nobody waits for this connection any more.
        self._is_abandoned = False
        # Nothing is read, so that no answer to a ping can be seen.
        self._is_paused = False
        # Parts of a message that came in several frames.
        self._parts: list[bytes] = []
        self.use_protocol(None)

    def use_protocol(self, subprotocol: str | None) -> None:
        """Read and write in the form that the peer has chosen."""
        form = form_of(subprotocol)
        self._decode = self._dialect.reads[form].decode
        self._encode = self._dialect.writes[form].encode
        self._kind = WSMsgType.BINARY if self._dialect.writes[form].is_binary else WSMsgType.TEXT

    def send(self, message: Out) -> None:
        """Send a message; raises what msgspec raises for values that no message can carry."""
        data = self._encode(message)
        if self._transport is not None:
            self._transport.send(self._kind, data)

    def close(self, code: WSCloseCode = WSCloseCode.OK) -> None:
        """Say goodbye and end the connection after what was sent so far."""
        if self._transport is not None and not self._transport.is_close_frame_sent:
            self._transport.send_close(code)
            self._transport.disconnect()

    def abort(self) -> None:
        """End the connection without waiting for anything."""
        if self._transport is not None:
            self._transport.disconnect(graceful=False)

    def abandon(self) -> None:
        """End the connection now, or as soon as it opens."""
        self._is_abandoned = True
        self.abort()

    def keep_unread(self, bytes_max: int) -> None:
        """Let this machine keep no more for us than about so much that we have not read."""
        if self._transport is not None:
            sock = self._transport.underlying_transport.get_extra_info("socket")
            sock.setsockopt(SOL_SOCKET, SO_RCVBUF, bytes_max)

    def pause(self) -> None:
        """Read nothing until `go_on`; what a read has brought already still comes."""
        transport = self._transport
        if transport is not None and not self._is_paused:
            self._is_paused = True
            transport.notify_user_specific_pong_received()
            if not transport.underlying_transport.is_closing():
                transport.underlying_transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        transport = self._transport
        if transport is not None and self._is_paused:
            self._is_paused = False
            if not transport.underlying_transport.is_closing():
                transport.underlying_transport.resume_reading()

    async def closed(self) -> None:
        """Wait for the end; raises what a receiver raised."""
        if self._transport is None:
            return
        try:
            await self._transport.wait_disconnected()
        except WSProtocolError as error:
            _logger.warning("the scheduler broke the WebSocket protocol: %s", error)

    async def finish(self) -> None:
        """Close and wait until the last bytes are out, but not long."""
        self.close()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self.closed()
        except TimeoutError:
            self.abort()

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Called by picows: the upgrade is done."""
        self._transport = transport
        self.was_open = True
        if self._is_abandoned:
            self.abort()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Called by picows: read and act at once."""
        kind = frame.msg_type
        if kind == self._kind and frame.fin:
            self._take(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            self._take_close(transport, frame.get_payload_as_bytes())
        elif kind in {WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION}:
            self._take_part(kind, frame)

    def send_user_specific_ping(self, transport: WSTransport) -> None:
        """Called by picows: ask for a sign of life, unless it could not be read."""
        if self._is_paused:
            # After this call picows waits for the answer.
            asyncio.get_running_loop().call_soon(transport.notify_user_specific_pong_received)
        else:
            transport.send_ping()

    def pause_writing(self) -> None:
        """Called by picows: much waits to be written."""
        if self.on_congestion is not None:
            self.on_congestion(True)  # noqa: FBT003

    def resume_writing(self) -> None:
        """Called by picows: most of it is out."""
        if self.on_congestion is not None:
            self.on_congestion(False)  # noqa: FBT003

    def _take(self, data: bytes) -> None:
        try:
            message = self._decode(data)
        except InvalidMessage as error:
            self.unread += 1
            _logger.debug("a message that is not known here: %s", error)
            return
        self._receive(message)

    def _take_part(self, kind: WSMsgType, frame: WSFrame) -> None:
        """Collect a message in several frames; one in the other form than agreed is skipped."""
        if kind not in {WSMsgType.CONTINUATION, self._kind}:
            self.unread += 1
            return
        self._parts.append(frame.get_payload_as_bytes())
        if sum(map(len, self._parts)) > MESSAGE_BYTES_MAX:
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, "the message is too big")
        if frame.fin:
            whole, self._parts = b"".join(self._parts), []
            self._take(whole)

    def _take_close(self, transport: WSTransport, payload: bytes) -> None:
        self.close_code = int.from_bytes(payload[:2], "big")
        self.close_reason = payload[2:].decode("utf-8", "replace")
        if not transport.is_close_frame_sent:
            transport.send_close(WSCloseCode.OK)
        transport.disconnect()
