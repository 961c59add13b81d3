"""Takes outcomes of a speaker to listeners whose outboxes are in other cells.

The step that releases an outcome gives it to the listeners of its own cell. Outcomes for other
cells stay in the store until all listeners have them, so that any instance can continue: the one
whose step released them at once, else the one that claims the timer `x|session`. Each listener gets
each outcome once, by its number. The speaker is informed when all listeners have it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.dispatcher import Work

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import UndeliveredOutcome
    from lingua_scheduler.state.store import Store

# How long to wait for a missing session of a listener: after the store was emptied, sessions are
# opened again one by one. As in includes/relay.lua.
ABSENT_MS = 5_000
# The number of listeners of one call.
LISTENERS_AT_ONCE = 256


class OutcomeRelay:
    """Takes outcomes to listeners of other cells, on behalf of one instance."""

    def __init__(self, store: Store, cells: Cells) -> None:
        self._store = store
        self._cells = cells
        # Speakers in progress -> whether another run was requested since.
        self._under_way: dict[str, bool] = {}

    async def run(self, home: Cell, session: str) -> Work:
        """Give a speaker's listeners their missing outcomes, as far as they are reachable."""
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
            step = await self._store.outbox.relay(home, session, reached)
            # Remaining outcomes have a timer and are not retried at once.
            work.add_effects(msgspec.structs.replace(step.effects, is_relaying=False))
            more = await self._reach(step.ahead, work)
            if not more and not step.is_cut:
                return
            # Everything of this run, or the same outcomes would be delivered again.
            reached += more

    async def _reach(self, ahead: tuple[UndeliveredOutcome, ...], work: Work) -> list[str]:
        """Give outcomes to listeners in other cells; returns the finished ones for `relay_run`."""
        by_cell: dict[str, list[tuple[UndeliveredOutcome, list[str]]]] = {}
        for item in ahead:
            for name, listeners in listeners_by_cell(item).items():
                by_cell.setdefault(name, []).append((item, listeners))
        done = await asyncio.gather(
            *(self._reach_in(name, items, work) for name, items in by_cell.items())
        )
        return [entry for entries in done for entry in entries]

    async def _reach_in(
        self, name: str, items: list[tuple[UndeliveredOutcome, list[str]]], work: Work
    ) -> list[str]:
        done: list[str] = []
        for item, listeners in items:
            try:
                is_done = await self._put(self._cells.named(name), item, listeners, work)
            except StoreUnavailable:
                break  # the timer repeats it
            if is_done:
                done.append(f"{name} {item.id}")
        return done

    async def _put(
        self, cell: Cell, item: UndeliveredOutcome, listeners: list[str], work: Work
    ) -> bool:
        is_done = True
        for at in range(0, len(listeners), LISTENERS_AT_ONCE):
            some = listeners[at : at + LISTENERS_AT_ONCE]
            effects, absent = await self._store.outbox.put(cell, item, some)
            work.heard.extend(heard._replace(payload=item.payload) for heard in effects.heard)
            is_done &= not absent or item.age_ms >= ABSENT_MS
        return is_done


def listeners_by_cell(item: UndeliveredOutcome) -> dict[str, list[str]]:
    """Return the listeners of an outcome by their cell."""
    found: dict[str, list[str]] = {}
    for where in item.listeners:
        name, _, listener = where.partition("/")
        found.setdefault(name, []).append(listener)
    return found
