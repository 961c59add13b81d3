"""Where the time of one utterance went: marks of one clock -> parts that sum to the total. Pure.

Each boundary is rounded to a whole millisecond and each part is the difference of two, so nothing
is lost or counted twice by rounding. A mark that is missing gives a part of length 0 and its time
goes to the next part; a mark out of order is moved to where its neighbours allow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.messages.shared import Timeline

if TYPE_CHECKING:
    from lingua_scheduler.messages.shared import ServiceTimings

# A node's own numbers are not ours to trust: infinities would make the arithmetic fail.
STAGE_MS_MAX = 86_400_000.0


@dataclass(slots=True)
class Marks:
    """When things happened to one utterance, in milliseconds of one monotonic clock; 0: not yet."""

    speech_end: float = 0.0
    cut: float = 0.0
    # The store was asked; where a node was found at once, `placed` may be the same moment.
    submit: float = 0.0
    # The store answered that the job waits for a node.
    queued: float = 0.0
    # A node was found, for the first time.
    placed: float = 0.0
    # The job went to a node's socket: the first attempt's, and the last one's.
    first_push: float = 0.0
    push: float = 0.0
    # The last attempt's node said it has the job.
    accepted: float = 0.0
    result: float = 0.0
    # The outcome is in the store.
    settled: float = 0.0
    # All predecessors were out; ends the timeline where `delivered` is not known.
    released: float = 0.0
    # The outcome was written to the listener's socket.
    delivered: float = 0.0
    # What the node says its stages took.
    asr_ms: float = 0.0
    nmt_ms: float = 0.0
    tts_ms: float = 0.0

    def since_push(self, mark: float) -> int:
        """Return how long after the push something happened, in whole milliseconds."""
        return max(0, round(mark - self.push)) if mark else 0

    def take_span(self, accepted_ms: int, result_ms: int, now_ms: float) -> None:
        """Note what another instance measured of the last attempt; its outcome is here now."""
        self.result = self.settled = now_ms
        started = max(self.push, now_ms - result_ms)
        self.accepted = min(now_ms, started + accepted_ms) if accepted_ms else 0.0

    def take_stages(self, timings: ServiceTimings | None) -> None:
        """Note what the last attempt's node says of its stages, in place of an earlier one's."""
        if timings is None:
            self.asr_ms = self.nmt_ms = self.tts_ms = 0.0
            return
        self.asr_ms = timings.asr_ms or 0.0
        self.nmt_ms = timings.nmt_ms or 0.0
        self.tts_ms = timings.tts_ms or 0.0


def timeline(marks: Marks) -> Timeline:
    """Return the parts of an utterance's time; they are never negative and sum to the total."""
    cut, asked, placed, first_push, push, accepted, result, settled, end = _boundaries(marks)
    asr, nmt, tts = _stages(marks, result - accepted)
    return Timeline(
        endpointing_ms=cut,
        place_ms=asked - cut,
        queue_ms=placed - asked,
        push_ms=first_push - placed,
        retry_ms=push - first_push,
        accept_ms=accepted - push,
        asr_ms=asr,
        nmt_ms=nmt,
        tts_ms=tts,
        node_other_ms=result - accepted - asr - nmt - tts,
        settle_ms=settled - result,
        order_wait_ms=end - settled,
        total_ms=end,
    )


def _boundaries(marks: Marks) -> list[int]:
    """Return the end of each part since the end of speech: whole, in order, none after the last."""
    start = marks.speech_end
    asked, placed = _asking(marks)
    known = (
        marks.cut, asked, placed, marks.first_push or marks.push, marks.push, marks.accepted,
        marks.result, marks.settled,
    )  # fmt: skip
    end = marks.delivered or marks.released or max(known)
    half_before = start - 0.5
    last = max(int(end - half_before), 0)
    reached = 0
    boundaries = []
    for mark in known:
        # `int` rounds what is negative up to 0 at most, and `reached` is never below that.
        if mark and (at := int(mark - half_before)) > reached:
            reached = min(at, last)
        boundaries.append(reached)
    boundaries.append(last)
    return boundaries


def _asking(marks: Marks) -> tuple[float, float]:
    """Return when asking for a node ended, and when there was one: the same, unless it queued."""
    if marks.queued:
        return marks.queued, marks.placed
    at_once = max(marks.submit, marks.placed)
    return at_once, at_once


def _stages(marks: Marks, span_ms: int) -> tuple[int, int, int]:
    """Split the time at the node by its own numbers, made smaller where they exceed that time."""
    asr = _stage(marks.asr_ms)
    asr_nmt = asr + _stage(marks.nmt_ms)
    stages = asr_nmt + _stage(marks.tts_ms)
    scale = span_ms / stages if stages > span_ms else 1.0
    first = round(asr * scale)
    second = round(asr_nmt * scale)
    third = round(stages * scale)
    return first, second - first, third - second


def _stage(said_ms: float) -> float:
    # Written so that NaN is 0 too.
    return min(said_ms, STAGE_MS_MAX) if said_ms > 0 else 0.0
