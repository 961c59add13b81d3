"""Acts on due timers: deadlines, gaps, silent nodes, lapsed sessions, abandoned slots.

Every instance sweeps every cell. A timer is claimed for a short time and acted on; it is due again
if the claiming instance died. Each action is checked again in its script, so a repetition is
harmless.

    j|job                              a job's deadline: pending, acknowledgement, attempt
    g|session|lane                     a hole in a lane
    s|session                          a session that was not renewed
    n|node                             a node's silence, or leases of it that must move
    m|node                             a mark of an unavailable service that expires
    l|node|job|attempt|home            a slot held for a job of another cell, expired
    r|cell|node|job|attempt            a slot in another cell to be given back
    x|session                          outcomes that some listeners do not have
    room|code                          the check of a room: missing members, idleness
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.jobs.dispatcher import Work, gather_work
from lingua_scheduler.state.records import ForeignSlot, Lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.jobs.relay import OutcomeRelay
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.store import Store

TIMERS_MAX = 256


class Sweeper:
    """Claims the due timers of a cell and acts on each."""

    def __init__(
        self,
        store: Store,
        dispatcher: Dispatcher,
        relay: OutcomeRelay,
        on_room: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._relay = relay
        # Checks a room whose timer is due; needed only where there are rooms.
        self._on_room = on_room
        self._actions = {
            "j": self._job,
            "g": self._gap,
            "s": self._session,
            "n": self._node,
            "m": self._marks,
            "l": self._lapsed_slot,
            "r": self._foreign_slot,
            "x": self._listeners,
            "room": self._room,
        }

    async def sweep(self, cell: Cell) -> Work:
        """Act on all due timers of a cell; returns the actions on sockets."""
        total = Work()
        while timers := await self._store.cells.due(cell, TIMERS_MAX):
            total.merge(await gather_work(self._act(cell, timer) for timer in timers))
            if len(timers) < TIMERS_MAX:
                break
        total.merge(await self._dispatcher.offer_waiting(cell))
        return total

    async def _act(self, cell: Cell, timer: str) -> Work:
        kind, *parts = timer.split("|")
        return await self._actions[kind](cell, parts)

    async def _job(self, cell: Cell, parts: list[str]) -> Work:
        _, work = await self._dispatcher.failover(cell, parts[0], -1, reason="deadline")
        return work

    async def _gap(self, cell: Cell, parts: list[str]) -> Work:
        _, work = await self._dispatcher.fill(cell, parts[0], parts[1])
        return work

    async def _session(self, cell: Cell, parts: list[str]) -> Work:
        _, work = await self._dispatcher.close_session(cell, parts[0], "lapsed", lapse_only=True)
        return work

    async def _node(self, cell: Cell, parts: list[str]) -> Work:
        answer = await self._store.nodes.check(cell, parts[0])
        return await self._dispatcher.move_leases(parts[0], answer.lost, "node_lost")

    async def _marks(self, cell: Cell, parts: list[str]) -> Work:
        answer = await self._store.nodes.mark(cell, parts[0])
        return Work(push=list(answer.placed))

    async def _lapsed_slot(self, cell: Cell, parts: list[str]) -> Work:
        node, job, attempt, home = parts
        lease = Lease(job, int(attempt), home)
        answer = await self._store.leases.release(cell, node, lease, lapsed_only=True)
        work = Work()
        work.add_effects(answer.effects)
        return work

    async def _listeners(self, cell: Cell, parts: list[str]) -> Work:
        return await self._relay.run(cell, parts[0])

    async def _room(self, _: Cell, parts: list[str]) -> Work:
        assert self._on_room is not None, "a deployment with rooms checks them"
        await self._on_room(parts[0])
        return Work()

    async def _foreign_slot(self, cell: Cell, parts: list[str]) -> Work:
        other, node, job, attempt = parts
        slot = ForeignSlot(other, node, job, int(attempt))
        return await self._dispatcher.release_foreign(cell, slot)
