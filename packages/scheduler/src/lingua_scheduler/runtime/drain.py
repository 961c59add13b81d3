"""The orderly end of an instance: nothing new, then everything here is finished or handed over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lingua_scheduler.runtime.session_state import SessionState
from lingua_wire.codes import CloseCode
from lingua_wire.to_client import GoAway

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.node_registry import NodeRegistry
    from lingua_scheduler.runtime.peer_instances import PeerInstances
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.tasks import Tasks

# How long a client that was asked to resume elsewhere has, before it is finished here.
GO_ELSEWHERE_MS = 5000
# How long the last messages and the remaining nodes may delay the end of an instance.
LAST_STEPS_S = 1.0
STOPS = "the instance stops"


class SiblingDrain(Protocol):
    """How an instance drains that is one of several workers of a service."""

    # The siblings that drain at the same time: nothing can be handed over to them.
    leaving: Collection[str]
    # Siblings that do not drain take over what is here.
    hands_over: bool

    async def finished(self, *, all_of_it: bool) -> None:
        """Report that the sessions here are finished; wait until those of the siblings are."""


@dataclass(slots=True, kw_only=True, eq=False)
class Drain:
    """Ends the work of one instance."""

    lifecycle: Lifecycle
    sessions: Mapping[str, LiveSession]
    nodes: Mapping[str, LiveNode]
    registry: NodeRegistry
    cache: RoomCache
    peers: PeerInstances
    tasks: Tasks
    limit_ms: int
    # None for an instance that is a service of its own.
    siblings: SiblingDrain | None = None

    async def run(self) -> bool:
        """Accept nothing new, hand over or finish what is here; tells whether all of it was."""
        moves = self._moves()
        self.lifecycle.drain(hands_over=moves)
        sessions = list(self.sessions.values())
        for session in sessions:
            self._announce(session, moves=moves)
        moving = [self._send_nodes_away()] if moves else []
        done = await asyncio.gather(
            *moving, *(self._finish(session, moves=moves) for session in sessions)
        )
        if self.siblings is not None:
            # The nodes here may still work for sessions of a sibling.
            await self.siblings.finished(all_of_it=all(done))
        for session in sessions:
            session.notifier.close(CloseCode.GOING_AWAY, STOPS)
        await self._disconnect_nodes()
        return all(done)

    def _moves(self) -> bool:
        """Tell whether others take over what is here."""
        siblings = self.siblings
        if siblings is None:
            return self.peers.are_there
        return siblings.hands_over or self.peers.are_besides(siblings.leaving)

    def _announce(self, session: LiveSession, *, moves: bool) -> None:
        record = session.record
        session.notifier.addition(
            GoAway(reason="shutdown", reconnect_after_ms=0, closes_in_ms=self.limit_ms)
        )
        if not (moves and record.is_resumable):
            session.input.end()
        elif record.state is SessionState.CONNECTED:
            record.move(SessionState.MOVING)

    async def _finish(self, session: LiveSession, *, moves: bool) -> bool:
        """Disconnect a client when it has received everything, or has gone elsewhere.

        In a room it may still receive outcomes of others.
        """
        if moves and session.record.is_resumable:
            if await session.until_elsewhere(min(self.limit_ms, GO_ELSEWHERE_MS)):
                return True
            session.input.end()
        is_done = await session.until_settled(self.limit_ms)
        if self.cache.rooms.room_of(session.id) is None:
            session.notifier.close(CloseCode.GOING_AWAY, STOPS)
        return is_done

    async def _send_nodes_away(self) -> bool:
        try:
            async with asyncio.timeout(self.limit_ms / 1000):
                await asyncio.gather(
                    *(self.registry.send_away(node) for node in list(self.nodes.values()))
                )
        except TimeoutError:
            return False
        return True

    async def _disconnect_nodes(self) -> None:
        """Close the nodes that are left; other nodes have what they held before this ends."""
        nodes = list(self.nodes.values())
        for node in nodes:
            node.send_away(CloseCode.GOING_AWAY, STOPS)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_STEPS_S):
                await asyncio.gather(*(self.registry.gone(node) for node in nodes))
        await self.tasks.rest(LAST_STEPS_S)
