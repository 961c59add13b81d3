"""One utterance as a node hears it while it is spoken: its state, and what was sent of it.

    OPENING ──> OPEN ──> OVER
       └──────────────────^

OPENING: the store looks for a node. OPEN: the node gets the audio as it comes. OVER: the utterance
was cut, the stream was lost, or nobody needs it any more; late messages about it are ignored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from lingua_scheduler.transitions import IllegalTransition
from lingua_wire.to_node import StreamAudio, StreamEnd

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.stream_scripts import OpenedStream
    from lingua_wire.from_node import StreamPartial
    from lingua_wire.to_node import StreamOpen

# More than any utterance has: nothing is sent before the stream is open.
NEVER_BYTES: Final = 1 << 62


class StreamState(StrEnum):
    """Where a stream is in its life."""

    OPENING = "opening"
    OPEN = "open"
    OVER = "over"


TRANSITIONS: Final[dict[StreamState, frozenset[StreamState]]] = {
    StreamState.OPENING: frozenset({StreamState.OPEN, StreamState.OVER}),
    StreamState.OPEN: frozenset({StreamState.OVER}),
    StreamState.OVER: frozenset(),
}


class StreamingRecord(Protocol):
    """What identifies a session."""

    @property
    def id(self) -> str:
        """Return the session's id."""

    @property
    def home(self) -> Cell:
        """Return the cell of the session."""

    @property
    def fence(self) -> int:
        """Return the number of this owner."""

    @property
    def trace_id(self) -> str:
        """Return the trace of the session."""


class StreamOutlet(Protocol):
    """The way to the node that listens, here or on another instance."""

    @property
    def chunk_ms(self) -> int:
        """Return the least audio that is worth a message."""

    def open(self, message: StreamOpen) -> bool:
        """Let the node listen; tells whether it could be asked."""

    def feed(self, message: StreamAudio, at_bytes: int) -> bool:
        """Send audio that begins so far in the stream; tells whether that was possible."""

    def end(self, message: StreamEnd) -> None:
        """Let the node listen no longer."""


class StreamListener(Protocol):
    """The session whose speech is heard."""

    def opened(self, stream: SpeechStream) -> None:
        """Send what was spoken so far."""

    def refused(self, stream: SpeechStream, retry_at_ms: float) -> None:
        """Note that no node listens, and when to ask again."""

    def heard(self, stream: SpeechStream, partial: StreamPartial) -> None:
        """Use the text so far."""

    def lost(self, stream: SpeechStream) -> None:
        """Note that the node listens no longer."""


class SpeechStream:
    """The head start of one utterance."""

    __slots__ = (
        "_outlet",
        "fed_at_ms",
        "id",
        "lease",
        "listener",
        "revision",
        "sent_bytes",
        "sent_chunks",
        "start_ms",
        "state",
        "step_bytes",
    )

    def __init__(self, stream_id: str, listener: StreamListener, start_ms: int) -> None:
        self.id = stream_id
        self.listener = listener
        # Where its utterance begins in the session's audio.
        self.start_ms = start_ms
        self.state = StreamState.OPENING
        # Who listens, as the store knows it.
        self.lease: OpenedStream | None = None
        self._outlet: StreamOutlet | None = None
        self.sent_chunks = 0
        self.sent_bytes = 0
        # The least audio that is sent at once.
        self.step_bytes = NEVER_BYTES
        self.fed_at_ms = 0.0
        # Of the newest partial.
        self.revision = -1

    @property
    def is_open(self) -> bool:
        """Tell whether its node listens."""
        return self.state is StreamState.OPEN

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more is sent or heard."""
        return self.state is StreamState.OVER

    def move(self, state: StreamState) -> None:
        """Go to another state."""
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransition("stream", self.state, state)
        self.state = state

    def opened(self, lease: OpenedStream, outlet: StreamOutlet, step_bytes: int) -> None:
        """Note who listens, and how much audio is sent at once."""
        self.move(StreamState.OPEN)
        self.lease, self._outlet, self.step_bytes = lease, outlet, step_bytes

    def feed(self, audio: bytes, chunks: int, now_ms: float) -> bool:
        """Send the next audio; tells whether that was possible."""
        assert self._outlet is not None
        is_fed = self._outlet.feed(StreamAudio(stream_id=self.id, audio=audio), self.sent_bytes)
        self.sent_bytes += len(audio)
        self.sent_chunks = chunks
        self.fed_at_ms = now_ms
        return is_fed

    def is_newer(self, partial: StreamPartial) -> bool:
        """Tell whether a partial is newer than all before, and note that it came."""
        if partial.revision <= self.revision:
            return False
        self.revision = partial.revision
        return True

    def end(self, reason: str, audio_bytes: int | None = None) -> None:
        """Let its node listen no longer, if one does."""
        self.move(StreamState.OVER)
        if self._outlet is not None:
            self._outlet.end(StreamEnd(stream_id=self.id, reason=reason, audio_bytes=audio_bytes))

    def lost(self) -> None:
        """Note that its node is gone."""
        self.move(StreamState.OVER)
