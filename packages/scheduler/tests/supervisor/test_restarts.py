from __future__ import annotations

import pytest

from lingua_scheduler.supervisor.restarts import (
    FAILED_STARTS_MAX,
    LONGEST_PAUSE_S,
    WITHIN_S,
    WorkerRestarts,
)

pytestmark = pytest.mark.unit


def test_the_first_death_costs_no_pause_and_further_ones_longer_and_longer_ones() -> None:
    restarts = WorkerRestarts()
    restarts.ready()
    pauses = [restarts.ended(now, was_ready=True) for now in range(12)]
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S


def test_deaths_of_long_ago_are_forgotten() -> None:
    restarts = WorkerRestarts()
    restarts.ready()
    restarts.ended(0, was_ready=True)
    assert restarts.ended(WITHIN_S + 1, was_ready=True) == 0


def test_a_worker_that_was_never_ready_ends_the_service() -> None:
    restarts = WorkerRestarts()
    assert not restarts.is_hopeless(has_siblings=True)
    restarts.ended(0, was_ready=False)
    assert restarts.is_hopeless(has_siblings=True)


def test_a_worker_that_was_ready_is_given_up_only_if_no_sibling_serves() -> None:
    restarts = WorkerRestarts()
    restarts.ready()
    for now in range(FAILED_STARTS_MAX):
        assert not restarts.is_hopeless(has_siblings=False)
        restarts.ended(now, was_ready=False)
    assert not restarts.is_hopeless(has_siblings=True)
    assert restarts.is_hopeless(has_siblings=False)
    restarts.ready()
    assert not restarts.is_hopeless(has_siblings=False)
