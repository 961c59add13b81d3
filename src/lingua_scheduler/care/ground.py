"""What every check of one look shares: the reader, the time of each cell, who lives.

An instance is *long dead* when it was silent for several times what makes others take over from it,
and nobody is doing so now: until then its remains are work in progress, not damage.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.between.presence import Directory
from lingua_scheduler.care.reading import Reader
from lingua_scheduler.state.keys import Cells, InstanceKeys
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from lingua_scheduler.between.presence import InstanceRow
    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Connection

# After how many times the silence that makes an instance dead others should have taken over.
LONG_DEAD = 3


@dataclass(slots=True)
class Ground:
    """One look's premises."""

    connection: Connection
    prefix: str
    cells: Cells
    policy: FleetPolicy
    silence_ms: int
    reader: Reader
    # The time of each cell, by its name, at the beginning of the look.
    times_ms: dict[str, int]
    rows: dict[str, InstanceRow] = field(default_factory=dict)
    # Names with an inbox, or the mention of one, and no record.
    orphans: tuple[str, ...] = ()
    # Those whose inbox somebody reads now.
    adopted: frozenset[str] = frozenset()
    # As listed: who may have an inbox, who may have dead letters.
    inboxes: frozenset[str] = frozenset()
    dlqs: frozenset[str] = frozenset()

    def now_ms(self, cell: Cell) -> int:
        """Return the time by which a cell's timers and leases are judged."""
        return self.times_ms[cell.name]

    @property
    def alive(self) -> list[str]:
        """Return the instances that live."""
        return [name for name, row in self.rows.items() if row.age_ms <= self.silence_ms]

    def is_long_dead(self, instance: str) -> bool:
        """Tell whether an instance should have been taken over from by now."""
        row = self.rows.get(instance)
        if instance in self.adopted:
            return False
        return row is None or row.age_ms > LONG_DEAD * self.silence_ms


async def read_ground(
    connection: Connection, settings: Settings, reader: Reader | None = None
) -> Ground:
    """Ask the store for the time and for all instances."""
    prefix = settings.redis.key_prefix
    cells = Cells(prefix, settings.cells)
    home = cells.all[0]
    policy = FleetPolicy.of(settings)
    store = Store(connection, policy)
    times_ms = await asyncio.gather(*(store.cell_time(cell) for cell in cells.all))
    rows, orphans = await Directory(connection, prefix).look()
    inboxes, dlqs = await asyncio.gather(
        connection.command(home.slot, "SMEMBERS", home.key("inboxes")),
        connection.command(home.slot, "SMEMBERS", home.key("dlqs")),
    )
    silence_ms = settings.instances.silence_ms
    silent = [name for name, row in rows.items() if row.age_ms > silence_ms]
    return Ground(
        connection, prefix, cells, policy, silence_ms,
        reader or Reader(connection, prefix),
        {cell.name: at_ms for cell, at_ms in zip(cells.all, times_ms, strict=True)},
        rows, orphans, await _adopted(connection, prefix, [*silent, *orphans]),
        frozenset(name.decode() for name in inboxes), frozenset(name.decode() for name in dlqs),
    )  # fmt: skip


async def _adopted(connection: Connection, prefix: str, names: list[str]) -> frozenset[str]:
    keys = [InstanceKeys(prefix, name) for name in names]
    holders = await asyncio.gather(
        *(connection.command(each.slot, "GET", each.adopter) for each in keys)
    )
    return frozenset(
        name for name, holder in zip(names, holders, strict=True) if holder is not None
    )
