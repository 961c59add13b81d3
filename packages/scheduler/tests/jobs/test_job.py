"""The state machine of a job: its transitions, and the client's word for each state."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from lingua_scheduler.jobs.job import (
    FINAL_STATES,
    LIVE_STATES,
    TRANSITIONS,
    JobState,
    job_status,
    job_transition,
)
from lingua_scheduler.runtime.placement_metrics import OUTCOMES
from lingua_scheduler.transitions import IllegalTransition

pytestmark = pytest.mark.unit

CREATED, DISPATCHED = JobState.CREATED, JobState.DISPATCHED
ACCEPTED, RUNNING = JobState.ACCEPTED, JobState.RUNNING
FINISHED, RELEASED = JobState.FINISHED, JobState.RELEASED
# Outcomes of jobs; a place that was never filled is "missing".
JOB_OUTCOMES = tuple(kind for kind in OUTCOMES if kind != "missing")


# Transitions.


def test_the_whole_way_forward_is_legal() -> None:
    assert set(pairwise(JobState)) <= TRANSITIONS


@pytest.mark.parametrize(
    "transition",
    [
        (CREATED, ACCEPTED),
        (CREATED, RUNNING),
        (DISPATCHED, RUNNING),
        (CREATED, RELEASED),
        (RUNNING, RELEASED),
        (FINISHED, RELEASED),
    ],
)
def test_steps_may_be_left_out_as_nodes_may_stay_silent(
    transition: tuple[JobState, JobState],
) -> None:
    assert transition in TRANSITIONS


@pytest.mark.parametrize("state", LIVE_STATES)
def test_every_live_state_goes_back_to_created_for_the_next_attempt(state: JobState) -> None:
    assert (state, CREATED) in TRANSITIONS


@pytest.mark.parametrize(
    "transition",
    [(ACCEPTED, DISPATCHED), (RUNNING, DISPATCHED), (RUNNING, ACCEPTED), (RUNNING, RUNNING)],
)
def test_within_an_attempt_nothing_goes_back(transition: tuple[JobState, JobState]) -> None:
    assert transition not in TRANSITIONS


def test_an_outcome_never_changes() -> None:
    assert {move for move in TRANSITIONS if move[0] in FINAL_STATES} == {(FINISHED, RELEASED)}


def test_transitions_are_between_known_states() -> None:
    assert {state for move in TRANSITIONS for state in move} == set(JobState)
    assert set(JobState) == {*LIVE_STATES, *FINAL_STATES}


@pytest.mark.parametrize(("before", "after"), list(product(JobState, JobState)))
def test_a_transition_outside_the_table_raises(before: JobState, after: JobState) -> None:
    if (before, after) in TRANSITIONS:
        assert job_transition(before, after) is after
        return
    with pytest.raises(IllegalTransition) as problem:
        job_transition(before, after)
    found = problem.value
    assert (found.machine, found.before, found.after) == ("job", before, after)


def test_the_store_keeps_the_same_words() -> None:
    assert [state.value for state in JobState] == [
        "CREATED",
        "DISPATCHED",
        "ACCEPTED",
        "RUNNING",
        "FINISHED",
        "RELEASED",
    ]


# The client's word.


@pytest.mark.parametrize(
    ("state", "node", "status"),
    [
        (CREATED, "", "pending"),
        (CREATED, "n", "assigned"),
        (DISPATCHED, "n", "assigned"),
        (ACCEPTED, "n", "assigned"),
        (RUNNING, "n", "processing"),
        (DISPATCHED, "", "pending"),
    ],
)
def test_a_live_job_has_the_status_of_its_state(state: JobState, node: str, status: str) -> None:
    assert job_status(state, node, "") == status


@pytest.mark.parametrize("outcome", JOB_OUTCOMES)
@pytest.mark.parametrize("state", FINAL_STATES)
@pytest.mark.parametrize("node", ["", "n"])
def test_an_ended_job_has_its_outcome_as_status(state: JobState, node: str, outcome: str) -> None:
    assert job_status(state, node, outcome) == outcome


def test_the_outcomes_are_those_clients_know() -> None:
    assert JOB_OUTCOMES == ("completed", "completed_no_text", "failed", "expired", "cancelled")
