"""The node's end of one WebSocket: whole messages in and out, decoded and encoded.

Messages are given to a receiver in the read callback. What they mean, registering and coming back
after a loss are `link.py`; a message that cannot be read is skipped, because a newer scheduler may
send kinds that this node does not know.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

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
from lingua_scheduler.messages.codec import ASSIGNMENTS, NODE_MESSAGES, form_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from picows import WSUpgradeRequest, WSUpgradeResponse

    from lingua_scheduler.messages.from_node import FromNode
    from lingua_scheduler.messages.to_node import SchedulerToNode

    Receive = Callable[[SchedulerToNode], None]

CONNECT_S: Final = 10.0
UPGRADE_S: Final = 5.0
GOODBYE_S: Final = 1.0
MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024
PROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"

_logger = logging.getLogger(__name__)
# It tells of every connection; whoever listens here is told by `link.py`. An adapter, because for a
# plain logger picows makes one more for each connection.
_picows_logger = logging.getLogger(f"{__name__}.picows")
_picows_logger.setLevel(logging.CRITICAL)
_PICOWS_LOG: Final = logging.LoggerAdapter(_picows_logger, {})


async def connect(
    url: str,
    offered: Sequence[str],
    receive: Receive,
    *,
    silence_s: float,
    tls: ssl.SSLContext | None = None,
) -> NodeSocket:
    """Open a socket that ends by itself when the peer gives no sign of life for `silence_s`."""
    socket = NodeSocket(receive)

    def accept(_: WSUpgradeRequest, response: WSUpgradeResponse) -> NodeSocket:
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


class NodeSocket(WSListener):
    """One connection; `closed()` ends when it does, and then `close_code` tells why."""

    def __init__(self, receive: Receive) -> None:
        # What the peer gave when it closed: 0 for a connection that was just lost.
        self.close_code = 0
        self.close_reason = ""
        # The upgrade was completed at some time.
        self.was_open = False
        # Messages that could not be read.
        self.unread = 0
        self._receive = receive
        self._transport: WSTransport | None = None
        # Nobody waits for this connection any more.
        self._is_abandoned = False
        # Parts of a message that came in several frames.
        self._parts: list[bytes] = []
        self.use_protocol(None)

    def use_protocol(self, subprotocol: str | None) -> None:
        """Read and write in the form that the peer has chosen."""
        form = form_of(subprotocol)
        self._decode = ASSIGNMENTS[form].decode
        self._encode = NODE_MESSAGES[form].encode
        self._kind = WSMsgType.BINARY if NODE_MESSAGES[form].is_binary else WSMsgType.TEXT

    def send(self, message: FromNode) -> None:
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

    def _take(self, data: bytes) -> None:
        try:
            message = self._decode(data)
        except InvalidMessage as error:
            self.unread += 1
            _logger.debug("a message that this node does not know: %s", error)
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
