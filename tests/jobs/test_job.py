"""The job machine: moves, what a client is told, whose report counts, what is overdue."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

import pytest

from lingua_scheduler.jobs.job import (
    ACCEPTED,
    CREATED,
    DISPATCHED,
    FINISHED,
    LIVE,
    MOVES,
    OUTCOMES,
    RANK,
    RELEASED,
    RUNNING,
    STATES,
    Job,
    check_report,
    overdue_reason,
    status_of,
)

pytestmark = pytest.mark.unit

ENDS = (FINISHED, RELEASED)


# Moves.


def test_the_whole_way_forward_is_legal() -> None:
    assert set(pairwise(STATES)) <= MOVES


@pytest.mark.parametrize(
    "move",
    [
        (CREATED, ACCEPTED),
        (CREATED, RUNNING),
        (DISPATCHED, RUNNING),
        (CREATED, RELEASED),
        (RUNNING, RELEASED),
        (FINISHED, RELEASED),
    ],
)
def test_steps_may_be_left_out_as_nodes_may_stay_silent(move: tuple[str, str]) -> None:
    assert move in MOVES


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_state_goes_back_to_created_for_the_next_attempt(state: str) -> None:
    assert (state, CREATED) in MOVES


@pytest.mark.parametrize(
    "move",
    [(ACCEPTED, DISPATCHED), (RUNNING, DISPATCHED), (RUNNING, ACCEPTED), (RUNNING, RUNNING)],
)
def test_within_an_attempt_nothing_goes_back(move: tuple[str, str]) -> None:
    assert move not in MOVES


def test_an_outcome_never_changes() -> None:
    assert {move for move in MOVES if move[0] in ENDS} == {(FINISHED, RELEASED)}


def test_moves_are_between_known_states() -> None:
    assert {state for move in MOVES for state in move} == set(STATES)
    assert set(STATES) == {*LIVE, *ENDS}


def test_the_script_that_marks_jobs_ranks_states_alike() -> None:
    text = files("lingua_scheduler.state").joinpath("lua/job_mark.lua").read_text()
    table = re.search(r"local RANK = \{([^}]*)\}", text)
    assert table is not None
    assert {name: int(rank) for name, rank in re.findall(r"(\w+) = (\d)", table[1])} == RANK


# What a client is told.


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
def test_a_live_job_has_the_status_of_its_state(state: str, node: str, status: str) -> None:
    assert status_of(state, node, "") == status
    job = Job("j", state=state, node=node)
    assert job.status == status
    assert not job.ended


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("state", ENDS)
@pytest.mark.parametrize("node", ["", "n"])
def test_an_ended_job_has_its_outcome_as_status(state: str, node: str, outcome: str) -> None:
    job = Job("j", state=state, node=node, outcome=outcome)
    assert job.ended
    assert job.status == outcome


def test_the_outcomes_are_those_clients_know() -> None:
    assert OUTCOMES == ("completed", "completed_no_text", "failed", "expired", "cancelled")


def test_a_new_job_waits_for_its_first_attempt() -> None:
    job = Job("j")
    assert (job.state, job.attempt, job.node, job.status) == (CREATED, 0, "", "pending")
    assert job.tried == []
    assert Job("k").tried is not job.tried


# Whose report counts.


@pytest.mark.parametrize(
    ("node", "attempt", "reporter", "verdict"),
    [
        ("n", 2, "n", None),
        ("n", 1, "n", "STALE_ATTEMPT"),
        ("n", 3, "n", "STALE_ATTEMPT"),
        ("n", 1, "other", "STALE_ATTEMPT"),
        ("n", 2, "other", "NODE_MISMATCH"),
        ("", 2, "n", "STALE_ATTEMPT"),
        ("", 1, "n", "STALE_ATTEMPT"),
    ],
    ids=[
        "the holder",
        "an old attempt",
        "a future attempt",
        "an old attempt of another",
        "another node",
        "taken away, waits again",
        "taken away long ago",
    ],
)
def test_a_report_is_checked(node: str, attempt: int, reporter: str, verdict: str | None) -> None:
    assert check_report(Job("j", attempt=2, node=node), attempt, reporter) == verdict


# What a deadline was for.


@pytest.mark.parametrize(
    ("node", "due_at_ms", "ends_at_ms", "reason"),
    [
        ("", 10, 0, "pending_timeout"),
        ("", 10, 30, "pending_timeout"),
        ("n", 10, 30, "no_ack"),
        ("n", 30, 30, "timeout"),
        ("n", 31, 30, "timeout"),
    ],
)
def test_an_overdue_job_names_what_it_waited_for(
    node: str, due_at_ms: int, ends_at_ms: int, reason: str
) -> None:
    job = Job("j", node=node, due_at_ms=due_at_ms, ends_at_ms=ends_at_ms)
    assert overdue_reason(job) == reason
