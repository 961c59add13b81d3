"""The job machine: states, moves, statuses. Pure; the table the scripts follow.

    CREATED --> DISPATCHED --> ACCEPTED --> RUNNING --> FINISHED --> RELEASED
       ^  \\__________\\____________\\__________\\________^   ^
       |              failover: attempt + 1               |
       +--------------------------------------------------+

CREATED without a node waits in the queue; with one it is assigned. FINISHED has its outcome and
waits for its predecessors; RELEASED is in the outbox. Both are ends: an outcome never changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

CREATED, DISPATCHED, ACCEPTED, RUNNING = "CREATED", "DISPATCHED", "ACCEPTED", "RUNNING"
FINISHED, RELEASED = "FINISHED", "RELEASED"
STATES = (CREATED, DISPATCHED, ACCEPTED, RUNNING, FINISHED, RELEASED)
RANK = {state: rank for rank, state in enumerate(STATES)}
LIVE = frozenset((CREATED, DISPATCHED, ACCEPTED, RUNNING))

MOVES = frozenset(
    {(a, b) for a in LIVE for b in LIVE if RANK[a] < RANK[b]}  # forward
    | {(a, CREATED) for a in LIVE}  # the next attempt, or back to the queue
    | {(a, b) for a in LIVE for b in (FINISHED, RELEASED)}  # the outcome
    | {(FINISHED, RELEASED)}
)

OUTCOMES = ("completed", "completed_no_text", "failed", "expired", "cancelled")


@dataclass(slots=True)
class Job:
    """One utterance into one language."""

    id: str
    state: str = CREATED
    attempt: int = 0
    # The holder of the current attempt, '' while it waits.
    node: str = ""
    cell: str = ""
    boot: str = ""
    node_acks: bool = False
    due_at_ms: int = 0
    ends_at_ms: int = 0
    # (node, boot) of every attempt that was taken away.
    tried: list[tuple[str, str]] = field(default_factory=list)
    outcome: str = ""

    @property
    def ended(self) -> bool:
        """Tell whether the outcome is known."""
        return self.state in (FINISHED, RELEASED)

    @property
    def status(self) -> str:
        """Return what a client is told."""
        return status_of(self.state, self.node, self.outcome)


def status_of(state: str, node: str, outcome: str) -> str:
    """Return the client's word for a state: pending, assigned, processing, or the outcome."""
    if state in (FINISHED, RELEASED):
        return outcome
    if not node:
        return "pending"
    return "processing" if state == RUNNING else "assigned"


def check_report(job: Job, attempt: int, node: str) -> str | None:
    """Return why a report about an attempt does not count, or None if its sender holds the job."""
    if job.attempt != attempt or not job.node:
        return "STALE_ATTEMPT"
    return "NODE_MISMATCH" if job.node != node else None


def overdue_reason(job: Job) -> str:
    """Name what a job whose deadline passed was waiting for."""
    if not job.node:
        return "pending_timeout"
    return "no_ack" if job.due_at_ms < job.ends_at_ms else "timeout"
