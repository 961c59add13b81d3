"""One accepted WebSocket: sends and receives whole messages, within bounds, and ends exactly once.

A `WebSocket` does not know message types or sessions. It hands complete text and binary messages to
its receiver in the read callback. Its parts: `frame_writer.py` sends and bounds the backlog,
`fragments.py` assembles messages, `keep_alive.py` finds silent peers, `tcp_listener.py` accepts.

Frames are parsed by picows. Its protocol class is built here directly (an internal name: the
package is pinned below 2.4). Frames to the peer need no mask and are made here. Compression is
never negotiated. Text is not checked for UTF-8: the receiver decodes it anyway and refuses it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from picows import (
    WSAutoPingStrategy,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
)
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from lingua_scheduler.edge.fragments import FragmentAssembler, FrameRefused
from lingua_scheduler.edge.frame_writer import FrameWriter
from lingua_scheduler.edge.frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    PicowsOutlet,
    short_reason,
    upgrade_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a peer has to answer our close frame, or to read the rest of its data.
CLOSE_TIMEOUT_S: Final = 1.0
# Most connections are idle: each would pay for a larger buffer, and it grows when needed. picows
# keeps 256 bytes of it for itself and doubles the rest when that is 90 % full: a chunk of 100 ms at
# 16 kHz in its frame, 3.3 KB, then fits; with a little less it would be doubled twice.
READ_BUFFER_BYTES: Final = 2176

SLOW_READER: Final = 4408
CLOSE_CODES_NEVER_SENT: Final = frozenset({1004, 1005, 1006, 1015})

# The phases of a WebSocket, in order. In DEAF, received bytes are discarded unparsed.
NEW, OPEN, CLOSING, DEAF, GONE = range(5)

# Looked up once, not for every frame.
parse_bytes = WSProtocol.buffer_updated
BINARY_FRAME, TEXT_FRAME, CLOSE_FRAME = WSMsgType.BINARY, WSMsgType.TEXT, WSMsgType.CLOSE

# picows logs every connection, every broken frame and every error of a receiver; `on_error` gets
# those errors anyway, so only failures of its own parser are logged. It is an adapter because
# picows would wrap a plain logger in a new adapter for each connection.
_picows_logger = logging.getLogger(f"{__name__}.picows")
_picows_logger.setLevel(logging.ERROR)
_picows_logger.addFilter(lambda record: str(record.msg).startswith("WS parser failure"))
PICOWS_LOG: Final = logging.LoggerAdapter(_picows_logger, {})


class Receiver(Protocol):
    """Gets the messages of a WebSocket; `lost` is called exactly once and is the last call."""

    def text(self, data: bytes) -> None:
        """Handle a whole text message, not yet known to be UTF-8."""

    def binary(self, data: bytes) -> None:
        """Handle a whole binary message."""

    def lost(self) -> None:
        """Handle the end of the WebSocket; never called from within a send or a close."""


@dataclass(frozen=True, slots=True)
class WebSocketLimits:
    """What one peer may cost. A single message may be larger than `send_bytes_max`."""

    message_bytes_max: int = 256 * 1024
    send_bytes_max: int = 256 * 1024
    ping_ms: int = 2000
    dead_ms: int = 6000


class WebSocket:
    """One WebSocket of a peer; data sent after its end is dropped, and `lost` reports the end."""

    __slots__ = (
        "_assembler",
        "_close_timer",
        "_is_loss_reported",
        "_loop",
        "_on_error",
        "_on_lost",
        "_picows",
        "_transport",
        "_writer",
        "close_code",
        "is_paused",
        "last_ping",
        "last_received",
        "limits",
        "phase",
        "receiver",
        "remote",
        "subprotocol",
    )

    def __init__(
        self,
        limits: WebSocketLimits,
        remote: str,
        subprotocol: str | None,
        on_error: Callable[[BaseException], None],
        on_lost: Callable[[WebSocket], None],
    ) -> None:
        self.limits = limits
        # The peer's address as the socket reports it: never what a header claims.
        self.remote = remote
        self.subprotocol = subprotocol
        # Gets the messages; replaced when the connection enters its next phase.
        self.receiver: Receiver
        # The code that ended it, sent or received; 1006 if the connection broke; 0 while open.
        self.close_code = 0
        # Monotonic time of the last bytes from the peer, even if they are not a whole frame.
        self.last_received = monotonic()
        # We have stopped reading: silence of the peer has no meaning.
        self.is_paused = False
        self.last_ping = self.last_received
        self.phase = NEW

        self._on_error = on_error
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._is_loss_reported = False
        self._assembler = FragmentAssembler(limits.message_bytes_max)
        # Aborts the connection if the peer does not answer a close frame.
        self._close_timer: asyncio.TimerHandle | None = None
        # Set by `attach`.
        self._transport: asyncio.Transport
        self._writer: FrameWriter
        # Set when the handshake is complete.
        self._picows: WSTransport

    def attach(
        self, transport: asyncio.Transport, key: str, early: bytes, on_gone: Callable[[], None]
    ) -> None:
        """Answer the checked upgrade request and use this transport from now on."""
        listener = _PicowsListener(self, self._handle_frame)
        protocol = _PicowsProtocol(self, listener, on_gone)
        self._transport = transport
        self._writer = FrameWriter(transport, self.limits.send_bytes_max, self.drop_slow)
        protocol.connection_made(PicowsOutlet(transport, self._picows_closes))
        transport.set_protocol(cast("asyncio.BaseProtocol", protocol))
        transport.resume_reading()
        protocol.feed(upgrade_request(key) + early)

    # Sending.

    def send_text(self, data: bytes) -> None:
        """Send one text message, given as UTF-8."""
        if self.phase == OPEN:
            self._writer.send(TEXT, data)

    def send_binary(self, data: bytes) -> None:
        """Send one binary message."""
        if self.phase == OPEN:
            self._writer.send(BINARY, data)

    def send_parts(self, parts: tuple[bytes, ...], *, is_binary: bool) -> None:
        """Send one message that is given in parts, which are not copied if they are large."""
        if self.phase == OPEN:
            self._writer.send_parts(BINARY if is_binary else TEXT, parts)

    def ping(self, now: float) -> None:
        """Send a ping, which a live peer answers."""
        self.last_ping = now
        if self.phase == OPEN:
            self._writer.send(PING, b"")

    @property
    def is_open(self) -> bool:
        """Whether data sent now still goes to the peer."""
        return self.phase == OPEN

    @property
    def is_behind(self) -> bool:
        """Whether the peer has so much unread that large messages should wait."""
        return NEW < self.phase < GONE and self._writer.is_behind

    @property
    def buffered(self) -> int:
        """Bytes that were sent here and that the kernel has not accepted yet."""
        return 0 if self.phase in {NEW, GONE} else self._writer.buffered

    # Receiving.

    def pause(self) -> None:
        """Stop reading until `resume`: the data of the peer stays in its socket."""
        if self.phase == OPEN and not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again; silence of the peer counts from now."""
        if self.is_paused:
            self.is_paused = False
            self.last_received = monotonic()
            if self.phase == OPEN:
                self._transport.resume_reading()

    def _handle_frame(self, transport: WSTransport, frame: WSFrame) -> None:  # noqa: ARG002
        """Handle one frame, which is a whole message in most cases."""
        kind = frame.msg_type
        try:
            if self.phase != OPEN:
                if kind is CLOSE_FRAME and self.phase == CLOSING:
                    self._close_transport()
            elif frame.rsv1 or frame.rsv2 or frame.rsv3:
                self.close(1002, "reserved bits set")
            elif kind is BINARY_FRAME and frame.fin and self._assembler.partial is None:
                self.receiver.binary(frame.get_payload_as_bytes())
            elif kind is TEXT_FRAME and frame.fin and self._assembler.partial is None:
                self.receiver.text(frame.get_payload_as_bytes())
            elif kind is CLOSE_FRAME:
                self._handle_close(frame.get_payload_as_bytes())
            else:
                self._handle_rare_frame(kind, frame)
        except BaseException as error:
            self._on_error(error)
            self.close(1011, "internal error")
            raise

    def _handle_rare_frame(self, kind: WSMsgType, frame: WSFrame) -> None:
        """Handle a ping, a pong, or a part of a message."""
        assembler, message = self._assembler, None
        try:
            if kind is WSMsgType.PING:
                self._writer.send(PONG, frame.get_payload_as_bytes())
                assembler.count_empty(self.last_received)
            elif kind is WSMsgType.PONG:
                assembler.count_empty(self.last_received)
            else:
                message = assembler.add(kind, frame, self.last_received)
        except FrameRefused as refused:
            self.close(refused.code, refused.reason)
        if message is not None:
            (self.receiver.text if assembler.is_text else self.receiver.binary)(message)

    # Closing.

    def close(self, code: int, reason: str) -> None:
        """Start the closing handshake; the WebSocket ends when the peer answers, or soon after."""
        assert self.phase != NEW, "a WebSocket that is not accepted yet is refused, not closed"
        if self.phase == OPEN:
            self._send_close(code, reason)
            self.phase = CLOSING

    def abort(self) -> None:
        """End the connection now, without a close frame and without flushing."""
        if self.phase != GONE:
            self.phase = DEAF
            self._writer.discard()
            self._transport.abort()

    def drop_slow(self) -> None:
        """Disconnect a peer that reads too slowly: its backlog is all the memory it gets."""
        if self.phase == OPEN:
            self._send_close(SLOW_READER, "slow reader")
            self._writer.flush()
            self.phase = DEAF
            # Flushes, so that a peer that still reads learns the reason; stops reading.
            self._transport.close()
            # Deferred: most likely the receiver is sending at this moment.
            self._loop.call_soon(self._report_loss)

    def _send_close(self, code: int, reason: str) -> None:
        self.close_code = code
        self._writer.write(CLOSE, code.to_bytes(2, "big") + short_reason(reason))
        self._start_close_timer()

    def _start_close_timer(self) -> None:
        if self._close_timer is None:
            self._close_timer = self._loop.call_later(CLOSE_TIMEOUT_S, self.abort)

    def _handle_close(self, payload: bytes) -> None:
        """Answer the peer's close frame with its own code."""
        code = int.from_bytes(payload[:2], "big") if payload else 1005
        if payload and not (1000 <= code < 5000 and code not in CLOSE_CODES_NEVER_SENT):
            self._send_close(1002, "invalid close code")
            self._close_sending_side()
            return
        self.close_code = code
        self._writer.write(CLOSE, payload[:2])
        self._close_transport()

    def _close_transport(self) -> None:
        """Close the socket once its buffered data has been sent."""
        self._writer.flush()
        self.phase = DEAF
        self._start_close_timer()
        self._transport.close()

    def _end_after_refusal(self) -> None:
        """End after picows found a broken or oversized frame and sent a close frame."""
        self.close_code = int(cast("Any", self._picows.close_handshake.sent).code)
        self._start_close_timer()
        self._close_sending_side()

    def _close_sending_side(self) -> None:
        """Stop sending, and discard received data for a while.

        Closing at once would reset the connection, and the peer might never see the code.
        """
        self._writer.flush()
        self.phase = DEAF
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _picows_closes(self) -> None:
        """Keep picows from closing, which would not wait; after the handshake we close."""
        if self.phase == NEW:
            self._transport.abort()

    # Start and end, reported by picows.

    def opened(self, transport: WSTransport) -> None:
        """Start: the response to the upgrade request is on its way."""
        self._picows = transport
        self.phase = OPEN
        # picows keeps both as long as the connection lives, and nobody reads them again.
        transport.request.headers.clear()
        transport.response.headers.clear()

    def ended(self) -> None:
        """End: the socket is closed, by either side."""
        self.phase = GONE
        self._writer.end()
        self.close_code = self.close_code or 1006
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._report_loss()

    def _report_loss(self) -> None:
        if self._is_loss_reported:
            return
        self._is_loss_reported = True
        self._assembler.partial = None
        self._on_lost(self)
        try:
            self.receiver.lost()
        except BaseException as error:
            self._on_error(error)
            raise


# By the class: a bound method for each connection would be kept as long as it lives.
end_after_refusal = WebSocket._end_after_refusal  # noqa: SLF001


class _PicowsListener(WSListener):
    """What picows calls: passes on the start, the frames and the end of one connection."""

    # An attribute hides the method: picows calls the function for frames without a step between.
    __slots__ = ("_socket", "on_ws_frame")

    def __init__(self, socket: WebSocket, on_frame: Callable[[WSTransport, WSFrame], None]) -> None:
        self._socket = socket
        self.on_ws_frame = on_frame  # type: ignore[assignment,method-assign]

    def __call__(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:  # noqa: ARG002
        """Accept the upgrade, which the TCP listener has checked, with the chosen subprotocol."""
        name = self._socket.subprotocol
        response = WSUpgradeResponse.create_101_response(
            {"Sec-WebSocket-Protocol": name} if name else None
        )
        return WSUpgradeResponseWithListener(response, self)

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._socket.opened(transport)

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002
        self._socket.ended()

    def pause_writing(self) -> None:
        """Do nothing: `FrameWriter` has its own bound on unsent bytes, checked at each send."""

    def resume_writing(self) -> None:
        """Do nothing, as above."""


class _PicowsProtocol(WSProtocol):  # type: ignore[misc]
    """The parser of picows; notes when bytes arrive and when picows itself refuses a frame."""

    __slots__ = ("_on_gone", "_socket")

    def __init__(
        self, socket: WebSocket, listener: _PicowsListener, on_gone: Callable[[], None]
    ) -> None:
        self._socket = socket
        # Called when the socket is closed; `lost` may have been called earlier.
        self._on_gone = on_gone
        super().__init__(
            # Only a client has an address, a path and extra headers.
            host_port=None,
            ws_path=None,
            extra_headers=None,
            is_client_side=False,
            ws_listener_factory=listener,
            logger=PICOWS_LOG,
            # We answer an exception ourselves: picows would send a second close frame.
            disconnect_on_exception=False,
            # The whole request is here: the handshake needs no time limit.
            websocket_handshake_timeout=None,
            # One `KeepAlive` is cheaper than a task for each connection.
            enable_auto_ping=False,
            auto_ping_idle_timeout=1,
            auto_ping_reply_timeout=1,
            auto_ping_strategy=WSAutoPingStrategy.PING_WHEN_IDLE,
            # Pongs must count as unsent bytes, so we send them ourselves.
            enable_auto_pong=False,
            max_frame_size=socket.limits.message_bytes_max,
            read_buffer_init_size=READ_BUFFER_BYTES,
        )

    def buffer_updated(self, nbytes: int) -> None:
        """Let picows parse its buffer, unless the WebSocket discards received data."""
        socket = self._socket
        socket.last_received = monotonic()
        if socket.phase == DEAF:
            return  # unparsed and uncounted: the next bytes overwrite these
        parse_bytes(self, nbytes)
        if self.transport.is_close_frame_sent and socket.phase == OPEN:
            end_after_refusal(socket)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end through picows to the WebSocket, then to the connection count."""
        super().connection_lost(exc)
        self._on_gone()

    def feed(self, data: bytes) -> None:
        """Parse bytes that were read before this protocol had the transport."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]
