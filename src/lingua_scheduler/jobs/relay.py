"""What a speaker said on its way to listeners whose outboxes are in other cells.

The step that releases an outcome gives it to the listeners of its own cell. What is for others
stands in the store until everybody has it, so that any instance can go on: the one whose step
released it at once, else whoever claims the timer `x|session`. Each listener gets each outcome
once, by its number, whoever brings it; the speaker is told that it passed when all have it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.dispatcher import Work

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import Ahead
    from lingua_scheduler.state.store import Store

# How long a listener's session may be missing before nobody waits for it: after the store was
# emptied sessions are opened again one by one. As in includes/relay.lua.
ABSENT_MS = 5_000
# Listeners that one call gives an outcome to.
LISTENERS_AT_ONCE = 256


class Relay:
    """Brings outcomes to listeners of other cells, on behalf of one instance."""

    def __init__(self, store: Store, cells: Cells) -> None:
        self._store = store
        self._cells = cells
        # Speakers whose outcomes are being brought now -> whether there is more since.
        self._under_way: dict[str, bool] = {}

    async def run(self, home: Cell, session: str) -> Work:
        """Bring what a speaker's listeners have not got yet, as far as they can be reached."""
        if session in self._under_way:
            self._under_way[session] = True
            return Work()
        work = Work()
        try:
            self._under_way[session] = True
            while self._under_way[session]:
                self._under_way[session] = False
                await self._bring(home, session, work)
        finally:
            del self._under_way[session]
        return work

    async def _bring(self, home: Cell, session: str, work: Work) -> None:
        reached: list[str] = []
        while True:
            step = await self._store.relay_run(home, session, reached)
            # What still waits has a timer: it is not asked for again at once.
            work.take(step.effects._replace(is_relaying=False))
            more = await self._reach(step.ahead, work)
            if not more and not step.is_cut:
                return
            # All of this run: what others still wait for would else be brought here again.
            reached += more

    async def _reach(self, ahead: tuple[Ahead, ...], work: Work) -> list[str]:
        """Give outcomes to listeners elsewhere; returns what is done, as `relay_run` takes it."""
        by_cell: dict[str, list[tuple[Ahead, list[str]]]] = {}
        for item in ahead:
            for name, listeners in listeners_by_cell(item).items():
                by_cell.setdefault(name, []).append((item, listeners))
        done = await asyncio.gather(
            *(self._reach_in(name, items, work) for name, items in by_cell.items())
        )
        return [entry for entries in done for entry in entries]

    async def _reach_in(
        self, name: str, items: list[tuple[Ahead, list[str]]], work: Work
    ) -> list[str]:
        done: list[str] = []
        for item, listeners in items:
            try:
                is_done = await self._put(self._cells.named(name), item, listeners, work)
            except StoreUnavailable:
                break  # the timer brings it back
            if is_done:
                done.append(f"{name} {item.id}")
        return done

    async def _put(self, cell: Cell, item: Ahead, listeners: list[str], work: Work) -> bool:
        is_done = True
        for at in range(0, len(listeners), LISTENERS_AT_ONCE):
            some = listeners[at : at + LISTENERS_AT_ONCE]
            effects, absent = await self._store.outbox_put(cell, item, some)
            work.heard.extend(heard._replace(payload=item.payload) for heard in effects.heard)
            is_done &= not absent or item.age_ms >= ABSENT_MS
        return is_done


def listeners_by_cell(item: Ahead) -> dict[str, list[str]]:
    """Return the listeners of an outcome by their cell."""
    found: dict[str, list[str]] = {}
    for where in item.listeners:
        name, _, listener = where.partition("/")
        found.setdefault(name, []).append(listener)
    return found
