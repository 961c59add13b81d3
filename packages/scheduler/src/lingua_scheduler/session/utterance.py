"""An utterance between its cut and the store: its audio, how it was cut, and its audience. Pure.

One object from the segmenter to the job: whoever knows more of an utterance adds it. It is flat,
because one is made for every utterance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

ProfileT = TypeVar("ProfileT")

# What ends an utterance; `whole`: it came as one message.
Trigger = Literal[
    "manual", "timeout", "sentence", "max_duration", "max_bytes", "session_close", "whole"
]
# Those of them after which the turn continues.
SLICES: Final = frozenset({"max_duration", "max_bytes"})


class Target(NamedTuple):
    """One job of an utterance: its lane, its target language, and its audience."""

    lane: str
    language: str
    # Empty: the speaker. Else the listeners of a room, `cell/session` of each with spaces between.
    audience: str = ""
    # Nobody listens to it, some read it: it needs no speech, and in the language that is spoken no
    # translation either.
    is_read: bool = False


class UtteranceStream(Protocol):
    """The stream in which a node heard an utterance while it was spoken."""

    @property
    def id(self) -> str:
        """Return its id."""

    @property
    def holder(self) -> str:
        """Return `cell/node` of the node."""


class StreamPosition(NamedTuple):
    """Up to where a stream is submitted: last chunk, its end, and how much of it became jobs."""

    seq: int = -1
    end_ms: int = 0
    speech_ms: int = 0


STREAM_START = StreamPosition()


class UtteranceCut(msgspec.Struct, Generic[ProfileT], kw_only=True):
    """One utterance, never empty; positions count the session's admitted audio."""

    audio: bytes
    trigger: Trigger
    # Where in the stream it lies; whole utterances have no chunks.
    start_ms: int = 0
    end_ms: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    # The client's clock at the first chunk of it.
    first_client_ts_ms: int | None = None
    # Server clock of the last chunk in it, and of the cut.
    speech_end_ms: float = 0.0
    cut_ms: float = 0.0
    # Its place in a turn: slices of a longer speech stay together, with the part that ends it.
    # Turns of a stream count from 0; the id is the same on any instance.
    turn: int = 0
    turn_id: str = ""
    in_turn: bool = False
    # It was cut by length, so that the turn continues.
    is_slice: bool = False
    # Its number in the session; -1: not numbered yet.
    index: int = -1
    # What the session speaks and wants, from when it is numbered on.
    profile: ProfileT = cast("ProfileT", None)
    trace_id: str = ""
    # How the client names a whole utterance: request id, digest, and requested index.
    request_id: str | None = None
    sound: str = ""
    requested_index: int | None = None
    # Called with the node's id when a node gets or accepts a job of it.
    on_node: Callable[[str], None] | None = None
    # The languages and the audience of each, as they were when the utterance was cut.
    targets: tuple[Target, ...] = ()
    # Members who read it as it was spoken.
    readers: str = ""
    # The store is being asked for the audience.
    is_addressing: bool = False
    # Languages without an answer of the store, and whether it took any.
    unanswered: int = 0
    is_taken: bool = False
    is_accepted_sent: bool = False
    # Where the audio before it ends, if its client may resume from there.
    before: StreamPosition = STREAM_START
    # The node that heard it while it was spoken.
    stream: UtteranceStream | None = None

    @property
    def closes_turn(self) -> bool:
        """Tell whether it is the last piece of its turn."""
        return not self.is_slice

    @property
    def length_ms(self) -> int:
        """Return how long it is."""
        return max(0, self.end_ms - self.start_ms)

    @property
    def is_streamed(self) -> bool:
        """Tell whether it was cut from the stream."""
        return self.last_seq is not None

    def addressing(self) -> None:
        """Note that the store is being asked for its audience."""
        self.is_addressing = True

    def address(
        self, targets: tuple[Target, ...], readers: str = "", profile: ProfileT | None = None
    ) -> None:
        """Note its audience and languages."""
        self.targets, self.readers = targets, readers
        self.profile = profile or self.profile
        self.is_addressing = False

    def follow(self, before: StreamPosition) -> None:
        """Note where the audio before it ends."""
        self.before = before

    def submitted(self, answers: int) -> None:
        """Note how many answers of the store are outstanding."""
        self.unanswered = answers

    def answered(self, is_taken: bool) -> None:
        """Note one answer of the store."""
        self.unanswered -= 1
        self.is_taken = self.is_taken or is_taken

    def taken(self) -> None:
        """Note that it needs no answer of the store."""
        self.is_taken = True

    def close_turn(self) -> None:
        """Let it close its turn: nothing of the turn follows."""
        self.is_slice = False

    def first_acceptance(self) -> bool:
        """Tell whether its acceptance has not been reported yet, and note that it is now."""
        is_first, self.is_accepted_sent = not self.is_accepted_sent, True
        return is_first

    def again(self, index: int, now_ms: float) -> UtteranceCut[ProfileT]:
        """Return it as it is submitted anew, late: no part of its turn any more."""
        return msgspec.structs.replace(
            self,
            index=index,
            speech_end_ms=now_ms,
            cut_ms=now_ms,
            in_turn=False,
            is_slice=False,
            is_accepted_sent=False,
        )
