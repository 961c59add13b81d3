"""A job on this instance: what the store and nodes are sent of it, and whom it reports to.

The authoritative record is in the store. This one saves reading it back. It ends when the outcome
of the job is delivered. Its state and its attempts are in `job_run.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lingua_scheduler.jobs.job import JobState
from lingua_scheduler.jobs.result_format import decode_result
from lingua_scheduler.session.utterance import STREAM_START, StreamPosition
from lingua_wire.to_node import JobAssign  # noqa: TC001 msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.peers.messages import PartSpoken
    from lingua_scheduler.runtime.job_run import JobRun
    from lingua_scheduler.session.timeline import Marks
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import JobSpec
    from lingua_wire.to_client import TranslationResult


# Looked up once, not for every report.
ACCEPTED: Final = JobState.ACCEPTED
RUNNING: Final = JobState.RUNNING


class JobBody(msgspec.Struct, frozen=True, array_like=True):
    """What the store keeps of a job for the instance that pushes it, without the audio."""

    assign: JobAssign
    lanes: int = 1
    # When the speech ended and when it was cut, by the owner's wall clock; 0: not known.
    speech_end_at_ms: int = 0
    cut_at_ms: int = 0


encode_body = msgspec.msgpack.Encoder().encode
decode_body = msgspec.msgpack.Decoder(JobBody).decode
_decode_any = msgspec.msgpack.Decoder(JobBody | str).decode


def trace_in(body: bytes) -> str:
    """Return the trace of a job by what the store keeps of it: its body, or the trace alone."""
    found = _decode_any(body)
    return found if isinstance(found, str) else found.assign.trace_id


class JobNotifier(Protocol):
    """What a job reports to its client while it runs."""

    def event(self, job: LiveJob, event: str) -> None:
        """Report a step of the job."""

    def partial(self, job: LiveJob, text: str, *, is_final: bool) -> None:
        """Pass on the text recognised so far."""

    def part(self, job: LiveJob, part: PartSpoken) -> None:
        """Pass on a part of the spoken translation before the outcome."""

    def failed(self, job: LiveJob, reason: str) -> None:
        """Report that the job failed; its outcome follows in order."""

    def store_lost(self) -> None:
        """Report that the store is unavailable."""


class JobOwner(Protocol):
    """The session of a job, on this instance or on another."""

    @property
    def id(self) -> str:
        """Return the session's id."""

    @property
    def notifier(self) -> JobNotifier:
        """Return the way to the session's client."""

    async def recover(self) -> None:
        """Look for outcomes that were released but not delivered."""


class LiveJob(msgspec.Struct, eq=False):
    """One utterance into one language."""

    id: str
    home: Cell
    spec: JobSpec
    # Everything a node is sent, without the attempt and the audio.
    assign: JobAssign
    audio: bytes
    owner: JobOwner
    # Its state, its current attempt, and when each step happened; `times` are those of the run.
    run: JobRun
    times: Marks
    # How many languages the utterance goes into.
    lanes: int = 1
    # When its speech arrived: by the client's clock, and by our wall clock.
    first_client_ts_ms: int | None = None
    received_at_ms: int = 0
    # What its client calls the utterance, if it names it.
    request_id: str | None = None
    # Where the audio before this utterance ends.
    stream_before: StreamPosition = STREAM_START
    # Called with the node's id when a node gets or accepts the job.
    on_node: Callable[[str], None] | None = None
    # The store's answer to the submission is outstanding.
    is_entering: bool = False
    # The store has it from us, or may have it: then a duplicate is this very job.
    may_be_stored: bool = False
    is_failure_sent: bool = False
    # The client's message of its node's report, and the same as the store keeps it.
    reported: tuple[TranslationResult, bytes] | None = None
    # Its node, on another instance, buffers slices without reporting them.
    is_buffered: bool = False

    @property
    def attempt(self) -> int:
        """Return the number of the current attempt."""
        return self.run.current.number

    @property
    def node(self) -> str:
        """Return the node of the current attempt, '' if there is none."""
        return self.run.current.node

    @property
    def status(self) -> str:
        """Return the client's word for its state."""
        return self.run.status

    @property
    def is_audio_kept(self) -> bool:
        """Tell whether the store has its audio until the outcome."""
        return self.spec.audio or self.spec.own_audio

    # Submission

    def with_spec(self, spec: JobSpec) -> LiveJob:
        """Submit it with another spec from now on; returns itself."""
        self.spec = spec
        return self

    def enter(self) -> None:
        """Note that the answer to its submission is outstanding."""
        self.is_entering = True

    def entered(self) -> None:
        """Note that its submission was answered, or is given up."""
        self.is_entering = False

    def stored(self) -> None:
        """Note that the store has it, or may have it."""
        self.may_be_stored = True

    # Reports

    def report_dispatched(self) -> None:
        """Report that its node has been sent the job."""
        self.owner.notifier.event(self, "DISPATCHED")
        if self.on_node is not None:
            self.on_node(self.run.current.node)

    def accepted(self, now_ms: float, *, is_running: bool) -> None:
        """Note and report that its node has the job, or works on it."""
        run = self.run
        if run.accept(now_ms):
            self.owner.notifier.event(self, "NODE_ACCEPTED")
            if self.on_node is not None:
                self.on_node(self.node)
        run.advance(RUNNING if is_running else ACCEPTED)

    def report(self, result: TranslationResult, payload: bytes | tuple[bytes, bytes]) -> None:
        """Keep its node's report until the outcome is delivered."""
        self.reported = (result, payload if isinstance(payload, bytes) else payload[0])

    def result_in(self, payload: bytes) -> TranslationResult:
        """Return the result of a released outcome; usually it is at hand and not decoded again."""
        if self.reported is not None and self.reported[1] == payload:
            return self.reported[0]
        return decode_result(payload)

    def buffered(self) -> None:
        """Note that its node buffers slices without reporting them."""
        self.is_buffered = True

    def first_failure(self) -> bool:
        """Tell whether its failure has not been reported yet, and note that it is now."""
        is_first, self.is_failure_sent = not self.is_failure_sent, True
        return is_first

    def body(self) -> bytes:
        """Return what any instance needs to push this job, without the audio."""
        if not self.spec.audience:
            return encode_body(JobBody(self.assign, self.lanes))
        wall_ms = self.received_at_ms - self.times.submit
        at = (round(mark + wall_ms) for mark in (self.times.speech_end, self.times.cut))
        return encode_body(JobBody(self.assign, self.lanes, *at))

    def bare_body(self) -> bytes:
        """Return what the store keeps where no other instance could push it: its trace."""
        return encode_body(self.assign.trace_id)
