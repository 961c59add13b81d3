"""Slices of a long speech that a node buffers without reporting them.

Nodes of the older protocol keep the audio of a slice and report it with a later one. Such slices
would fill the node for ever: when a further slice needs room, the oldest one is ended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.jobs.job import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.clock import Clock
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.node import LiveNode

# On a node that has not begun it.
WAITING_AT_NODE = (JobState.DISPATCHED, JobState.ACCEPTED)


class BufferedSlices:
    """Ends buffered slices that have had their time."""

    def __init__(
        self, jobs: JobTable, nodes: Mapping[str, LiveNode], effects: Effects, clock: Clock
    ) -> None:
        self._jobs = jobs
        self._nodes = nodes
        self._effects = effects
        self._clock = clock

    async def make_room(self, session: str, kept_ms: int) -> None:
        """End the oldest buffered slice of a session when it is this old."""
        while (job := self._oldest_of(session)) is not None:
            age_ms = self._clock.now_ms() - job.times.push
            await asyncio.sleep(max(0.0, kept_ms - age_ms) / 1000)
            if self._jobs.get(job.id) is job and job.run.state in WAITING_AT_NODE:
                await self._end(job)
                return

    def _oldest_of(self, session: str) -> LiveJob | None:
        for job in self._jobs.of(session):
            node = self._nodes.get(job.node)
            is_buffered = job.is_buffered or (node is not None and node.traits.buffers_slices)
            if job.spec.is_slice and job.run.state in WAITING_AT_NODE and is_buffered:
                return job
        return None

    async def _end(self, job: LiveJob) -> None:
        effects = self._effects
        job.run.finish("completed_no_text")
        _, work = await effects.retry.until_stored(
            lambda: effects.dispatcher.settle(
                job.home,
                job.id,
                job.attempt,
                job.node,
                kind="completed_no_text",
                reason="buffered",
            )
        )
        effects.held.remove(job.id, job.node)
        effects.perform(work)
