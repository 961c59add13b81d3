"""A snapshot of the whole fleet: the pools of every cell, read periodically.

It is used to skip cells that cannot serve a demand, and by `explain`. It may be slightly old:
decisions are made by the scripts of a cell, never here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.jobs.placement import CellFleet, NodeView, PoolView, pool_refuses
from lingua_scheduler.jobs.requirement import Demand
from lingua_scheduler.nodes.capability import read_descriptor

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.records import NodeRow, PoolRow
    from lingua_scheduler.state.store import Store

PAGE = 500
# The number of different tie-breaks in a score; as in includes/node_score.lua.
TIES = 1 << 20


class CellCounts(NamedTuple):
    """The counts of a whole cell."""

    waiting: int
    offline: int
    nodes: int = 0


class CellPool(NamedTuple):
    """A pool with its counts and abilities, and the cell that it is in."""

    cell: str
    row: PoolRow
    view: PoolView


class FleetSnapshot:
    """The pools of all cells, as they were at the last refresh."""

    def __init__(self, store: Store, cells: Cells) -> None:
        self._store = store
        self._cells = cells
        # None until the first refresh: until then every cell is asked.
        self._pools: dict[str, list[PoolView]] | None = None
        # Demand -> cells that serve it; dropped with each refresh.
        self._serving: dict[str, frozenset[str]] = {}
        # Cell -> jobs that waited for a node, nodes that were offline, and all nodes.
        self.counts: dict[str, CellCounts] = {}
        self._rows: dict[str, tuple[PoolRow, ...]] = {}

    async def refresh(self) -> None:
        """Read the pools of every cell."""
        rows = await asyncio.gather(*(self._store.cells.pools(cell) for cell in self._cells.all))
        self._pools = {
            cell.name: [pool_view(row) for row in pools]
            for cell, (pools, _, _) in zip(self._cells.all, rows, strict=True)
        }
        self.counts = {
            cell.name: CellCounts(waiting, sum(pool.offline for pool in pools), nodes)
            for cell, (pools, waiting, nodes) in zip(self._cells.all, rows, strict=True)
        }
        self._rows = {
            cell.name: pools for cell, (pools, _, _) in zip(self._cells.all, rows, strict=True)
        }
        self._serving.clear()

    @property
    def pools(self) -> list[PoolView]:
        """Return all known pools; empty before the first refresh."""
        return [pool for pools in (self._pools or {}).values() for pool in pools]

    @property
    def counted_pools(self) -> list[CellPool]:
        """Return all known pools with their counts."""
        known = self._pools or {}
        return [
            CellPool(cell, row, view)
            for cell, rows in self._rows.items()
            for row, view in zip(rows, known[cell], strict=True)
        ]

    def serves(self, demand: str) -> bool:
        """Tell whether a known node serves a demand; True before the first refresh."""
        return self._pools is None or bool(self._cells_for(demand))

    def elsewhere(self, home: Cell, demand: str) -> list[Cell]:
        """Return the other cells that may serve a demand, in ring order."""
        if len(self._cells.all) == 1:
            return []
        ring = self._cells.ring_after(home)
        if self._pools is None:
            return list(ring)
        serving = self._cells_for(demand)
        return [cell for cell in ring if cell.name in serving]

    def _cells_for(self, demand: str) -> frozenset[str]:
        serving = self._serving.get(demand)
        if serving is None:
            wanted = Demand.parse(demand)
            serving = self._serving[demand] = frozenset(
                name
                for name, pools in (self._pools or {}).items()
                if any(pool_refuses(pool, wanted) is None for pool in pools)
            )
        return serving


async def read_fleet(store: Store, cell: Cell) -> CellFleet:
    """Read a whole cell, page by page."""
    pools, _, _ = await store.cells.pools(cell)
    fleet = CellFleet(pools={row.pool: pool_view(row) for row in pools})
    after = ""
    while rows := await store.cells.nodes(cell, after, PAGE):
        fleet.nodes |= {row.node: node_view(row) for row in rows if row.pool in fleet.pools}
        after = rows[-1].node
    return fleet


def pool_view(row: PoolRow) -> PoolView:
    """Return a pool for placement."""
    can, services = read_descriptor(row.descriptor)
    return PoolView(row.pool, can, services)


def node_view(row: NodeRow) -> NodeView:
    """Return a node for placement."""
    return NodeView(
        id=row.node,
        pool=row.pool,
        boot=row.boot,
        status=row.status,
        draining=row.draining,
        over=row.over,
        max_jobs=row.max,
        leased=row.leased,
        extra=row.extra,
        tie=row.score % TIES / TIES,
        instance=row.instance,
    )
