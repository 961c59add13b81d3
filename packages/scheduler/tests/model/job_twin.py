"""A job of the model's twin (`twin.py`): its attempt, whose report counts, what is overdue."""

from __future__ import annotations

from dataclasses import dataclass, field

from lingua_scheduler.jobs.job import FINAL_STATES, JobState, job_status

CREATED, FINISHED, RELEASED = JobState.CREATED, JobState.FINISHED, JobState.RELEASED
# The order in which a job passes its states; reports of a lower state change nothing.
RANK: dict[str, int] = {state: rank for rank, state in enumerate(JobState)}


@dataclass(slots=True)
class JobTwin:
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
        return self.state in FINAL_STATES

    @property
    def status(self) -> str:
        """Return the client's word for the state."""
        return job_status(JobState(self.state), self.node, self.outcome)


def check_report(job: JobTwin, attempt: int, node: str) -> str | None:
    """Return why a report about an attempt does not count, or None if its sender holds the job."""
    if job.attempt != attempt or not job.node:
        return "STALE_ATTEMPT"
    return "NODE_MISMATCH" if job.node != node else None


def overdue_reason(job: JobTwin) -> str:
    """Name what a job whose deadline passed was waiting for."""
    if not job.node:
        return "pending_timeout"
    return "no_ack" if job.due_at_ms < job.ends_at_ms else "timeout"
