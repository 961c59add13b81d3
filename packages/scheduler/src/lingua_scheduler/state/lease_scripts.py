"""The scripts about slots of nodes that jobs of other cells hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.answers import read_placements
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.records import Reserved, ScriptEffects, Settled
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import Lease
    from lingua_scheduler.state.script_runner import ScriptRunner


class LeaseScripts:
    """Reserves, confirms and releases slots for jobs of other cells."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # Packed once, because the policy is sent with every call that needs it.
        self._policy = pack(policy.for_jobs())

    async def reserve(
        self,
        cell: Cell,
        lease: Lease,
        demand: str,
        *,
        only: str = "",
        tried: str = "",
        avoid: str = "",
    ) -> Reserved:
        """Hold a slot of this cell for a job of another cell."""
        whose = (lease.job, lease.attempt, lease.home)
        raw = await self._runner.run(
            "lease_reserve", cell, (self._policy, *whose, demand, only, tried, avoid)
        )
        if raw[0] != Reply.RESERVED:
            return Reserved(Reply(raw[0]), label=raw[1].decode())
        _, node, boot, acks, instance, expires_at_ms = raw
        return Reserved(
            Reply.RESERVED,
            node=node.decode(),
            boot=boot.decode(),
            acks=acks == b"1",
            instance=instance.decode(),
            expires_at_ms=expires_at_ms,
        )

    async def confirm(self, cell: Cell, node: str, lease: Lease, hold_ms: int) -> Reply:
        """Hold the reserved slot for the whole attempt."""
        raw = await self._runner.run("lease_confirm", cell, (node, lease.member, hold_ms))
        return Reply(raw[0])

    async def release(
        self, cell: Cell, node: str, lease: Lease, *, lapsed_only: bool = False
    ) -> Settled:
        """Give a slot back."""
        raw = await self._runner.run(
            "lease_release", cell, (self._policy, node, lease.member, int(lapsed_only))
        )
        if raw[0] != Reply.OK:
            return Settled(Reply(raw[0]))
        return Settled(Reply.OK, ScriptEffects(placed=read_placements(raw[1], cell)))
