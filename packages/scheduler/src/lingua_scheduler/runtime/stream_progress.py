"""How far the stream of a session is submitted and stored; a later owner continues from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.session.utterance import STREAM_START, StreamPosition

if TYPE_CHECKING:
    from lingua_scheduler.runtime.utterance import PendingUtterance
    from lingua_scheduler.state.records import ResumedSession


class StreamProgress:
    """Positions and sums of one session's stream."""

    __slots__ = ("_submitted", "passed_ms", "stored", "top")

    def __init__(self) -> None:
        # The next free utterance index of those submitted.
        self.top = 0
        # The last chunk in the store, its end, and how much speech up to there was given jobs.
        self.stored = STREAM_START
        # Where the stream ends as far as it was submitted, in the store or on its way there.
        self._submitted = STREAM_START
        # Speech that needed no job: all of it, and in the stream.
        self.passed_ms = (0, 0)

    def restore(self, former: ResumedSession, top: int) -> None:
        """Continue where a former owner stopped."""
        self.top = top
        in_stream = former.speech.in_stream
        self.stored = self._submitted = StreamPosition(former.heard, former.heard_ms, in_stream)
        self.passed_ms = (former.speech.passed, former.speech.passed_in_stream)

    @property
    def speech_ms(self) -> int:
        """Return how much of the stream was given jobs, in the store or on its way there."""
        return self._submitted.speech_ms

    def submit(self, utterance: PendingUtterance, *, is_resumable: bool) -> None:
        """Note where an utterance of the stream begins and ends.

        A later owner asks the client for what comes after the last utterance in the store. If one
        were stored before those that precede it, the client would discard these and never
        send them again: so each names the one before it.
        """
        before, last_seq = self._submitted, utterance.last_seq
        assert last_seq is not None
        length_ms = utterance.end_ms - utterance.start_ms
        speech_ms = before.speech_ms + (length_ms if utterance.targets else 0)
        if is_resumable:
            utterance.follow(before)
            self._submitted = StreamPosition(last_seq, utterance.end_ms, speech_ms)
        else:
            self._submitted = before._replace(speech_ms=speech_ms)

    def index_submitted(self, index: int) -> None:
        """Note that an index is submitted."""
        if index >= self.top:
            self.top = index + 1

    def store(self, seq: int, end_ms: int, speech_ms: int) -> None:
        """Note how much of the stream the store has."""
        if seq > self.stored.seq:
            self.stored = StreamPosition(seq, end_ms, speech_ms)

    def skip(self, length_ms: int, *, is_streamed: bool) -> None:
        """Note speech that needed no job."""
        whole, in_stream = self.passed_ms
        self.passed_ms = (whole + length_ms, in_stream + (length_ms if is_streamed else 0))

    @property
    def passed_field(self) -> str:
        """Return how the store keeps the speech that needed no job."""
        whole, in_stream = self.passed_ms
        return f"{whole} {in_stream}"

    def opening_fields(self) -> list[bytes | str | int]:
        """Return what is written to the store when the session is opened there again."""
        seq, end_ms, speech_ms = self.stored
        fields: list[bytes | str | int] = ["top", self.top]
        if seq >= 0:
            fields += ["heard", seq, "heard_ms", end_ms, "speech", speech_ms]
        if any(self.passed_ms):
            fields += ["passed", self.passed_field]
        return fields
