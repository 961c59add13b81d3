"""Messages from this instance to its peers, and to itself.

A peer message is a hint to look at the store, so that a lost one costs time only. Messages to this
instance itself wait in `to_self`, which `peer_messages.py` reads.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.peers.sender import PeerSender
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.tasks import Tasks


class PeerWriter:
    """The way to other instances."""

    def __init__(
        self, instance: str, sender: PeerSender, *, store: Store, cells: Cells, tasks: Tasks
    ) -> None:
        self.instance = instance
        self._sender = sender
        self._store = store
        self._cells = cells
        self._tasks = tasks
        self.to_self: asyncio.Queue[PeerMessage] = asyncio.Queue()

    def write(self, to: str, message: PeerMessage) -> None:
        """Send a message that may be lost; '' names no instance."""
        if to == self.instance:
            self.to_self.put_nowait(message)
        elif to:
            self._tasks.start(self._sender.send(to, message))

    async def send(self, to: str, message: PeerMessage) -> bool:
        """Send a message; False if that instance has no inbox."""
        return await self._sender.send(to, message)

    async def host_of(self, node: str) -> str:
        """Return the instance that has a node's socket, '' if there is none."""
        found: str = await self._store.nodes.host(self._cells.of_node(node), node)
        return found
