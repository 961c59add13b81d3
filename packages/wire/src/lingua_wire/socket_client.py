"""The client side of one WebSocket: whole messages, encoded and decoded.

Messages are passed to a receiver in the read callback. The SDKs of nodes and of clients, which open
these sockets, define what messages mean, which one is sent first, and how they reconnect. A message
that cannot be decoded is skipped, because a newer scheduler may send types that are unknown here.
"""

from __future__ import annotations

import asyncio
import logging
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

from lingua_wire.codec import Codec, form_of
from lingua_wire.errors import InvalidMessage

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from picows import WSUpgradeRequest, WSUpgradeResponse

CONNECT_S: Final = 10.0
UPGRADE_S: Final = 5.0
CLOSE_S: Final = 1.0
MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
PROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"
In = TypeVar("In")
Out = TypeVar("Out")

_logger = logging.getLogger(__name__)
# picows logs every connection; the SDKs report connections themselves. An adapter, because picows
# makes a further logger for each connection if it is given a plain logger.
_picows_logger = logging.getLogger(f"{__name__}.picows")
_picows_logger.setLevel(logging.CRITICAL)
_PICOWS_LOG: Final = logging.LoggerAdapter(_picows_logger, {})


@dataclass(frozen=True, slots=True)
class SocketCodecs(Generic[In]):
    """How a socket reads and writes messages: each pair is JSON, then MessagePack."""

    reads: tuple[Codec[In], Codec[In]]
    writes: tuple[Codec[Any], Codec[Any]]
    # Subprotocols in the order of preference; if empty, JSON as in the older protocol.
    offered: tuple[str, ...]


async def open_socket(
    url: str,
    codecs: SocketCodecs[In],
    receive: Callable[[In], None],
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> Socket[In, Any]:
    """Open a socket that ends by itself when the peer sends nothing for `silence_s`."""
    socket: Socket[In, Any] = Socket(codecs, receive)
    offered = codecs.offered

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
                # A ping is sent after half the time; the other half is for its answer.
                enable_auto_ping=True,
                auto_ping_idle_timeout=silence_s / 2,
                auto_ping_reply_timeout=silence_s / 2,
                max_frame_size=MESSAGE_BYTES_MAX,
                extra_headers={PROTOCOL_HEADER: ", ".join(offered)} if offered else None,
            )
    except BaseException:
        # picows would complete the upgrade even after this task was cancelled.
        socket.abandon()
        raise
    if not socket.was_open:
        raise ConnectionResetError("the connection was lost during the upgrade")
    return socket


class Socket(WSListener, Generic[In, Out]):
    """One connection; `closed()` returns when it has ended, and `close_code` is then set."""

    def __init__(self, codecs: SocketCodecs[In], receive: Callable[[In], None]) -> None:
        # The peer's close code; 0 if the connection was lost without one.
        self.close_code = 0
        self.close_reason = ""
        # The upgrade was completed.
        self.was_open = False
        # Messages that could not be decoded.
        self.unread = 0
        # Called with whether the peer reads more slowly than we write.
        self.on_congestion: Callable[[bool], None] | None = None
        self._codecs = codecs
        self._receive = receive
        self._transport: WSTransport | None = None
        # The connection is no longer wanted.
        self._is_abandoned = False
        # Nothing is read, so an answer to a ping cannot be seen.
        self._is_paused = False
        # Parts of a message in several frames.
        self._parts: list[bytes] = []
        self.use_protocol(None)

    def use_protocol(self, subprotocol: str | None) -> None:
        """Read and write in the form that the peer has chosen."""
        form = form_of(subprotocol)
        self._decode = self._codecs.reads[form].decode
        self._encode = self._codecs.writes[form].encode
        self._kind = WSMsgType.BINARY if self._codecs.writes[form].is_binary else WSMsgType.TEXT

    def send(self, message: Out) -> None:
        """Send a message; raises what msgspec raises for values that cannot be encoded."""
        data = self._encode(message)
        if self._transport is not None:
            self._transport.send(self._kind, data)

    def close(self, code: WSCloseCode = WSCloseCode.OK) -> None:
        """Send a close frame and end the connection after the messages sent so far."""
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

    def limit_unread(self, bytes_max: int) -> None:
        """Limit the bytes that the kernel buffers before we read them, approximately."""
        if self._transport is not None:
            sock = self._transport.underlying_transport.get_extra_info("socket")
            sock.setsockopt(SOL_SOCKET, SO_RCVBUF, bytes_max)

    def pause(self) -> None:
        """Read nothing until `resume`; messages that were already read are still passed on."""
        transport = self._transport
        if transport is not None and not self._is_paused:
            self._is_paused = True
            transport.notify_user_specific_pong_received()
            if not transport.underlying_transport.is_closing():
                transport.underlying_transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        transport = self._transport
        if transport is not None and self._is_paused:
            self._is_paused = False
            if not transport.underlying_transport.is_closing():
                transport.underlying_transport.resume_reading()

    async def closed(self) -> None:
        """Wait until the connection has ended; raises what a receiver raised."""
        if self._transport is None:
            return
        try:
            await self._transport.wait_disconnected()
        except WSProtocolError as error:
            _logger.warning("the scheduler broke the WebSocket protocol: %s", error)

    async def finish(self) -> None:
        """Close, and wait for a short time until the last bytes are sent."""
        self.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.closed()
        except TimeoutError:
            self.abort()

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Called by picows: the upgrade is complete."""
        self._transport = transport
        self.was_open = True
        if self._is_abandoned:
            self.abort()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """Called by picows: decode the message and pass it on at once."""
        kind = frame.msg_type
        if kind == self._kind and frame.fin:
            self._handle_message(frame.get_payload_as_bytes())
        elif kind == WSMsgType.CLOSE:
            self._handle_close(transport, frame.get_payload_as_bytes())
        elif kind in {WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION}:
            self._collect_part(kind, frame)

    def send_user_specific_ping(self, transport: WSTransport) -> None:
        """Called by picows: send a ping, unless its answer could not be read."""
        if self._is_paused:
            # After this call picows waits for the answer.
            asyncio.get_running_loop().call_soon(transport.notify_user_specific_pong_received)
        else:
            transport.send_ping()

    def pause_writing(self) -> None:
        """Called by picows: many bytes wait to be written."""
        if self.on_congestion is not None:
            self.on_congestion(True)  # noqa: FBT003

    def resume_writing(self) -> None:
        """Called by picows: most of them are written."""
        if self.on_congestion is not None:
            self.on_congestion(False)  # noqa: FBT003

    def _handle_message(self, data: bytes) -> None:
        try:
            message = self._decode(data)
        except InvalidMessage as error:
            self.unread += 1
            _logger.debug("skipped an unknown message: %s", error)
            return
        self._receive(message)

    def _collect_part(self, kind: WSMsgType, frame: WSFrame) -> None:
        """Collect a message in several frames; a message in the wrong form is skipped."""
        if kind not in {WSMsgType.CONTINUATION, self._kind}:
            self.unread += 1
            return
        self._parts.append(frame.get_payload_as_bytes())
        if sum(map(len, self._parts)) > MESSAGE_BYTES_MAX:
            raise WSProtocolError(WSCloseCode.MESSAGE_TOO_BIG, "the message is too big")
        if frame.fin:
            whole, self._parts = b"".join(self._parts), []
            self._handle_message(whole)

    def _handle_close(self, transport: WSTransport, payload: bytes) -> None:
        self.close_code = int.from_bytes(payload[:2], "big")
        self.close_reason = payload[2:].decode("utf-8", "replace")
        if not transport.is_close_frame_sent:
            transport.send_close(WSCloseCode.OK)
        transport.disconnect()
