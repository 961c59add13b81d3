"""A job while its instance is alive: what is pushed to nodes, and when each step happened.

The record that counts is the store's; this one saves reading it back and carries the marks of the
timeline. It ends with the delivery of the job's outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.live.piece import STREAM_BEGIN, StreamEnd
from lingua_scheduler.messages.to_node import JobAssign  # noqa: TC001 msgspec reads it
from lingua_scheduler.session.timeline import Marks

if TYPE_CHECKING:
    from lingua_scheduler.live.remote import RemoteSession
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import JobSpec


class JobBody(msgspec.Struct, frozen=True, array_like=True):
    """What the store keeps of a job for whoever pushes it, but for the audio."""

    assign: JobAssign
    lanes: int = 1
    # When the speech ended and when it was cut, by the owner's wall clock; 0: not known.
    speech_end_at_ms: int = 0
    cut_at_ms: int = 0


encode_body = msgspec.msgpack.Encoder().encode
decode_body = msgspec.msgpack.Decoder(JobBody).decode


@dataclass(slots=True)
class LiveJob:
    """One utterance into one language."""

    id: str
    home: Cell
    spec: JobSpec
    # Everything a node is told, but for the attempt and the audio.
    assign: JobAssign
    audio: bytes
    session: LiveSession | RemoteSession
    # How many languages the utterance goes into; some old nodes must not be told two of one index.
    lanes: int = 1
    marks: Marks = field(default_factory=Marks)
    first_client_ts_ms: int | None = None
    received_at_ms: int = 0
    # The current attempt as this instance knows it.
    attempt: int = 0
    node: str = ""
    state: str = "pending"
    # What the store was last told of this attempt, to tell it only what lasts.
    marked: str = ""
    pushed_at_ms: int = 0
    # When the time of this attempt is over, by this instance's clock; 0 if that is not known.
    ends_ms: float = 0
    # Its admission is under way: the store's answer is not here yet.
    entering: bool = False
    # The store has it from us, or may have: then a duplicate is this very job.
    may_be_in: bool = False
    # The speaker has been told that it failed.
    told: bool = False
    # Its node, on another instance, is an old one that keeps slices in silence.
    is_kept: bool = False
    # What its client calls it, if it does.
    request_id: str | None = None
    # Where what was said before it ends (see `Piece`).
    before: StreamEnd = STREAM_BEGIN

    def body(self) -> bytes:
        """Return what any instance needs to push this job, but for the audio."""
        if not self.spec.audience:
            return encode_body(JobBody(self.assign, self.lanes))
        wall_ms = self.received_at_ms - self.marks.submit
        at = (round(mark + wall_ms) for mark in (self.marks.speech_end, self.marks.cut))
        return encode_body(JobBody(self.assign, self.lanes, *at))

    def store_lost(self) -> None:
        """The store cannot be reached: its client is told, now and then."""
        self.session.teller.store_lost()
