"""One accepted WebSocket: whole messages in and out, bounded, watched, and lost exactly once.

A `Wire` knows no message types and no sessions: it hands complete text and binary messages to its
receiver in the read callback, and whoever holds it sends. `front.py` accepts it, `Watch` finds the
peers that went silent. Frames are parsed by picows, whose protocol class is built here directly (an
internal name: pinned below 2.4); frames to the peer, which need no mask, are made here, and those
of one turn of the loop leave in one write. Compression is
never negotiated. Text that is not UTF-8 is the receiver's to refuse, because decoding it here would
be done twice.
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

from lingua_scheduler.edge.frames import (
    BINARY,
    CLOSE,
    COPIED_BYTES_MAX,
    PING,
    PONG,
    TEXT,
    PicowsOutlet,
    header_of,
    short_reason,
    upgrade_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# How long a peer has to answer our close frame, or to read what it still has to get.
GOODBYE_S: Final = 1.0
# How often all wires are looked at. A dead peer is found at most this late.
WATCH_S: Final = 0.2
# Pings, pongs and empty fragments say nothing that a receiver could count and limit.
EMPTY_FRAMES_PER_S_MAX: Final = 100
# Idle connections are the most: a larger buffer costs each of them, and it grows when needed.
READ_BUFFER_BYTES: Final = 4096
# How far one turn of the loop may exceed the bound before the kernel was asked to take it.
UNTRIED_FACTOR: Final = 4
# A peer is behind when it has left this part of the bound unread.
BEHIND_PART: Final = 4

SLOW_READER: Final = 4408
CLOSE_CODES_NEVER_SENT: Final = frozenset({1004, 1005, 1006, 1015})

# The phases of a wire.
NEW, OPEN, CLOSING, DEAF, GONE = range(5)

parse_bytes = WSProtocol.buffer_updated

# picows says something about every connection, every broken frame and every error of a receiver,
# which is told to `on_error` anyway: only its own surprises count. An adapter, because for a plain
# logger it would make one more for each connection.
_picows_logger = logging.getLogger(f"{__name__}.picows")
_picows_logger.setLevel(logging.ERROR)
_picows_logger.addFilter(lambda record: str(record.msg).startswith("WS parser failure"))
PICOWS_LOG: Final = logging.LoggerAdapter(_picows_logger, {})


class Receiver(Protocol):
    """Who gets the messages of a wire; `lost` comes exactly once, and nothing comes after it."""

    def text(self, data: bytes) -> None:
        """Take a whole text message, not yet known to be UTF-8."""

    def binary(self, data: bytes) -> None:
        """Take a whole binary message."""

    def lost(self) -> None:
        """Learn that the wire has ended; never called from within a send or a close."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What one peer may cost. One message may be larger than `send_bytes_max` by itself."""

    message_bytes_max: int = 256 * 1024
    send_bytes_max: int = 256 * 1024
    ping_ms: int = 2000
    dead_ms: int = 6000


class Wire(WSListener):
    """One WebSocket of a peer; what is sent after its end is dropped, as `lost` tells of it."""

    __slots__ = (
        "_allowed",
        "_bytes_out",
        "_empty_frames",
        "_empty_since",
        "_frames",
        "_frames_out",
        "_goodbye",
        "_is_doubted",
        "_is_told",
        "_loop",
        "_on_error",
        "_on_lost",
        "_partial",
        "_partial_is_text",
        "_send_bytes_max",
        "_transport",
        "_unsent",
        "close_code",
        "is_paused",
        "last_heard",
        "last_ping",
        "limits",
        "phase",
        "receiver",
        "remote",
        "subprotocol",
    )

    def __init__(
        self,
        limits: WireLimits,
        remote: str,
        subprotocol: str | None,
        on_error: Callable[[BaseException], None],
        on_lost: Callable[[Wire], None],
    ) -> None:
        self.limits = limits
        # The peer's address as the socket tells it: never what a header claims.
        self.remote = remote
        self.subprotocol = subprotocol
        # Who gets the messages; replaced when the connection enters its next phase.
        self.receiver: Receiver
        # The code that ended it, sent or received; 1006 when it broke off; 0 while it lives.
        self.close_code = 0
        # Monotonic time of the last bytes from the peer, be they a whole frame or not.
        self.last_heard = monotonic()
        # Reading is held back by us: the peer's silence means nothing.
        self.is_paused = False

        self._on_error = on_error
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self.phase = NEW
        self._is_told = False
        self.last_ping = self.last_heard
        # The message whose fragments are coming in, else None.
        self._partial: bytearray | None = None
        self._partial_is_text = False
        # Frames without content since the second that began then.
        self._empty_frames = 0
        self._empty_since = 0.0
        # Ends a farewell that the peer does not answer.
        self._goodbye: asyncio.TimerHandle | None = None
        self._send_bytes_max = limits.send_bytes_max
        # More only while a message is on its way that is larger by itself.
        self._allowed = limits.send_bytes_max
        # Too much is unsent; whether that lasts is seen soon.
        self._is_doubted = False
        # Frames of this turn of the loop, and their bytes.
        self._frames_out: list[bytes] = []
        self._bytes_out = 0
        # Set by `attach`.
        self._transport: asyncio.Transport
        self._frames: WSTransport
        self._unsent: Callable[[], int]

    def attach(
        self, transport: asyncio.Transport, key: str, early: bytes, on_gone: Callable[[], None]
    ) -> None:
        """Answer the checked upgrade request and live on this transport from now on."""
        protocol = _Frames(self, on_gone)
        self._transport = transport
        self._unsent = transport.get_write_buffer_size
        protocol.connection_made(PicowsOutlet(transport, self._asked_to_close))
        transport.set_protocol(cast("asyncio.BaseProtocol", protocol))
        transport.resume_reading()
        protocol.feed(upgrade_request(key) + early)

    def send_text(self, data: bytes) -> None:
        """Send one text message, given as UTF-8."""
        if self.phase == OPEN:
            self._send(TEXT, data)

    def send_binary(self, data: bytes) -> None:
        """Send one binary message."""
        if self.phase == OPEN:
            self._send(BINARY, data)

    def send_parts(self, parts: tuple[bytes, ...], *, is_binary: bool) -> None:
        """Send one message that is given in parts, which are not copied if they are large."""
        if self.phase == OPEN:
            size = sum(map(len, parts))
            if not self._frames_out:
                self._loop.call_soon(self._flush)
            self._frames_out += (header_of(BINARY if is_binary else TEXT, size), *parts)
            self._bytes_out += size
            self._check_unsent(size)

    def close(self, code: int, reason: str) -> None:
        """Say goodbye with this code; the wire ends when the peer answers, or soon after."""
        assert self.phase != NEW, "a wire that is not accepted yet is refused, not closed"
        if self.phase == OPEN:
            self._say_goodbye(code, reason)
            self.phase = CLOSING

    def abort(self) -> None:
        """End the wire now, with nothing said and nothing flushed."""
        if self.phase != GONE:
            self.phase = DEAF
            self._frames_out.clear()
            self._transport.abort()

    def pause(self) -> None:
        """Read no more until `resume`: what the peer sends waits in its socket."""
        if self.phase == OPEN and not self.is_paused:
            self.is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again; the peer's silence counts from now."""
        if self.is_paused:
            self.is_paused = False
            self.last_heard = monotonic()
            if self.phase == OPEN:
                self._transport.resume_reading()

    @property
    def is_open(self) -> bool:
        """Whether what is sent now is still on its way to the peer."""
        return self.phase == OPEN

    @property
    def is_behind(self) -> bool:
        """Whether the peer has not read so much that large messages had better wait for it."""
        return self.buffered > self._send_bytes_max // BEHIND_PART

    @property
    def buffered(self) -> int:
        """Bytes that were sent here and that the kernel did not take yet."""
        return 0 if self.phase in {NEW, GONE} else self._unsent() + self._bytes_out

    def ping(self, now: float) -> None:
        """Ask for a sign of life."""
        self.last_ping = now
        if self.phase == OPEN:
            self._send(PING, b"")

    # What picows calls.

    def welcome(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:  # noqa: ARG002
        """Answer the upgrade, which the front has checked, with the chosen subprotocol."""
        chosen = {"Sec-WebSocket-Protocol": self.subprotocol} if self.subprotocol else None
        return WSUpgradeResponseWithListener(WSUpgradeResponse.create_101_response(chosen), self)

    def on_ws_connected(self, transport: WSTransport) -> None:
        """Begin: the answer to the upgrade is on its way."""
        self._frames = transport
        self.phase = OPEN

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:  # noqa: ARG002
        """Take one frame: a whole message in most cases."""
        kind = frame.msg_type
        if self.phase != OPEN:
            if kind is WSMsgType.CLOSE and self.phase == CLOSING:
                self._hang_up()
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.close(1002, "reserved bits set")
        elif kind is WSMsgType.BINARY and frame.fin and self._partial is None:
            self._deliver(frame.get_payload_as_bytes(), is_text=False)
        elif kind is WSMsgType.TEXT and frame.fin and self._partial is None:
            self._deliver(frame.get_payload_as_bytes(), is_text=True)
        else:
            self._take_rare_frame(kind, frame)

    def on_ws_disconnected(self, transport: WSTransport) -> None:  # noqa: ARG002
        """End: the socket is closed, by whomever."""
        self.phase = GONE
        self.close_code = self.close_code or 1006
        if self._goodbye is not None:
            self._goodbye.cancel()
        self._tell_lost()

    def pause_writing(self) -> None:
        """Nothing: the bound on unsent bytes is our own, checked at each send."""

    def resume_writing(self) -> None:
        """Nothing, as above."""

    # Sending.

    def _send(self, first: int, data: bytes) -> None:
        self._write(first, data)
        self._check_unsent(len(data))

    def _check_unsent(self, newest: int) -> None:
        """Doubt a peer that has left too much unread; the newest message alone is not too much."""
        unsent = self._unsent() + self._bytes_out
        if unsent <= self._send_bytes_max:
            return
        if unsent - newest <= self._send_bytes_max // BEHIND_PART:
            self._allowed = unsent + self._send_bytes_max
        if unsent > self._allowed:
            self._doubt(unsent)

    def _write(self, first: int, data: bytes) -> None:
        """Make one frame (a server's have no mask) and let it leave after this turn of the loop."""
        size, frames = len(data), self._frames_out
        if not frames:
            self._loop.call_soon(self._flush)
        if size < COPIED_BYTES_MAX:
            frames.append(header_of(first, size) + data)
        else:
            frames += (header_of(first, size), data)
        self._bytes_out += size

    def _flush(self) -> None:
        frames, size = self._frames_out, self._bytes_out
        if not frames:
            return
        self._frames_out, self._bytes_out = [], 0
        if self.phase == GONE:
            return
        if self._allowed != self._send_bytes_max and not self._unsent():
            self._allowed = self._send_bytes_max
        if len(frames) == 1:
            self._transport.write(frames[0])
        elif size < COPIED_BYTES_MAX:
            self._transport.write(b"".join(frames))
        else:
            # Not joined: what goes to many is in memory once, however slowly they read it.
            self._transport.writelines(frames)

    def _doubt(self, unsent: int) -> None:
        """Ask again after this turn of the loop, whose writes have not been tried yet."""
        if unsent > UNTRIED_FACTOR * self._allowed:
            self._drop_if_slow()
        elif not self._is_doubted:
            self._is_doubted = True
            self._loop.call_later(0, self._drop_if_slow)

    def _drop_if_slow(self) -> None:
        """Part with a peer that does not read: its backlog is all the memory it gets."""
        self._is_doubted = False
        if self.buffered > self._allowed:
            self.drop_slow()

    def drop_slow(self) -> None:
        """Part with a peer that reads too slowly."""
        if self.phase == OPEN:
            self._say_goodbye(SLOW_READER, "slow reader")
            self._flush()
            self.phase = DEAF
            # Flushes, so that a peer that reads on within the bound learns why; stops reading.
            self._transport.close()
            # Soon and not here: the receiver is likely the one that is sending just now.
            self._loop.call_soon(self._tell_lost)

    def _say_goodbye(self, code: int, reason: str) -> None:
        self.close_code = code
        self._write(CLOSE, code.to_bytes(2, "big") + short_reason(reason))
        self._expect_end()

    def _expect_end(self) -> None:
        if self._goodbye is None:
            self._goodbye = self._loop.call_later(GOODBYE_S, self.abort)

    # Receiving.

    def _deliver(self, data: bytes, *, is_text: bool) -> None:
        try:
            if is_text:
                self.receiver.text(data)
            else:
                self.receiver.binary(data)
        except BaseException as error:
            self._on_error(error)
            self.close(1011, "internal error")
            raise

    def _take_rare_frame(self, kind: WSMsgType, frame: WSFrame) -> None:
        if kind is WSMsgType.CLOSE:
            self._take_close(frame.get_payload_as_bytes())
        elif kind is WSMsgType.PING:
            self._send(PONG, frame.get_payload_as_bytes())
            self._count_empty_frame()
        elif kind is WSMsgType.PONG:
            self._count_empty_frame()
        else:
            self._take_fragment(kind, frame)

    def _take_fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        is_first = kind is not WSMsgType.CONTINUATION
        if is_first == (self._partial is not None):
            self.close(1002, "a message in another" if is_first else "nothing to continue")
            return
        if is_first:
            self._partial = bytearray()
            self._partial_is_text = kind is WSMsgType.TEXT
        partial = self._partial
        assert partial is not None
        if len(partial) + frame.payload_size > self.limits.message_bytes_max:
            self._partial = None
            self.close(1009, "message too big")
            return
        partial += frame.get_payload_as_memoryview()
        if frame.fin:
            self._partial = None
            self._deliver(bytes(partial), is_text=self._partial_is_text)
        elif not frame.payload_size:
            self._count_empty_frame()

    def _take_close(self, payload: bytes) -> None:
        """Answer the peer's goodbye with its own code."""
        code = int.from_bytes(payload[:2], "big") if payload else 1005
        if payload and not (1000 <= code < 5000 and code not in CLOSE_CODES_NEVER_SENT):
            self._say_goodbye(1002, "invalid close code")
            self._fall_silent()
            return
        self.close_code = code
        self._write(CLOSE, payload[:2])
        self._hang_up()

    def _hang_up(self) -> None:
        """Close the socket once what is buffered has left it."""
        self._flush()
        self.phase = DEAF
        self._expect_end()
        self._transport.close()

    def _count_empty_frame(self) -> None:
        if self.last_heard - self._empty_since >= 1:
            self._empty_since = self.last_heard
            self._empty_frames = 0
        self._empty_frames += 1
        if self._empty_frames > EMPTY_FRAMES_PER_S_MAX:
            self.close(1008, "too many empty frames")

    # Ending.

    def end_after_refusal(self) -> None:
        """End after picows found a broken or oversized frame and has sent its close frame."""
        self.close_code = int(cast("Any", self._frames.close_handshake.sent).code)
        self._expect_end()
        self._fall_silent()

    def _fall_silent(self) -> None:
        """Send no more, and throw away for a while what still comes.

        Closing at once would reset the connection, and the peer might never see the code.
        """
        self._flush()
        self.phase = DEAF
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _asked_to_close(self) -> None:
        """Keep picows from closing: it would not wait, and in every phase but one we do it."""
        if self.phase == NEW:
            self._transport.abort()

    def _tell_lost(self) -> None:
        if self._is_told:
            return
        self._is_told = True
        self._partial = None
        self._on_lost(self)
        try:
            self.receiver.lost()
        except BaseException as error:
            self._on_error(error)
            raise


class Watch:
    """Looks at all wires by one timer: pings the quiet ones, aborts those that are dead."""

    def __init__(self) -> None:
        # Peers found dead, and how often all were looked at, since the start.
        self.found_dead = 0
        self.looks = 0

        self._loop = asyncio.get_running_loop()
        # By limits, so that one comparison per wire finds the few that need a second look.
        self._wires: dict[WireLimits, set[Wire]] = {}
        self._next_look = monotonic() + WATCH_S
        self._timer = self._loop.call_later(WATCH_S, self._look)

    def add(self, wire: Wire) -> None:
        """Watch this wire from now on."""
        self._wires.setdefault(wire.limits, set()).add(wire)

    def discard(self, wire: Wire) -> None:
        """Watch this wire no longer."""
        self._wires.get(wire.limits, set()).discard(wire)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = monotonic()
        self.looks += 1
        self._forgive_own_stall(now - self._next_look)
        for limits, wires in self._wires.items():
            quiet_since = now - limits.ping_ms / 1000
            for wire in [wire for wire in wires if wire.last_heard <= quiet_since]:
                self._ask(wire, now)
        self._next_look = now + WATCH_S
        self._timer = self._loop.call_later(WATCH_S, self._look)

    def _ask(self, wire: Wire, now: float) -> None:
        if wire.is_paused or not wire.is_open:
            return
        if (now - wire.last_heard) * 1000 >= wire.limits.dead_ms:
            self.found_dead += 1
            wire.abort()
        elif (now - wire.last_ping) * 1000 >= wire.limits.ping_ms:
            wire.ping(now)

    def _forgive_own_stall(self, late_s: float) -> None:
        """Count no silence while our own loop stood still: what the peers sent is yet unread."""
        if late_s > WATCH_S:
            for wires in self._wires.values():
                for wire in wires:
                    wire.last_heard += late_s


class _Frames(WSProtocol):  # type: ignore[misc]
    """The parser of picows, with an ear for every byte and an eye on its own refusals."""

    __slots__ = ("_on_gone", "_wire")

    def __init__(self, wire: Wire, on_gone: Callable[[], None]) -> None:
        self._wire = wire
        # Told when the socket is closed; `lost` may have come earlier.
        self._on_gone = on_gone
        super().__init__(
            None,  # the address and
            None,  # the path are a client's
            False,  # noqa: FBT003 - not a client
            wire.welcome,
            PICOWS_LOG,
            False,  # noqa: FBT003 - an exception is ours to answer: it would say goodbye twice
            None,  # no bound on the handshake: the whole request is here
            False,  # noqa: FBT003 - no pings: one `Watch` is cheaper than a task for each
            1,
            1,
            WSAutoPingStrategy.PING_WHEN_IDLE,
            False,  # noqa: FBT003 - no pongs: they must count as unsent bytes too
            wire.limits.message_bytes_max,
            None,  # extra headers are a client's
            READ_BUFFER_BYTES,
        )

    def buffer_updated(self, nbytes: int) -> None:
        """Let picows parse what is in its buffer, unless nobody listens any more."""
        wire = self._wire
        wire.last_heard = monotonic()
        if wire.phase == DEAF:
            return  # unparsed and uncounted: the next bytes overwrite these
        parse_bytes(self, nbytes)
        if self.transport.is_close_frame_sent and wire.phase == OPEN:
            wire.end_after_refusal()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the wire, by way of picows, and then whoever counts connections."""
        super().connection_lost(exc)
        self._on_gone()

    def feed(self, data: bytes) -> None:
        """Take bytes that were read before this protocol had the transport."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            self.buffer_updated(count)
            rest = rest[count:]
