"""Assembles fragmented WebSocket messages, and bounds the frames that carry no payload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from picows import WSMsgType

from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from picows import WSFrame

# Pings, pongs and empty fragments have no content that a receiver could count and limit.
EMPTY_FRAMES_PER_S_MAX: Final = 100


class FrameRefused(LinguaError):
    """A frame ends the connection with this close code."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{code} {reason}")


class FragmentAssembler:
    """The message of one peer whose fragments are arriving."""

    __slots__ = ("_empty_frames", "_empty_since", "_message_bytes_max", "is_text", "partial")

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        # The fragments received so far; None between messages.
        self.partial: bytearray | None = None
        self.is_text = False
        # Frames without payload since the start of the current second.
        self._empty_frames = 0
        self._empty_since = 0.0

    def add(self, kind: WSMsgType, frame: WSFrame, now: float) -> bytes | None:
        """Add a fragment; return the message if this was its last, or raise `FrameRefused`."""
        is_first = kind is not WSMsgType.CONTINUATION
        if is_first == (self.partial is not None):
            raise FrameRefused(1002, "a message in another" if is_first else "nothing to continue")
        if is_first:
            self.partial = bytearray()
            self.is_text = kind is WSMsgType.TEXT
        partial = self.partial
        assert partial is not None
        if len(partial) + frame.payload_size > self._message_bytes_max:
            self.partial = None
            raise FrameRefused(1009, "message too big")
        partial += frame.get_payload_as_memoryview()
        if frame.fin:
            self.partial = None
            return bytes(partial)
        if not frame.payload_size:
            self.count_empty(now)
        return None

    def count_empty(self, now: float) -> None:
        """Count a frame without payload; raise `FrameRefused` if there are too many."""
        if now - self._empty_since >= 1:
            self._empty_since = now
            self._empty_frames = 0
        self._empty_frames += 1
        if self._empty_frames > EMPTY_FRAMES_PER_S_MAX:
            raise FrameRefused(1008, "too many empty frames")
