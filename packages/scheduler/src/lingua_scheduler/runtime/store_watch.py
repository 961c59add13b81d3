"""Whether the store may have lost what it confirmed: then everything here is verified once.

A lost link, and a store that does not know this instance any more, are reasons to verify: the store
may have lost its last writes, or everything. Each reason begins a new generation; sessions note the
generation they were last verified against.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.tasks import all_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.runtime.lease_renewal import LeaseRenewal
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.node_registry import NodeRegistry
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.tasks import Tasks


@dataclass(slots=True, kw_only=True, eq=False)
class StoreWatch:
    """Verifies what the store has of this instance."""

    connection: Connection
    sessions: Mapping[str, LiveSession]
    nodes: Mapping[str, LiveNode]
    registry: NodeRegistry
    cache: RoomCache
    leases: LeaseRenewal
    tasks: Tasks
    # Which links to the store are in use.
    links: int
    # How often there was reason to verify, and what was verified: all of it, and the nodes.
    generation: int = 0
    verified: int = 0
    nodes_verified: int = 0

    def doubt(self) -> None:
        """Note a reason to verify."""
        self.generation += 1

    async def verify(self) -> None:
        """Verify if there is reason to."""
        if self.links != self.connection.generation:
            self.links = self.connection.generation
            self.doubt()
        if self.verified != self.generation:
            generation = self.generation
            await self._verify_all(generation)
            self.verified = generation

    async def _verify_all(self, generation: int) -> None:
        """Verify everything once; later only what could not be reached."""
        if self.nodes_verified != generation:
            self.nodes_verified = generation
            for node in list(self.nodes.values()):
                self.tasks.start(self.registry.enter_again(node))
        records = ((session, session.record) for session in self.sessions.values())
        unverified = [s for s, r in records if not r.is_over and r.verified != generation]
        try:
            await all_of(self._verify_session(session, generation) for session in unverified)
        finally:
            await self.cache.verify()

    async def _verify_session(self, session: LiveSession, generation: int) -> None:
        # Ownership first: the client may have resumed elsewhere while we had no link.
        await self.leases.renew(session)
        if not session.record.is_over:
            await session.verify()
        session.record.verify(generation)
