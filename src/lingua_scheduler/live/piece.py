"""An utterance between its cut and the store: what was said, how it was cut, and for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from lingua_scheduler.live.profile import Profile, Target


class StreamEnd(NamedTuple):
    """Up to where a stream is admitted: the last chunk, its end, and how much of it became jobs."""

    seq: int = -1
    end_ms: int = 0
    speech_ms: int = 0


STREAM_BEGIN = StreamEnd()


@dataclass(slots=True)
class Piece:
    """An utterance on its way to the store."""

    index: int
    audio: bytes
    profile: Profile
    # Which languages, and who hears each: as it was when the utterance was cut.
    targets: tuple[Target, ...]
    trace_id: str
    trigger: str
    speech_end_ms: float
    cut_ms: float
    start_ms: int = 0
    end_ms: int = 0
    turn: str = ""
    # A slice of a longer speech, or the piece that closes one: its jobs belong on one node.
    in_turn: bool = False
    is_slice: bool = False
    first_seq: int | None = None
    last_seq: int | None = None
    first_client_ts_ms: int | None = None
    requested_index: int | None = None
    request_id: str | None = None
    # Who reads it as it was spoken; the store is being asked who hears it.
    readers: str = ""
    is_asking: bool = False
    sound: str = ""
    # Languages the store has not answered for yet, and whether it took any.
    unanswered: int = 0
    is_taken: bool = False
    accepted: bool = False
    # Where what was said before it ends, if its client may come back and go on from there.
    before: StreamEnd = STREAM_BEGIN
