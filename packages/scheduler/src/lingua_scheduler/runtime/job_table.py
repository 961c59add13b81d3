"""The jobs of this instance's sessions that have no delivered outcome yet.

Jobs whose outcome listeners have received are kept a while longer: the store may lose what it
confirmed last, and then such a job is submitted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.runtime.job import JobOwner, LiveJob

# How long the store may lose what it has confirmed (docs/guarantees.md, "Windows of the store").
STORE_LOSES_MS = 5_000


class JobTable:
    """Jobs by their id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, LiveJob] = {}
        # Returns a job, None if it is unknown, without a call of ours.
        self.get: Callable[[str], LiveJob | None] = self._jobs.get
        # Job -> until when it is kept, for those that listeners have received.
        self._passed: dict[str, tuple[float, LiveJob]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(self._jobs.values())

    def add(self, job: LiveJob) -> None:
        """Add a job; a known one is not replaced."""
        self._jobs.setdefault(job.id, job)

    def pop(self, job_id: str) -> LiveJob | None:
        """Remove a job whose outcome is delivered, and return it."""
        return self._jobs.pop(job_id, None)

    def remove(self, job: LiveJob) -> bool:
        """Remove this very job; tells whether it was here."""
        if self._jobs.get(job.id) is not job:
            return False
        del self._jobs[job.id]
        return True

    def of(self, session: str) -> list[LiveJob]:
        """Return the jobs of a session, in order."""
        mine = (job for job in self._jobs.values() if job.spec.session == session)
        return sorted(mine, key=lambda job: job.spec.index)

    def remove_all_of(self, owner: JobOwner) -> None:
        """Remove the jobs of a session that has ended here: their outcomes are not delivered.

        The client may have resumed meanwhile: then another session here has the same id.
        """
        for job in [job for job in self._jobs.values() if job.owner is owner]:
            del self._jobs[job.id]

    def keep_passed(self, job: LiveJob) -> None:
        """Keep a job that listeners have received, for as long as the store may lose that."""
        now, passed = self._clock.now_ms(), self._passed
        passed[job.id] = (now + STORE_LOSES_MS, job)
        while (first := next(iter(passed))) != job.id and passed[first][0] < now:
            del passed[first]

    def passed_of(self, session: str) -> list[LiveJob]:
        """Return the jobs of a session that listeners received a moment ago, in order."""
        now = self._clock.now_ms()
        mine = (job for until, job in self._passed.values() if until >= now)
        of_session = (job for job in mine if job.spec.session == session)
        return sorted(of_session, key=lambda job: job.spec.index)
