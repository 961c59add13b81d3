"""The addresses of a node: their order, and how long it waits before the next one."""

from __future__ import annotations

from random import Random

import pytest

from lingua_node import addresses
from lingua_node.addresses import BACKOFF_MAX_S, JITTER_S, AddressRotation

pytestmark = pytest.mark.unit


class Longest:
    """Random numbers that are always the largest possible ones, so that bounds are exact."""

    def uniform(self, _: float, most: float) -> float:
        return most


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every wait as long as its bound."""
    monkeypatch.setattr(addresses, "_random", Longest())


def waits_of(rotation: AddressRotation, count: int) -> list[float]:
    return [rotation.wait_s() for _ in range(count)]


def test_only_a_full_round_of_failures_is_followed_by_a_backoff_and_it_grows_by_rounds(
    longest: None,
) -> None:
    waits = waits_of(AddressRotation(["ws://a/", "ws://b/", "ws://c/"]), 27)
    assert {wait for number, wait in enumerate(waits, 1) if number % 3} == {JITTER_S}
    assert waits[2::3] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1.6,
        3.2,
        BACKOFF_MAX_S,
        BACKOFF_MAX_S,
        BACKOFF_MAX_S,
    ]


def test_a_wait_is_random_up_to_a_bound_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_random", Random(1))
    waits = waits_of(AddressRotation("ws://a/"), 200)
    assert waits[0] <= 0.1
    assert waits[1] <= 0.2
    assert 0 <= min(waits) < max(waits) <= BACKOFF_MAX_S
    assert max(waits[10:]) > 0.8 * BACKOFF_MAX_S
    assert min(waits[10:]) < 0.2 * BACKOFF_MAX_S


def test_the_first_try_after_a_good_connection_is_at_once_even_with_one_address(
    longest: None,
) -> None:
    alone = AddressRotation("ws://a/")
    assert waits_of(alone, 10)[-1] == BACKOFF_MAX_S
    # The connection was good: earlier failures no longer count.
    assert alone.wait_s(was_good=True) == JITTER_S
    assert alone.wait_s() == 0.1


def test_an_address_given_twice_counts_once(longest: None) -> None:
    twice = AddressRotation(["ws://a/", "ws://a/"])
    assert min(waits_of(twice, 10)) > JITTER_S
