"""An utterance between its cut and the store: its audio, how it was cut, and its audience."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.jobs.profile import Profile, Target
    from lingua_scheduler.state.stream_scripts import OpenedStream


class StreamPosition(NamedTuple):
    """Up to where a stream is submitted: last chunk, its end, and how much of it became jobs."""

    seq: int = -1
    end_ms: int = 0
    speech_ms: int = 0


STREAM_START = StreamPosition()


class PendingUtterance(msgspec.Struct, eq=False, kw_only=True):
    """An utterance on its way to the store: flat, because one is made for every utterance."""

    index: int
    audio: bytes
    profile: Profile
    trace_id: str
    trigger: str
    speech_end_ms: float
    cut_ms: float
    # Where in the stream it lies; whole utterances have no chunks.
    start_ms: int = 0
    end_ms: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    first_client_ts_ms: int | None = None
    # Its place in a turn: slices of a longer speech stay together, with the part that ends it.
    turn: str = ""
    in_turn: bool = False
    is_slice: bool = False
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
    stream: OpenedStream | None = None

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
        self, targets: tuple[Target, ...], readers: str = "", profile: Profile | None = None
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

    def answered(self, *, is_taken: bool) -> None:
        """Note one answer of the store."""
        self.unanswered -= 1
        self.is_taken |= is_taken

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

    def again(self, index: int, now_ms: float) -> PendingUtterance:
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
