"""The jobs that nodes of this instance hold now, and how a job is sent to its node's socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Placement

# Jobs whose cell is remembered after they left, because their nodes may still report them: the
# latest so many at least, and at most twice as many.
HOMES_KEPT = 4096


class HeldJobs:
    """Jobs on nodes of this instance, of sessions here and elsewhere."""

    def __init__(self, nodes: Mapping[str, LiveNode]) -> None:
        self._nodes = nodes
        self._jobs: dict[str, LiveJob] = {}
        # Returns a job that a node here holds, without a call of ours.
        self.get: Callable[[str], LiveJob | None] = self._jobs.get
        # The cell of every job that was lately on a node here: the latest, and those before them,
        # which are forgotten together.
        self._homes: dict[str, Cell] = {}
        self._former_homes: dict[str, Cell] = {}

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._jobs

    def __iter__(self) -> Iterator[LiveJob]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def push(self, job: LiveJob, placement: Placement, now_ms: float) -> bool:
        """Send a job to its node's socket; tells whether the socket was open."""
        node, left_ms, ends_ms = self._nodes.get(placement.node), None, job.run.current.ends_ms
        if ends_ms:
            left_ms = max(1, round(ends_ms - now_ms))
        if node is None or not node.assign(job, placement, left_ms):
            return False
        self._jobs[job.id] = job
        self.remember(job.id, job.home)
        return True

    def remember(self, job_id: str, home: Cell) -> None:
        """Remember the cell of a job that a node here has or had."""
        homes = self._homes
        homes[job_id] = home
        if len(homes) >= HOMES_KEPT:
            self._homes, self._former_homes = {}, homes

    def home_of(self, job_id: str) -> Cell | None:
        """Return the cell of a job that was lately on a node here."""
        return self._homes.get(job_id) or self._former_homes.get(job_id)

    def remove(self, job_id: str, node: str) -> None:
        """Note that a job is not on that node any more."""
        job = self._jobs.get(job_id)
        if job is not None and job.run.current.node == node:
            del self._jobs[job_id]

    def remove_all_of(self, node: str) -> None:
        """Remove all jobs of a node that is not connected here any more."""
        for job in [job for job in self._jobs.values() if job.node == node]:
            del self._jobs[job.id]

    def has_any_of(self, node: str) -> bool:
        """Tell whether a node holds any job."""
        return any(job.node == node for job in self._jobs.values())
