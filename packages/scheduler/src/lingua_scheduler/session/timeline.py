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
    from collections.abc import Iterable

    from lingua_wire.shared import ServiceTimings

# Numbers of a node are not trusted: infinities would make the arithmetic fail.
STAGE_MS_MAX = 86_400_000.0


class Marks(msgspec.Struct, gc=False, array_like=True):
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
    cut, asked, placed, push = marks.cut, marks.queued, marks.placed, marks.push
    if not asked:
        # The end of the placement call and the time of placement: equal unless the job was queued.
        asked = placed = max(marks.submit, placed)
    first_push = marks.first_push or push
    accepted, result, settled = marks.accepted, marks.result, marks.settled
    accepted = max(accepted, push)  # a node need not say that it has the job
    start = marks.speech_end
    end = marks.delivered or marks.released
    if not end:
        end = max((cut, asked, placed, first_push, push, accepted, result, settled))
    if not (
        start
        <= cut
        <= asked
        <= placed
        <= first_push
        <= push
        <= accepted
        <= result
        <= settled
        <= end
    ):
        end = max(start, end)
        cut, asked, placed, first_push, push, accepted, result, settled = _in_order(
            start, (cut, asked, placed, first_push, push, accepted, result, settled), end
        )
    # `int` rounds down: nothing is before the start.
    half_before = start - 0.5
    last = int(end - half_before)
    at_cut = int(cut - half_before)
    at_asked = int(asked - half_before)
    at_placed = int(placed - half_before)
    at_first = int(first_push - half_before)
    at_push = int(push - half_before)
    at_accepted = int(accepted - half_before)
    at_result = int(result - half_before)
    at_settled = int(settled - half_before)
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


def _in_order(start: float, marks: Iterable[float], end: float) -> list[float]:
    """Return marks of which each was moved between its neighbours, and between start and end."""
    before, moved = start, []
    for mark in marks:
        before = min(max(before, mark), end)
        moved.append(before)
    return moved


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
