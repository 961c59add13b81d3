"""Jobs of the model's twin: whose report counts, what is overdue, and the ranks of states.

These rules are the reference of `twin.py`, which the scripts are compared with.
"""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from lingua_scheduler.jobs.job import FINAL_STATES, JobState
from lingua_scheduler.jobs.result import REASONS
from model.job_twin import CREATED, RANK, JobTwin, check_report, overdue_reason

pytestmark = pytest.mark.unit

# An outcome of a job; places that were never filled are "missing".
OUTCOMES = sorted({*REASONS, "completed"} - {"missing"})


def test_the_script_that_marks_jobs_ranks_states_alike() -> None:
    text = files("lingua_scheduler.state").joinpath("lua/job_mark.lua").read_text()
    table = re.search(r"local RANK = \{([^}]*)\}", text)
    assert table is not None
    assert {name: int(rank) for name, rank in re.findall(r"(\w+) = (\d)", table[1])} == RANK


def test_a_new_job_waits_for_its_first_attempt() -> None:
    job = JobTwin("j")
    assert (job.state, job.attempt, job.node, job.status) == (CREATED, 0, "", "pending")
    assert job.tried == []
    assert JobTwin("k").tried is not job.tried


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_has_ended_when_its_outcome_is_known(state: JobState) -> None:
    assert JobTwin("j", state=state, node="n").ended is (state in FINAL_STATES)


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("state", FINAL_STATES)
@pytest.mark.parametrize("node", ["", "n"])
def test_an_ended_job_has_its_outcome_as_status(state: JobState, node: str, outcome: str) -> None:
    job = JobTwin("j", state=state, node=node, outcome=outcome)
    assert job.ended
    assert job.status == outcome


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
    assert check_report(JobTwin("j", attempt=2, node=node), attempt, reporter) == verdict


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
    job = JobTwin("j", node=node, due_at_ms=due_at_ms, ends_at_ms=ends_at_ms)
    assert overdue_reason(job) == reason
