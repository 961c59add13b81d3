"""A job while its instance is alive: what is pushed to nodes, and when each step happened.

The record that counts is the store's; this one saves reading it back and carries the marks of the
timeline. It ends with the delivery of the job's outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

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
    # Who hears the result besides: None is the speaker alone, a tuple is listeners of a room.
    listeners: tuple[str, ...] | None = None
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
    # Its admission is under way: the store's answer is not here yet.
    entering: bool = False
    # The store has it from us, or may have: then a duplicate is this very job.
    may_be_in: bool = False
    # The speaker has been told that it failed.
    told: bool = False
    # Its node, on another instance, is an old one that keeps slices in silence.
    is_kept: bool = False

    def body(self) -> bytes:
        """Return what any instance needs to push this job, but for the audio."""
        return encode_body(JobBody(self.assign, self.lanes))

    def store_lost(self) -> None:
        """The store cannot be reached: its client is told, now and then."""
        self.session.teller.store_lost()
