"""Gauges of one instance, brought up to date at a scrape."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.peer_instances import PeerInstances
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.state.keys import Cells


@dataclass(slots=True, kw_only=True, eq=False)
class InstanceGauges:
    """Counts what is on this instance, and the cells it reports for."""

    metrics: LiveMetrics
    sessions: Mapping[str, LiveSession]
    nodes: Mapping[str, LiveNode]
    held: HeldJobs
    cache: RoomCache
    fleet: FleetSnapshot
    cells: Cells
    peers: PeerInstances

    def follow(self, pause_ms: int) -> None:
        """Update the gauges at every scrape."""
        self.metrics.speech.sessions.follow(lambda: len(self.sessions))
        self.metrics.speech.rooms.follow(lambda: len(self.cache.rooms))
        self.metrics.speech.web_task_pause_ms.set(pause_ms)
        self.metrics.sources.extend((self._count_nodes, self._count_cells, self.peers.count))

    def _count_nodes(self) -> None:
        """Count nodes and slots by the sockets here; a draining node is not ready."""
        nodes, metrics = self.nodes.values(), self.metrics
        found = Counter("draining" if node.is_draining else node.status for node in nodes)
        for status in ("registering", "ready", "degraded", "draining"):
            metrics.fleet.nodes.labels(status=status).set(found[status])
        held = Counter(job.node for job in self.held)
        free = sum(max(0, n.max_jobs - held[n.id]) for n in nodes if n.takes_work)
        metrics.fleet.slots.labels(state="taken").set(held.total())
        metrics.fleet.slots.labels(state="free").set(free)

    def _count_cells(self) -> None:
        """Report what is counted of a whole cell, for the cells that this instance reports for."""
        known = self.fleet.counts
        ours = [
            known[cell.name]
            for place, cell in enumerate(self.cells.all)
            if cell.name in known and self.peers.speaks_for(place)
        ]
        self.metrics.jobs.queue_depth.set(sum(counts.waiting for counts in ours))
        self.metrics.fleet.nodes.labels(status="offline").set(
            sum(counts.offline for counts in ours)
        )
