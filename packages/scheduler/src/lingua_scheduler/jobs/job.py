"""The state machine of a job. Pure: the scripts follow this table, and running jobs ask it.

    ┌──────────────┬────────────┬───────────┐    failover: attempt + 1
    v              │            │           │
 CREATED ──> DISPATCHED ──> ACCEPTED ──> RUNNING
    │              │            │           │
    └──────────────┴────────────┴───────────┴──> FINISHED ──> RELEASED

A job in CREATED waits in the queue if it has no node. FINISHED has its outcome and waits for its
predecessors; RELEASED is in the outbox. Both are final: an outcome never changes.
"""

from __future__ import annotations

from enum import StrEnum

from lingua_scheduler.transitions import IllegalTransition


class JobState(StrEnum):
    """Where a job is on its way; the store keeps these words."""

    CREATED = "CREATED"
    DISPATCHED = "DISPATCHED"
    ACCEPTED = "ACCEPTED"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    RELEASED = "RELEASED"


# States without an outcome, in the order in which an attempt passes them.
LIVE_STATES = (JobState.CREATED, JobState.DISPATCHED, JobState.ACCEPTED, JobState.RUNNING)
FINAL_STATES = (JobState.FINISHED, JobState.RELEASED)
TRANSITIONS: frozenset[tuple[JobState, JobState]] = frozenset(
    {(a, b) for n, a in enumerate(LIVE_STATES) for b in LIVE_STATES[n + 1 :]}  # forward
    | {(a, JobState.CREATED) for a in LIVE_STATES}  # the next attempt, or back to the queue
    | {(a, b) for a in LIVE_STATES for b in FINAL_STATES}  # the outcome
    | {(JobState.FINISHED, JobState.RELEASED)}
)


def job_transition(before: JobState, after: JobState) -> JobState:
    """Return the new state; raises `IllegalTransition` if the machine does not have this one."""
    if (before, after) not in TRANSITIONS:
        raise IllegalTransition("job", before, after)
    return after


def job_status(state: JobState, node: str, outcome: str) -> str:
    """Return the client's word for a state: pending, assigned, processing, or the outcome."""
    if state in FINAL_STATES:
        return outcome
    if not node:
        return "pending"
    return "processing" if state is JobState.RUNNING else "assigned"
