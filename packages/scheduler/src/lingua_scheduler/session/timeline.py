"""The parts of an utterance's time, computed from marks of one clock; they sum to the total. Pure.

Each boundary is rounded to a whole millisecond and each part is the difference of two, so rounding
neither loses nor duplicates time. A missing mark gives a part of length 0 and its time belongs to
the next part; a mark out of order is moved between its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_wire.shared import Timeline

if TYPE_CHECKING:
    from lingua_wire.shared import ServiceTimings

# Numbers of a node are not trusted: infinities would make the arithmetic fail.
STAGE_MS_MAX = 86_400_000.0


class Marks(msgspec.Struct, gc=False):
    """The events of one utterance, in milliseconds of one monotonic clock; 0: not yet."""

    speech_end: float = 0.0
    cut: float = 0.0
    # The store was called; if a node was free, `placed` may be the same time.
    submit: float = 0.0
    # The store answered that the job was queued.
    queued: float = 0.0
    # A node was found, for the first time.
    placed: float = 0.0
    # The push to a node's socket: of the first attempt, and of the last one.
    first_push: float = 0.0
    push: float = 0.0
    # The node of the last attempt acknowledged the job.
    accepted: float = 0.0
    result: float = 0.0
    # The outcome is in the store.
    settled: float = 0.0
    # All predecessors were released; ends the timeline if `delivered` is not known.
    released: float = 0.0
    # The outcome was written to the listener's socket.
    delivered: float = 0.0
    # The durations of the stages as reported by the node.
    asr_ms: float = 0.0
    nmt_ms: float = 0.0
    tts_ms: float = 0.0

    def since_push(self, mark: float) -> int:
        """Return the time from the push to a mark, in whole milliseconds."""
        return max(0, round(mark - self.push)) if mark else 0

    def set_span(self, accepted_ms: int, result_ms: int, now_ms: float) -> None:
        """Set the marks of the last attempt from the measurements of another instance."""
        self.result = self.settled = now_ms
        started = max(self.push, now_ms - result_ms)
        self.accepted = min(now_ms, started + accepted_ms) if accepted_ms else 0.0

    def set_stages(self, timings: ServiceTimings | None) -> None:
        """Set the durations of the stages as reported for the last attempt."""
        if timings is None:
            self.asr_ms = self.nmt_ms = self.tts_ms = 0.0
            return
        self.asr_ms = timings.asr_ms or 0.0
        self.nmt_ms = timings.nmt_ms or 0.0
        self.tts_ms = timings.tts_ms or 0.0


def timeline(marks: Marks) -> Timeline:
    """Return the parts of an utterance's time; they are never negative and sum to the total."""
    # Written out part by part: it is computed for every outcome.
    asked, placed = marks.queued, marks.placed
    if not asked:
        # The end of the placement call and the time of placement: equal unless the job was queued.
        asked = placed = max(marks.submit, placed)
    push, accepted, result, settled = marks.push, marks.accepted, marks.result, marks.settled
    first_push = marks.first_push or push
    half_before = marks.speech_end - 0.5
    end = marks.delivered or marks.released
    if not end:
        end = max((marks.cut, asked, placed, first_push, push, accepted, result, settled))
    last = max(int(end - half_before), 0)
    # Each mark is moved between its neighbours; one that is missing lies before all of them. `int`
    # rounds negative values up to at most 0. No function does it, because calls cost more.
    at = int(marks.cut - half_before)
    at_cut = at if 0 < at < last else 0 if at <= 0 else last
    at = int(asked - half_before)
    at_asked = at if at_cut < at < last else at_cut if at <= at_cut else last
    at = int(placed - half_before)
    at_placed = at if at_asked < at < last else at_asked if at <= at_asked else last
    at = int(first_push - half_before)
    at_first = at if at_placed < at < last else at_placed if at <= at_placed else last
    at = int(push - half_before)
    at_push = at if at_first < at < last else at_first if at <= at_first else last
    at = int(accepted - half_before)
    at_accepted = at if at_push < at < last else at_push if at <= at_push else last
    at = int(result - half_before)
    at_result = at if at_accepted < at < last else at_accepted if at <= at_accepted else last
    at = int(settled - half_before)
    at_settled = at if at_result < at < last else at_result if at <= at_result else last
    asr, nmt, tts = 0, 0, 0
    if marks.asr_ms or marks.nmt_ms or marks.tts_ms:
        asr, nmt, tts = _stages(marks, at_result - at_accepted)
    return Timeline(
        endpointing_ms=at_cut,
        place_ms=at_asked - at_cut,
        queue_ms=at_placed - at_asked,
        push_ms=at_first - at_placed,
        retry_ms=at_push - at_first,
        accept_ms=at_accepted - at_push,
        asr_ms=asr,
        nmt_ms=nmt,
        tts_ms=tts,
        node_other_ms=at_result - at_accepted - asr - nmt - tts,
        settle_ms=at_settled - at_result,
        order_wait_ms=last - at_settled,
        total_ms=last,
    )


def _stages(marks: Marks, span_ms: int) -> tuple[int, int, int]:
    """Split the time at the node by its own numbers, scaled down if they exceed that time."""
    asr = _stage(marks.asr_ms)
    asr_nmt = asr + _stage(marks.nmt_ms)
    stages = asr_nmt + _stage(marks.tts_ms)
    scale = span_ms / stages if stages > span_ms else 1.0
    first = round(asr * scale)
    second = round(asr_nmt * scale)
    third = round(stages * scale)
    return first, second - first, third - second


def _stage(said_ms: float) -> float:
    # Written so that NaN becomes 0, too.
    return min(said_ms, STAGE_MS_MAX) if said_ms > 0 else 0.0
