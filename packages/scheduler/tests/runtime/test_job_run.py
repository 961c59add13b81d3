"""The run of a job: attempts, progress, late reports, the outcome, and when each step happened."""

from __future__ import annotations

from itertools import product

import pytest

from lingua_scheduler.jobs.job import FINAL_STATES, LIVE_STATES, JobState
from lingua_scheduler.runtime.job_run import JobRun, LiveAttempt
from lingua_scheduler.state.records import Placement

pytestmark = pytest.mark.unit


def placement(attempt: int = 1, node: str = "n1") -> Placement:
    return Placement("j", attempt, node, "c0", "here", context_reset=False, ends_at_ms=0)


def placed(attempt: int = 1, node: str = "n1") -> JobRun:
    """Return a run whose attempt was pushed to a node."""
    run = JobRun()
    run.begin_attempt(placement(attempt, node), 100.0, 900.0)
    run.pushed(100.0)
    return run


def test_a_new_run_waits_without_a_node() -> None:
    run = JobRun()
    assert (run.state, run.status, run.is_final) == (JobState.CREATED, "pending", False)
    assert run.current == LiveAttempt()


# Attempts.


def test_a_placement_begins_an_attempt() -> None:
    run = placed(attempt=2, node="n7")
    assert run.current == LiveAttempt(2, "n7", pushed_at_ms=100, ends_ms=900.0)
    assert (run.state, run.status) == (JobState.DISPATCHED, "assigned")
    assert run.is_placed_as(placement(2, "n7"))
    assert not run.is_placed_as(placement(3, "n7"))
    assert not run.is_placed_as(placement(2, "n8"))


@pytest.mark.parametrize("state", LIVE_STATES)
def test_a_later_attempt_begins_from_any_live_state(state: JobState) -> None:
    run = placed()
    run.state = state
    run.mark(1, "RUNNING")
    run.begin_attempt(placement(2, "n2"), 200.0, 0)
    assert (run.state, run.current) == (JobState.DISPATCHED, LiveAttempt(2, "n2", 200))


@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_placement_after_the_outcome_begins_anew_because_the_store_lost_that(
    state: JobState,
) -> None:
    run = placed()
    run.state, run.outcome = state, "completed"
    run.begin_attempt(placement(1, "n2"), 200.0, 0)
    assert (run.state, run.outcome, run.status) == (JobState.DISPATCHED, "", "assigned")


def test_a_restart_begins_with_attempt_one_again() -> None:
    run = placed(attempt=4)
    run.finish("failed")
    run.restart()
    assert (run.state, run.outcome, run.current) == (JobState.CREATED, "", LiveAttempt())
    assert run.status == "pending"


def test_the_attempt_of_another_instance_is_followed() -> None:
    run = placed()
    run.mark(1, "ACCEPTED")
    run.follow(1, "n1")
    assert run.current.marked == "ACCEPTED"
    run.follow(2, "n2")
    # What the store was told of the former attempt says nothing of this one.
    assert run.current == LiveAttempt(2, "n2", 100, 900.0)


def test_only_the_current_attempt_is_marked() -> None:
    run = placed(attempt=2)
    run.mark(1, "RUNNING")
    assert run.current.marked == ""
    run.mark(2, "RUNNING")
    assert run.current.marked == "RUNNING"


# Progress.


@pytest.mark.parametrize(("before", "after"), list(product(LIVE_STATES, LIVE_STATES[1:])))
def test_a_late_report_changes_nothing(before: JobState, after: JobState) -> None:
    run = placed()
    run.state = before
    run.advance(after)
    assert run.state is max(before, after, key=LIVE_STATES.index)


@pytest.mark.parametrize("state", FINAL_STATES)
def test_progress_after_the_outcome_changes_nothing(state: JobState) -> None:
    run = placed()
    run.state = state
    run.advance(JobState.RUNNING)
    assert run.state is state


def test_a_node_has_a_job_once_for_each_push() -> None:
    run = placed()
    assert run.accept(110.0)
    assert not run.accept(120.0)
    assert run.times.accepted == 110.0
    run.pushed(200.0)
    assert run.accept(210.0)
    assert run.times.accepted == 210.0


def test_the_first_push_is_remembered() -> None:
    run = JobRun()
    assert run.pushed(100.0)
    assert not run.pushed(200.0)
    assert (run.times.first_push, run.times.push) == (100.0, 200.0)


# The outcome.


@pytest.mark.parametrize("state", LIVE_STATES)
def test_any_live_job_can_end_and_its_outcome_never_changes(state: JobState) -> None:
    run = placed()
    run.state = state
    run.finish("completed")
    run.finish("failed")
    assert (run.state, run.outcome, run.status) == (JobState.FINISHED, "completed", "completed")
    assert run.is_final


def test_each_step_has_its_time() -> None:
    run = JobRun()
    run.queued(1.0)
    run.placed(2.0)
    run.settled("completed", 3.0, 4.0)
    run.released(5.0)
    times = run.times
    assert (times.queued, times.placed) == (1.0, 2.0)
    assert (times.result, times.settled) == (3.0, 4.0)
    assert (times.released, times.delivered) == (5.0, 5.0)
