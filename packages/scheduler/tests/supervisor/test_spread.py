from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from lingua_scheduler.supervisor.messages import NODE, OTHER, SESSION
from lingua_scheduler.supervisor.spread import (
    UNEVEN_REPORTS,
    ConnectionCount,
    NodeBalance,
    in_turn,
)

pytestmark = pytest.mark.unit


def given(counts: list[ConnectionCount], *kinds: int) -> list[int]:
    """Give connections of these kinds; return the places they went to."""
    places: list[int] = []
    for kind in kinds:
        place = in_turn(counts, kind, len(places))[0]
        counts[place].give(kind)
        places.append(place)
    return places


def test_a_burst_is_spread_before_any_worker_has_reported() -> None:
    counts = [ConnectionCount() for _ in range(3)]
    assert Counter(given(counts, *[NODE] * 9)) == {0: 3, 1: 3, 2: 3}


def test_nodes_are_even_whatever_else_connects_between_them() -> None:
    counts = [ConnectionCount() for _ in range(2)]
    given(counts, NODE, OTHER, OTHER, OTHER, NODE, SESSION, NODE, OTHER, NODE, SESSION)
    assert [count.of(NODE) for count in counts] == [2, 2]
    assert [count.of(SESSION) for count in counts] == [1, 1]


def test_with_equal_numbers_of_a_kind_the_worker_with_the_fewest_connections_is_first() -> None:
    counts = [ConnectionCount() for _ in range(2)]
    given(counts, SESSION)
    assert given(counts, NODE) == [1]


def test_connections_that_end_at_once_go_to_one_worker_after_another() -> None:
    counts = [ConnectionCount() for _ in range(3)]
    assert [in_turn(counts, OTHER, turn)[0] for turn in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_report_replaces_what_it_includes_and_nothing_else() -> None:
    count = ConnectionCount()
    for kind in (NODE, SESSION, NODE):
        count.give(kind)
    count.report(2, (1, 1, 0))
    assert (count.of(NODE), count.of(SESSION), count.total) == (2, 1, 3)
    # The session has ended, and the second node was taken over.
    count.report(3, (2, 0, 0))
    assert (count.of(NODE), count.of(SESSION), count.total) == (2, 0, 2)


def test_a_connection_that_was_taken_back_is_not_counted_again() -> None:
    count = ConnectionCount()
    for kind in (NODE, SESSION, NODE, OTHER):
        count.give(kind)
    count.take_back(NODE)
    assert (count.of(NODE), count.total) == (1, 3)
    count.report(3, (1, 1, 0))
    assert (count.of(NODE), count.of(OTHER), count.total) == (1, 0, 2)


def test_nodes_that_stay_uneven_are_moved_and_only_as_many_as_needed() -> None:
    balance = NodeBalance()
    answers = [balance.surplus([5, 0]) for _ in range(UNEVEN_REPORTS)]
    assert answers == [None] * (UNEVEN_REPORTS - 1) + [(0, 2)]


def test_nodes_that_differ_by_one_stay() -> None:
    balance = NodeBalance()
    assert [balance.surplus([2, 1, 1]) for _ in range(100)] == [None] * 100


def test_nodes_that_are_coming_are_waited_for() -> None:
    balance = NodeBalance()
    assert [balance.surplus([number, 0]) for number in range(2, 50)] == [None] * 48


def test_moves_that_do_not_help_become_rarer() -> None:
    balance = NodeBalance()
    moves = [turn for turn in range(100) if balance.surplus([4, 0]) is not None]
    pauses = [later - earlier for earlier, later in pairwise(moves)]
    assert len(pauses) >= 3
    assert pauses == sorted(pauses)
    assert pauses[-1] > pauses[0]
