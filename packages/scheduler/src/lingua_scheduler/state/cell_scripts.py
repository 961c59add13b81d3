"""The scripts about whole cells: their time, timers, queues, pools and nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.answers import read_node_row
from lingua_scheduler.state.records import PoolRow, WaitingJob

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import ForeignSlot, NodeRow
    from lingua_scheduler.state.script_runner import ScriptRunner


class CellScripts:
    """Claims the timers of a cell and reads its queues, pools and nodes."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        self._claim_ms = policy.claim_ms

    async def time(self, cell: Cell) -> int:
        """Return the cell's own time, in ms: the server's without its steps."""
        return int((await self._runner.run("cell_time", cell))[1])

    async def due(self, cell: Cell, limit: int = 256) -> tuple[str, ...]:
        """Claim the timers that are due."""
        raw = await self._runner.run("cell_due", cell, (limit, self._claim_ms))
        return tuple(timer.decode() for timer in raw[1])

    async def mend(self, cell: Cell, what: str, name: str, more: int | str) -> None:
        """Put right what `lingua doctor` found, unless it is in order by now."""
        await self._runner.run("cell_mend", cell, (what, name, more))

    async def done(self, cell: Cell, slot: ForeignSlot) -> None:
        """Drop the timer of a slot in another cell that was given back."""
        timer = f"r|{slot.cell}|{slot.node}|{slot.job}|{slot.attempt}"
        await self._runner.run("cell_done", cell, (timer,))

    async def waiting(self, cell: Cell, limit: int) -> tuple[WaitingJob, ...]:
        """Return the jobs that wait, a few of each demand, earliest deadline first."""
        raw = await self._runner.run("cell_waiting", cell, (limit,))
        return tuple(
            WaitingJob(job.decode(), attempt, *(text.decode() for text in rest))
            for job, attempt, *rest in raw[1]
        )

    async def pools(self, cell: Cell) -> tuple[tuple[PoolRow, ...], int, int]:
        """Return the cell's pools, how many jobs wait and how many nodes are known."""
        _, _, rows, waiting, nodes = await self._runner.run("cell_pools", cell)
        pools = tuple(
            PoolRow(rows[i].decode(), *rows[i + 1 : i + 5]) for i in range(0, len(rows), 5)
        )
        return pools, waiting, nodes

    async def nodes(self, cell: Cell, after: str = "", limit: int = 500) -> tuple[NodeRow, ...]:
        """Return one page of the cell's nodes, by id."""
        raw = await self._runner.run("cell_nodes", cell, (after, limit))
        return tuple(read_node_row(row, raw[1]) for row in raw[2])
