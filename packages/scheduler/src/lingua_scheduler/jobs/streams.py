"""Streams over the cells: where an utterance is heard while it is being spoken.

The home cell of a session is asked first, then a few others. A crash between two steps leaves only
a lease that expires; a stream that is lost costs only the head start.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.reply import UNPLACEABLE, Reply
from lingua_scheduler.state.stream_scripts import StreamAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import JobSpec
    from lingua_scheduler.state.store import Store
    from lingua_scheduler.state.stream_scripts import OpenedStream, StreamSpec

# How many other cells are asked for any of their nodes: the speech goes on meanwhile.
OTHER_CELLS_MAX: Final = 2


class StreamDispatcher:
    """Opens, renews and closes streams on behalf of one instance."""

    def __init__(self, store: Store, cells: Cells, fleet: FleetSnapshot) -> None:
        self._store = store
        self._cells = cells
        self._fleet = fleet

    async def open_stream(
        self, home: Cell, stream_id: str, spec: StreamSpec
    ) -> tuple[StreamAnswer, OpenedStream | None]:
        """Find a node that hears an utterance: in its home cell, else in another one."""
        preferred = self._holder_elsewhere(home, spec.preferred)
        park = 2 if preferred else 1
        answer = await self._store.streams.open(home, stream_id, spec, park=park)
        if answer.label == "affinity_elsewhere":
            named = [*answer.affinity.split(","), preferred]
            answer = await self._ask_holders(home, stream_id, spec, named)
        if answer.reply in UNPLACEABLE:
            answer = await self._ask_others(home, stream_id, spec, answer)
        return answer, answer.stream

    async def renew_streams(self, streams: Iterable[OpenedStream]) -> list[str]:
        """Renew streams, one call for each cell; return the ids of those that are gone.

        An unreachable cell says nothing about its streams.
        """
        by_cell: dict[str, list[tuple[str, str]]] = {}
        for stream in streams:
            by_cell.setdefault(stream.cell, []).append((stream.node, stream.id))
        found = await asyncio.gather(
            *(self._renew_in(self._cells.named(cell), some) for cell, some in by_cell.items())
        )
        return [stream for gone in found for stream in gone]

    async def close_stream(self, stream: OpenedStream) -> bool:
        """Close a stream whose utterance has no job; tells whether it was open.

        One that cannot be closed now expires.
        """
        with suppress(StoreUnavailable):
            cell = self._cells.named(stream.cell)
            return await self._store.streams.close(cell, stream.node, stream.id)
        return False

    async def _renew_in(self, cell: Cell, streams: list[tuple[str, str]]) -> list[str]:
        with suppress(StoreUnavailable):
            return await self._store.streams.renew(cell, streams)
        return []

    def _holder_elsewhere(self, home: Cell, node: str) -> str:
        """Return `cell/node` of a node of another cell."""
        if not node or self._cells.of_node(node) is home:
            return ""
        return f"{self._cells.of_node(node).name}/{node}"

    async def _ask_holders(
        self, home: Cell, stream_id: str, spec: StreamSpec, named: list[str]
    ) -> StreamAnswer:
        """Ask nodes of other cells by name, then any node of the home cell."""
        for holder in filter(None, named):
            name, _, node = holder.partition("/")
            answer = await self._ask(self._cells.named(name), stream_id, spec.elsewhere(node))
            if answer.stream is not None:
                return answer
        return await self._store.streams.open(home, stream_id, spec)

    async def _ask_others(
        self, home: Cell, stream_id: str, spec: StreamSpec, refused: StreamAnswer
    ) -> StreamAnswer:
        """Ask a few other cells for any node, in the order that jobs have."""
        for cell in self._fleet.elsewhere(home, spec.demand)[:OTHER_CELLS_MAX]:
            answer = await self._ask(cell, stream_id, spec.elsewhere())
            if answer.stream is not None:
                return answer
        return refused

    async def _ask(self, cell: Cell, stream_id: str, spec: StreamSpec) -> StreamAnswer:
        try:
            return await self._store.streams.open(cell, stream_id, spec)
        except StoreUnavailable:
            # A lease that was taken nevertheless expires.
            return StreamAnswer(Reply.NO_AVAILABLE_NODE, label="unavailable")

    async def _close_heard(self, spec: JobSpec) -> None:
        """Close the stream of a job in another cell; in its own cell the submit does that."""
        cell, _, node = spec.stream_node.partition("/")
        with suppress(StoreUnavailable):
            await self._store.streams.close(self._cells.named(cell), node, spec.stream)


def heard_elsewhere(home: Cell, spec: JobSpec) -> bool:
    """Tell whether a node of another cell has heard the stream of a job."""
    return bool(spec.stream_node) and not spec.stream_node.startswith(f"{home.name}/")
