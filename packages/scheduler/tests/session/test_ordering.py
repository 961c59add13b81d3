"""Outcomes arrive in any order and are released in order; holes, unwanted ranges, window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.ordering import Lane, LaneEntry

pytestmark = pytest.mark.unit

DONE = ("completed", "-")
MISSING = ("missing", "gap_timeout")
GAP_MS = 100


def settle(lane: Lane, index: int) -> list[int]:
    """Give an index its outcome; return the indices that this releases."""
    lane.entries[index].outcome = DONE
    return [released for released, _ in lane.release()]


def lane_with(*indices: int, now_ms: int = 0) -> Lane:
    lane = Lane()
    for index in indices:
        lane.admit(index, f"job-{index}", now_ms)
    return lane


def fill(lane: Lane, now_ms: int) -> list[int]:
    return lane.fill_holes(now_ms, GAP_MS)


# Order.


def test_in_order_each_outcome_leaves_at_once() -> None:
    lane = lane_with(0, 1, 2)
    assert [settle(lane, index) for index in (0, 1, 2)] == [[0], [1], [2]]


def test_outcomes_2_0_1_leave_as_0_1_2() -> None:
    lane = lane_with(0, 1, 2)
    assert settle(lane, 2) == []
    assert settle(lane, 0) == [0]
    assert settle(lane, 1) == [1, 2]


def test_a_live_job_holds_back_what_comes_after_it() -> None:
    lane = lane_with(0, 1, 2)
    assert settle(lane, 1) == []
    assert settle(lane, 2) == []
    assert lane.next_index == 0
    assert settle(lane, 0) == [0, 1, 2]


def test_an_outcome_leaves_with_its_job_and_only_once() -> None:
    lane = lane_with(0, now_ms=7)
    lane.entries[0].outcome = DONE
    assert lane.release() == [(0, LaneEntry("job-0", 7, DONE))]
    assert lane.release() == []
    assert lane.entries == {}
    assert lane.next_index == 1


def test_an_empty_lane_releases_nothing() -> None:
    assert Lane().release() == []


@given(st.data(), st.integers(1, 12))
def test_any_arrival_order_releases_every_index_once_and_in_order(
    data: st.DataObject, count: int
) -> None:
    lane = lane_with(*data.draw(st.permutations(range(count))))
    released: list[int] = []
    settled: set[int] = set()
    for index in data.draw(st.permutations(range(count))):
        released += settle(lane, index)
        settled.add(index)
        due = next(i for i in range(count + 1) if i not in settled)
        assert released == list(range(due))
    assert released == list(range(count))
    assert lane.entries == {}


# Who may enter.


@pytest.mark.parametrize(
    ("index", "unwanted_from", "reason"),
    [
        (4, -1, "INDEX_RELEASED"),
        (0, -1, "INDEX_RELEASED"),
        (4, 2, "INDEX_RELEASED"),
        (5, -1, None),
        (6, -1, "INDEX_TAKEN"),
        (7, -1, None),
        (8, -1, "IN_FLIGHT_LIMIT"),
        (900, -1, "IN_FLIGHT_LIMIT"),
        (900, 7, None),
        (900, 8, "IN_FLIGHT_LIMIT"),
        (900, 6, "INDEX_TAKEN"),
        (7, 5, "INDEX_TAKEN"),
        (5, 3, None),
        (7, 7, None),
        (7, 9, None),
        (8, 8, "IN_FLIGHT_LIMIT"),
    ],
    ids=[
        "released just now",
        "released long ago",
        "released, whatever range it declares",
        "the next one",
        "held by another job",
        "the last one in the window",
        "the first one beyond the window",
        "far beyond the window",
        "far, but nobody wanted those between",
        "the range itself begins beyond the window",
        "the range would cover a live job at its start",
        "the range would cover a live job inside",
        "a range that is released already",
        "an empty range",
        "a range that ends before it begins",
        "an empty range beyond the window",
    ],
)
def test_an_index_enters_or_is_refused(index: int, unwanted_from: int, reason: str | None) -> None:
    lane = Lane(next_index=5)
    lane.admit(6, "job-6", 0)
    assert lane.refuses(index, unwanted_from, window=3) == reason


def test_a_window_of_one_takes_one_utterance_at_a_time() -> None:
    lane = Lane()
    assert lane.refuses(0, -1, window=1) is None
    lane.admit(0, "job-0", 0)
    assert lane.refuses(1, -1, window=1) == "IN_FLIGHT_LIMIT"
    settle(lane, 0)
    assert lane.refuses(1, -1, window=1) is None


def test_a_range_from_the_very_beginning_brings_any_index_into_the_window() -> None:
    assert Lane().refuses(900, 0, window=1) is None


def test_an_outcome_that_waits_still_holds_its_index() -> None:
    lane = lane_with(0, 1)
    settle(lane, 1)
    assert lane.refuses(1, -1, window=8) == "INDEX_TAKEN"


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=40), st.integers(1, 6))
def test_never_more_than_the_window_is_on_its_way(
    steps: list[tuple[int, bool]], window: int
) -> None:
    lane = Lane()
    for index, is_submit in steps:
        if is_submit and lane.refuses(index, -1, window) is None:
            lane.admit(index, f"job-{index}", 0)
        elif not is_submit and index in lane.entries:
            settle(lane, index)
        assert len(lane.entries) <= window


# Ranges nobody wanted.


def test_a_range_at_the_front_is_passed_at_once() -> None:
    lane = Lane()
    lane.admit(3, "job-3", 0, unwanted_from=0)
    assert lane.next_index == 3
    assert settle(lane, 3) == [3]


def test_a_range_that_began_before_the_front_is_passed_at_once() -> None:
    lane = Lane(next_index=2)
    lane.admit(4, "job-4", 0, unwanted_from=1)
    assert settle(lane, 4) == [4]


def test_a_range_behind_a_live_job_is_passed_when_that_has_ended() -> None:
    lane = lane_with(0)
    lane.admit(4, "job-4", 0, unwanted_from=1)
    assert settle(lane, 4) == []
    assert settle(lane, 0) == [0, 4]
    assert lane.next_index == 5
    assert lane.unwanted == []


def test_several_ranges_are_passed_in_turn() -> None:
    lane = lane_with(0)
    lane.admit(3, "job-3", 0, unwanted_from=1)
    lane.admit(6, "job-6", 0, unwanted_from=4)
    assert settle(lane, 6) == []
    assert settle(lane, 3) == []
    assert settle(lane, 0) == [0, 3, 6]
    assert lane.unwanted == []


def test_a_range_is_passed_before_the_job_behind_it_has_ended() -> None:
    lane = lane_with(0)
    lane.admit(4, "job-4", 0, unwanted_from=1)
    assert settle(lane, 0) == [0]
    assert lane.next_index == 4
    assert settle(lane, 4) == [4]


@pytest.mark.parametrize("unwanted_from", [-1, 2, 5])
def test_an_empty_range_declares_nothing(unwanted_from: int) -> None:
    lane = Lane()
    lane.admit(2, "job-2", 0, unwanted_from)
    assert lane.unwanted == []
    assert lane.next_index == 0
    assert lane.holes() == [0, 1]


@given(st.lists(st.booleans(), min_size=1, max_size=14), st.data())
def test_what_was_wanted_leaves_in_order_whatever_was_not(
    wanted: list[bool], data: st.DataObject
) -> None:
    lane, starts, start = Lane(), {}, 0
    for index, is_wanted in enumerate(wanted):
        if is_wanted:
            starts[index], start = start, index + 1
    for index, unwanted_from in starts.items():
        assert lane.refuses(index, unwanted_from, window=len(wanted)) is None
        lane.admit(index, f"job-{index}", 0, unwanted_from)
    assert lane.holes() == []
    assert fill(lane, 10**9) == []
    order = data.draw(st.permutations(list(starts)))
    released = [index for done in order for index in settle(lane, done)]
    assert released == list(starts)
    assert lane.unwanted == []


# Holes.


def test_a_hole_is_filled_only_when_it_is_due() -> None:
    lane = lane_with(2, now_ms=1000)
    assert settle(lane, 2) == []
    assert fill(lane, 1000 + GAP_MS - 1) == []
    assert fill(lane, 1000 + GAP_MS) == [0, 1]
    assert [(index, entry.outcome) for index, entry in lane.release()] == [
        (0, MISSING),
        (1, MISSING),
        (2, DONE),
    ]


def test_a_filled_hole_belongs_to_no_job_and_is_taken() -> None:
    lane = lane_with(0, 2)
    fill(lane, GAP_MS)
    assert lane.entries[1] == LaneEntry("-", 0, MISSING)
    assert lane.refuses(1, -1, window=8) == "INDEX_TAKEN"


def test_a_live_job_is_not_a_hole_however_long_it_takes() -> None:
    lane = lane_with(0, 1)
    settle(lane, 1)
    assert fill(lane, 10**9) == []
    assert lane.holes() == []


def test_a_hole_is_filled_below_a_job_that_still_runs() -> None:
    lane = lane_with(1)
    assert fill(lane, GAP_MS) == [0]
    assert [index for index, _ in lane.release()] == [0]
    assert settle(lane, 1) == [1]


def test_each_hole_has_its_own_time() -> None:
    lane = lane_with(1, now_ms=0)
    lane.admit(3, "job-3", now_ms=50)
    assert fill(lane, GAP_MS) == [0]
    assert fill(lane, GAP_MS + 49) == []
    assert fill(lane, GAP_MS + 50) == [2]


def test_a_straggler_that_comes_in_time_closes_the_hole() -> None:
    lane = lane_with(1)
    settle(lane, 1)
    assert lane.refuses(0, -1, window=8) is None
    lane.admit(0, "job-0", GAP_MS - 1)
    assert fill(lane, GAP_MS) == []
    assert settle(lane, 0) == [0, 1]


def test_a_straggler_that_comes_too_late_is_refused() -> None:
    lane = lane_with(1)
    settle(lane, 1)
    fill(lane, GAP_MS)
    lane.release()
    assert lane.refuses(0, -1, window=8) == "INDEX_RELEASED"


def test_what_nobody_wanted_is_never_filled() -> None:
    lane = lane_with(1)
    lane.admit(4, "job-4", 0, unwanted_from=2)
    assert lane.holes() == [0]
    assert fill(lane, GAP_MS) == [0]


def test_nothing_is_filled_above_the_last_known_index() -> None:
    lane = lane_with(0)
    settle(lane, 0)
    assert fill(lane, 10**9) == []
    assert lane.holes() == []
    assert lane.next_index == 1


def test_holes_are_what_something_waits_for_and_nothing_holds() -> None:
    lane = Lane(next_index=3)
    lane.admit(5, "job-5", 0)
    lane.admit(8, "job-8", 0)
    assert lane.holes() == [3, 4, 6, 7]


def test_at_the_end_of_a_session_every_hole_is_filled_with_its_reason() -> None:
    lane = lane_with(1)
    lane.admit(4, "job-4", 0, unwanted_from=2)
    lane.admit(6, "job-6", 0)
    lane.fill_all(77, "closed")
    assert lane.holes() == []
    filled = {index: entry for index, entry in lane.entries.items() if entry.job == "-"}
    entry = LaneEntry("-", 77, ("missing", "closed"))
    assert filled == {0: entry, 5: entry}
    assert [index for index, _ in lane.release()] == [0]


@given(st.sets(st.integers(0, 12), min_size=1), st.data())
def test_every_index_up_to_the_last_leaves_once_with_its_outcome_or_as_missing(
    known: set[int], data: st.DataObject
) -> None:
    lane = lane_with(*data.draw(st.permutations(sorted(known))))
    released: list[int] = []
    for index in data.draw(st.permutations(sorted(known))):
        if data.draw(st.booleans()):
            fill(lane, data.draw(st.sampled_from([0, GAP_MS])))
        released += settle(lane, index)
    holes = lane.holes()
    assert fill(lane, GAP_MS) == holes
    released += [index for index, _ in lane.release()]
    assert released == list(range(max(known) + 1))
    assert lane.entries == {}
