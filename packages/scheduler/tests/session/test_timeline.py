"""The timeline: contiguous whole parts that sum to the total, for any marks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lingua_scheduler.session.timeline import Marks, timeline
from lingua_wire.shared import ServiceTimings, Timeline

pytestmark = pytest.mark.unit

START_MS = 5_000_000.0


def marks_at(**after_ms: float) -> Marks:
    """Return marks given in milliseconds after the end of speech."""
    stages = {name: after_ms.pop(name) for name in list(after_ms) if name.endswith("_ms")}
    return Marks(START_MS, **{name: START_MS + ms for name, ms in after_ms.items()}, **stages)


def parts_of(found: Timeline) -> dict[str, int]:
    """Return the parts that are not empty, without the total."""
    parts = {name: getattr(found, name) for name in found.__struct_fields__}
    assert parts.pop("total_ms") == sum(parts.values())
    return {name: ms for name, ms in parts.items() if ms}


def test_a_job_placed_at_once_has_no_queue() -> None:
    marks = marks_at(
        cut=150, submit=152, placed=152, first_push=153, push=153, accepted=157, result=457,
        settled=459, released=470, delivered=471, asr_ms=100, nmt_ms=50, tts_ms=120,
    )  # fmt: skip
    assert parts_of(timeline(marks)) == {
        "endpointing_ms": 150, "place_ms": 2, "push_ms": 1, "accept_ms": 4,
        "asr_ms": 100, "nmt_ms": 50, "tts_ms": 120, "node_other_ms": 30,
        "settle_ms": 2, "order_wait_ms": 12,
    }  # fmt: skip
    assert timeline(marks).total_ms == 471


def test_the_moment_of_placing_need_not_be_marked_twice() -> None:
    answer_only = timeline(marks_at(cut=1, submit=4, push=5, delivered=9))
    placed_only = timeline(marks_at(cut=1, placed=4, push=5, delivered=9))
    asked_before = timeline(marks_at(cut=1, submit=2, placed=4, push=5, delivered=9))
    assert answer_only == placed_only == asked_before
    assert (answer_only.place_ms, answer_only.queue_ms, answer_only.push_ms) == (3, 0, 1)


def test_a_job_that_waited_for_a_node_shows_it_as_queue() -> None:
    marks = marks_at(
        cut=10, submit=12, queued=12, placed=912, first_push=915, push=915, result=1000,
        settled=1000, delivered=1000,
    )  # fmt: skip
    assert parts_of(timeline(marks)) == {
        "endpointing_ms": 10, "place_ms": 2, "queue_ms": 900, "push_ms": 3, "node_other_ms": 85,
    }  # fmt: skip


def test_failed_attempts_are_retry_and_only_the_last_one_is_the_nodes_time() -> None:
    marks = marks_at(
        cut=10, submit=11, placed=11, first_push=12, push=312, accepted=315, result=400,
        settled=401, delivered=401, asr_ms=85,
    )  # fmt: skip
    assert parts_of(timeline(marks)) == {
        "endpointing_ms": 10, "place_ms": 1, "push_ms": 1, "retry_ms": 300, "accept_ms": 3,
        "asr_ms": 85, "settle_ms": 1,
    }  # fmt: skip


def test_an_acceptance_of_an_earlier_attempt_does_not_count() -> None:
    marks = marks_at(cut=0, placed=0, first_push=0, accepted=5, push=100, result=150, delivered=150)
    assert parts_of(timeline(marks)) == {"retry_ms": 100, "node_other_ms": 50}


def test_a_node_that_never_accepts_has_its_time_from_the_push_on() -> None:
    marks = marks_at(cut=0, submit=1, push=2, result=102, delivered=102, tts_ms=40.0)
    assert parts_of(timeline(marks)) == {
        "place_ms": 1, "push_ms": 1, "tts_ms": 40, "node_other_ms": 60,
    }  # fmt: skip


def test_stages_longer_than_the_time_measured_are_made_smaller() -> None:
    marks = marks_at(cut=0, push=0, result=100, delivered=100, asr_ms=200, nmt_ms=100, tts_ms=100)
    assert parts_of(timeline(marks)) == {"asr_ms": 50, "nmt_ms": 25, "tts_ms": 25}


@pytest.mark.parametrize("nonsense", [-5.0, float("nan"), float("-inf"), 0.0])
def test_a_stage_that_took_no_time_takes_none(nonsense: float) -> None:
    marks = marks_at(cut=0, push=0, result=100, delivered=100, asr_ms=nonsense, nmt_ms=60)
    assert parts_of(timeline(marks)) == {"nmt_ms": 60, "node_other_ms": 40}


def test_an_endless_stage_takes_all_of_the_nodes_time_and_no_more() -> None:
    marks = marks_at(cut=0, push=0, result=100, delivered=130, asr_ms=float("inf"))
    assert parts_of(timeline(marks)) == {"asr_ms": 100, "order_wait_ms": 30}


def test_the_stages_are_those_the_last_node_told() -> None:
    marks = marks_at(cut=0, push=0, result=100, delivered=100)
    marks.set_stages(ServiceTimings(asr_ms=10, nmt_ms=20, tts_ms=30))
    assert parts_of(timeline(marks)) == {
        "asr_ms": 10, "nmt_ms": 20, "tts_ms": 30, "node_other_ms": 40,
    }  # fmt: skip
    marks.set_stages(ServiceTimings(asr_ms=50))
    assert parts_of(timeline(marks)) == {"asr_ms": 50, "node_other_ms": 50}
    marks.set_stages(None)
    assert parts_of(timeline(marks)) == {"node_other_ms": 100}


def test_an_outcome_without_any_node_is_still_contiguous() -> None:
    marks = marks_at(cut=150, submit=151, queued=151, settled=10_151, delivered=10_152)
    assert parts_of(timeline(marks)) == {
        "endpointing_ms": 150, "place_ms": 1, "settle_ms": 10_000, "order_wait_ms": 1,
    }  # fmt: skip


def test_without_a_delivery_it_ends_at_the_release_or_at_the_last_mark() -> None:
    assert timeline(marks_at(cut=1, settled=5, released=9)).total_ms == 9
    assert parts_of(timeline(marks_at(cut=1, settled=5))) == {"endpointing_ms": 1, "settle_ms": 4}


def test_a_mark_after_the_delivery_is_moved_to_it() -> None:
    marks = marks_at(cut=10, push=20, accepted=500, result=60, delivered=100)
    assert parts_of(timeline(marks)) == {"endpointing_ms": 10, "push_ms": 10, "accept_ms": 80}


def test_speech_that_ended_after_everything_gives_only_zeros() -> None:
    assert timeline(marks_at(cut=-5, push=-4, delivered=-1)) == Timeline()


def test_fractions_are_rounded_at_the_boundaries_and_not_summed() -> None:
    marks = marks_at(cut=0.4, submit=0.8, push=1.2, accepted=1.6, result=2.0, delivered=2.4)
    assert timeline(marks).total_ms == 2
    assert parts_of(timeline(marks)) == {"place_ms": 1, "accept_ms": 1}


TIMES = st.floats(0, 1e9)
MAYBE = st.just(0.0) | TIMES
STAGES = st.floats(allow_nan=True, allow_infinity=True)
ANY_MARKS = st.builds(
    Marks,
    speech_end=TIMES,
    cut=TIMES,
    **{
        field.name: STAGES if field.name.endswith("_ms") else MAYBE
        for field in msgspec.structs.fields(Marks)[2:]
    },
)


@given(ANY_MARKS)
@example(Marks(0.0, 0.0, push=0.0, result=0.5, delivered=0.5, asr_ms=0.5))
def test_parts_are_never_negative_and_always_sum_to_the_total(marks: Marks) -> None:
    found = timeline(marks)
    parts = msgspec.structs.asdict(found)
    total_ms = parts.pop("total_ms")
    assert all(type(part) is int and part >= 0 for part in parts.values())
    assert sum(parts.values()) == total_ms
    end = marks.delivered or marks.released
    if end:
        assert abs(total_ms - max(end - marks.speech_end, 0)) <= 0.5 + 1e-6


@given(st.lists(st.floats(0, 1000), min_size=11, max_size=11), STAGES, STAGES, STAGES)
def test_marks_in_order_give_each_part_its_own_length_to_the_millisecond(
    lengths: list[float], asr: float, nmt: float, tts: float
) -> None:
    at = [START_MS]
    for length in lengths:
        at.append(at[-1] + length)
    start, cut, queued, placed, first, push, accepted, result, settled, released, end, _ = at
    found = timeline(
        Marks(
            start, cut, queued, queued, placed, first, push, accepted, result, settled,
            released, end, asr, nmt, tts,
        )
    )  # fmt: skip
    node_ms = found.asr_ms + found.nmt_ms + found.tts_ms + found.node_other_ms
    measured = [
        found.endpointing_ms, found.place_ms, found.queue_ms, found.push_ms, found.retry_ms,
        found.accept_ms, node_ms, found.settle_ms, found.order_wait_ms,
    ]  # fmt: skip
    real = [*lengths[:8], lengths[8] + lengths[9]]
    for part, length in zip(measured, real, strict=True):
        assert abs(part - length) < 1 + 1e-6


# What another instance measured.


def test_times_are_told_from_the_push_on() -> None:
    marks = marks_at(push=100, accepted=104.6, result=400)
    assert marks.since_push(marks.accepted) == 5
    assert marks.since_push(marks.result) == 300


def test_a_mark_that_is_missing_or_of_an_earlier_attempt_is_no_time() -> None:
    marks = marks_at(push=100, accepted=40)
    assert marks.since_push(marks.result) == 0
    assert marks.since_push(marks.accepted) == 0


def test_a_span_ends_now_and_begins_so_long_before() -> None:
    marks = marks_at(cut=10, submit=11, placed=12, first_push=13, push=13)
    marks.set_span(4, 300, START_MS + 320)
    marks.delivered = START_MS + 321
    # 7 ms went by on the way to the node's instance and back.
    assert parts_of(timeline(marks)) == {
        "endpointing_ms": 10, "place_ms": 2, "push_ms": 1, "accept_ms": 11,
        "node_other_ms": 296, "order_wait_ms": 1,
    }  # fmt: skip


def test_a_span_longer_than_the_time_since_the_push_is_cut_to_it() -> None:
    marks = marks_at(push=100)
    marks.set_span(50, 10_000, START_MS + 400)
    assert marks.accepted == START_MS + 150
    marks = marks_at(push=100)
    marks.set_span(10_000, 10_000, START_MS + 400)
    assert marks.accepted == marks.result == START_MS + 400


def test_a_node_that_acknowledges_nothing_leaves_no_mark_of_it() -> None:
    marks = marks_at(push=100, accepted=120)
    marks.set_span(0, 300, START_MS + 400)
    assert marks.accepted == 0.0
    assert marks.result == marks.settled == START_MS + 400


@given(ANY_MARKS, st.integers(0, 10**7), st.integers(0, 10**7), st.floats(0, 1e9))
def test_whatever_span_another_instance_tells_the_parts_sum_to_the_total(
    marks: Marks, accepted_ms: int, result_ms: int, now_ms: float
) -> None:
    marks.set_span(accepted_ms, result_ms, now_ms)
    marks.released = marks.delivered = now_ms
    found = msgspec.structs.asdict(timeline(marks))
    total_ms = found.pop("total_ms")
    assert all(part >= 0 for part in found.values())
    assert sum(found.values()) == total_ms
