"""Writes the frames of one WebSocket: batched by turn of the event loop, with a bound on backlog.

Frames that are written within one turn of the loop leave in one system call. The bytes that the
peer has not read are bounded: a peer that stays over the bound is reported to `on_slow`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lingua_scheduler.edge.frames import COPIED_BYTES_MAX, MEDIUM_HEADER, header_of
from lingua_scheduler.pending_writes import pending_writes

if TYPE_CHECKING:
    from collections.abc import Callable

# How far one turn of the loop may exceed the bound before the kernel was offered the bytes.
UNTRIED_FACTOR: Final = 4
# A peer is behind when its unread bytes exceed this fraction (1/4) of the bound.
BEHIND_PART: Final = 4


class FrameWriter:
    """The outgoing side of one WebSocket."""

    __slots__ = (
        "_allowed",
        "_behind_bytes",
        "_bytes",
        "_frames",
        "_is_check_pending",
        "_is_ended",
        "_loop",
        "_on_slow",
        "_send_bytes_max",
        "_transport",
        "_unsent",
        "_writes",
    )

    def __init__(
        self, transport: asyncio.Transport, send_bytes_max: int, on_slow: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._unsent = transport.get_write_buffer_size
        self._loop = asyncio.get_running_loop()
        self._writes = pending_writes()
        # Called when the peer has left too many bytes unread.
        self._on_slow = on_slow
        self._send_bytes_max = send_bytes_max
        self._behind_bytes = send_bytes_max // BEHIND_PART
        # Higher than `send_bytes_max` only while a single larger message is being sent.
        self._allowed = send_bytes_max
        # The backlog exceeds the bound; the next turn of the loop decides whether it stays so.
        self._is_check_pending = False
        # Frames written in this turn of the loop, and the bytes of their payloads.
        self._frames: list[bytes] = []
        self._bytes = 0
        self._is_ended = False

    @property
    def is_empty(self) -> bool:
        """Whether every frame has been handed to the transport."""
        return not self._frames

    @property
    def buffered(self) -> int:
        """Bytes that were written here and that the kernel has not accepted yet."""
        return 0 if self._is_ended else self._unsent() + self._bytes

    @property
    def is_behind(self) -> bool:
        """Whether the peer has so many unread bytes that large messages should wait."""
        return not self._is_ended and self._unsent() + self._bytes > self._behind_bytes

    def send(self, first: int, data: bytes) -> None:
        """Write one frame and check the backlog; it leaves after this turn of the loop."""
        size, frames = len(data), self._frames
        if not frames:
            self._writes.add(self.flush)
        if size < 126:
            frames.append(bytes((first, size)) + data)
        elif size < COPIED_BYTES_MAX:
            frames.append(MEDIUM_HEADER(first, 126, size) + data)
        else:
            frames += (header_of(first, size), data)
        self._bytes += size
        if self._unsent() + self._bytes > self._send_bytes_max:
            self._check_backlog(size)

    def send_parts(self, first: int, parts: tuple[bytes, ...]) -> None:
        """Write one frame whose payload is given in parts; large parts are not copied."""
        size = sum(map(len, parts))
        if not self._frames:
            self._writes.add(self.flush)
        self._frames += (header_of(first, size), *parts)
        self._bytes += size
        self._check_backlog(size)

    def write(self, first: int, data: bytes) -> None:
        """Write one short frame without a backlog check; it leaves after this turn of the loop."""
        if not self._frames:
            self._writes.add(self.flush)
        self._frames.append(header_of(first, len(data)) + data)
        self._bytes += len(data)

    def flush(self) -> None:
        """Hand all frames to the transport now."""
        frames, size = self._frames, self._bytes
        if not frames:
            return
        self._frames, self._bytes = [], 0
        if self._allowed != self._send_bytes_max and not self._unsent():
            self._allowed = self._send_bytes_max
        if len(frames) == 1:
            self._transport.write(frames[0])
        elif size < COPIED_BYTES_MAX:
            self._transport.write(b"".join(frames))
        else:
            # Not joined: a message to many peers is in memory once, however slowly they read it.
            self._transport.writelines(frames)

    def discard(self) -> None:
        """Drop the frames that were not handed to the transport."""
        self._frames.clear()

    def end(self) -> None:
        """Drop everything: the socket is closed."""
        self._frames.clear()
        self._is_ended = True

    def _check_backlog(self, newest: int) -> None:
        """Suspect a peer that has too much unread; the newest message alone is not too much."""
        unsent = self._unsent() + self._bytes
        if unsent <= self._send_bytes_max:
            return
        if unsent - newest <= self._behind_bytes:
            self._allowed = unsent + self._send_bytes_max
        if unsent > self._allowed:
            self._suspect(unsent)

    def _suspect(self, unsent: int) -> None:
        """Check again after this turn of the loop: the kernel was not offered its writes yet."""
        if unsent > UNTRIED_FACTOR * self._allowed:
            self._report_if_slow()
        elif not self._is_check_pending:
            self._is_check_pending = True
            self._loop.call_later(0, self._report_if_slow)

    def _report_if_slow(self) -> None:
        self._is_check_pending = False
        if self.buffered > self._allowed:
            self._on_slow()
