"""What all checks of one scan share: the reader, the time of each cell, the instances.

An instance is *long dead* when it was silent for several times the silence that makes others take
over, and no instance is doing so now. Until then, its keys are work in progress, not damage.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.maintenance.store_reader import StoreReader
from lingua_scheduler.peers.presence import Directory
from lingua_scheduler.state.keys import Cells, InstanceKeys
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.peers.presence import InstanceRow
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell

# A dead instance should have been taken over after this many times the silence that makes it dead.
LONG_DEAD = 3


@dataclass(slots=True)
class ScanContext:
    """What all checks of one scan share."""

    connection: Connection
    prefix: str
    cells: Cells
    policy: FleetPolicy
    silence_ms: int
    reader: StoreReader
    # The time of each cell, by its name, at the start of the scan.
    times_ms: dict[str, int]
    rows: dict[str, InstanceRow] = field(default_factory=dict)
    # Names with an inbox, or a listed one, and no record.
    orphans: tuple[str, ...] = ()
    # Instances whose inbox is being adopted now.
    adopted: frozenset[str] = frozenset()
    # The listed instances that may have an inbox, and those that may have dead letters.
    inboxes: frozenset[str] = frozenset()
    dlqs: frozenset[str] = frozenset()

    def now_ms(self, cell: Cell) -> int:
        """Return the time by which a cell's timers and leases are judged."""
        return self.times_ms[cell.name]

    @property
    def alive(self) -> list[str]:
        """Return the instances that are alive."""
        return [name for name, row in self.rows.items() if row.age_ms <= self.silence_ms]

    def is_long_dead(self, instance: str) -> bool:
        """Tell whether another instance should have taken over from this one by now."""
        row = self.rows.get(instance)
        if instance in self.adopted:
            return False
        return row is None or row.age_ms > LONG_DEAD * self.silence_ms


async def read_context(
    connection: Connection, settings: Settings, reader: StoreReader | None = None
) -> ScanContext:
    """Read the time of each cell and all instances from the store."""
    prefix = settings.redis.key_prefix
    cells = Cells(prefix, settings.cells)
    home = cells.all[0]
    policy = FleetPolicy.of(settings)
    store = Store(connection, policy)
    times_ms = await asyncio.gather(*(store.cells.time(cell) for cell in cells.all))
    rows, orphans = await Directory(connection, prefix).read()
    inboxes, dlqs = await asyncio.gather(
        connection.command(home.slot, "SMEMBERS", home.key("inboxes")),
        connection.command(home.slot, "SMEMBERS", home.key("dlqs")),
    )
    silence_ms = settings.instances.silence_ms
    silent = [name for name, row in rows.items() if row.age_ms > silence_ms]
    return ScanContext(
        connection=connection,
        prefix=prefix,
        cells=cells,
        policy=policy,
        silence_ms=silence_ms,
        reader=reader or StoreReader(connection, prefix),
        times_ms={cell.name: at_ms for cell, at_ms in zip(cells.all, times_ms, strict=True)},
        rows=rows,
        orphans=orphans,
        adopted=await _adopted(connection, prefix, [*silent, *orphans]),
        inboxes=frozenset(name.decode() for name in inboxes),
        dlqs=frozenset(name.decode() for name in dlqs),
    )


async def _adopted(connection: Connection, prefix: str, names: list[str]) -> frozenset[str]:
    keys = [InstanceKeys(prefix, name) for name in names]
    holders = await asyncio.gather(
        *(connection.command(each.slot, "GET", each.adopter) for each in keys)
    )
    return frozenset(
        name for name, holder in zip(names, holders, strict=True) if holder is not None
    )
