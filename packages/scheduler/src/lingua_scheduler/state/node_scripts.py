"""The scripts about nodes: one typed method for each, without logic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.state.answers import read_leases, read_placements
from lingua_scheduler.state.packing import pack
from lingua_scheduler.state.records import NodeReply
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import NodeAbout, NodeBeat
    from lingua_scheduler.state.script_runner import ScriptRunner


class NodeScripts:
    """Registers nodes, keeps their status, and takes work from those that are lost."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # Packed once, because the policy is sent with every call that needs it.
        self._policy = pack(policy)
        self._claim_ms = policy.claim_ms

    async def register(
        self, cell: Cell, node: str, boot: str, *, conn: str, can: bytes, about: NodeAbout
    ) -> NodeReply:
        """Register a node that appears or returns."""
        raw = await self._runner.run(
            "node_register", cell, (self._policy, node, boot, conn, can, pack(about))
        )
        if raw[0] == Reply.FENCED:
            return NodeReply(Reply.FENCED)
        _, status, pool, lost, placed, *held = raw
        return NodeReply(
            Reply(raw[0]),
            status=status.decode(),
            pool=pool.decode(),
            lost=read_leases(lost),
            placed=read_placements(placed, cell),
            held=read_leases(held[0] if held else []),
        )

    async def beat(
        self, cell: Cell, node: str, boot: str, beat: NodeBeat, can: bytes = b"", *, conn: str = ""
    ) -> NodeReply:
        """Record a heartbeat and its figures; `can` is given only if the abilities changed."""
        raw = await self._runner.run(
            "node_beat", cell, (self._policy, node, boot, pack(beat), can, conn)
        )
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0]))
        _, status, pool, lost, unknown, placed, drains = raw
        return NodeReply(
            Reply.OK,
            status=status.decode(),
            pool=pool.decode(),
            lost=read_leases(lost),
            unknown=tuple(name.decode() for name in unknown),
            placed=read_placements(placed, cell),
            draining=drains == 1,
        )

    async def drain(
        self, cell: Cell, node: str, *, drain: bool, operator: bool = False
    ) -> tuple[NodeReply, int]:
        """Stop or resume new work for a node; also returns how many leases it still has.

        A drain by an operator is ended only by an operator, also if the node's process changes.
        """
        raw = await self._runner.run(
            "node_drain", cell, (self._policy, node, int(drain), int(operator))
        )
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0])), 0
        return NodeReply(Reply.OK, placed=read_placements(raw[2], cell)), raw[1]

    async def offline(
        self, cell: Cell, node: str, conn: str = "", *, instance: str = "", keep_ms: int = 0
    ) -> NodeReply:
        """Record that the node's socket was lost, or the instance that had it.

        With `keep_ms` the node was asked to reconnect elsewhere: it keeps its jobs for that long.
        """
        raw = await self._runner.run(
            "node_offline", cell, (self._claim_ms, node, conn, instance, keep_ms)
        )
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0]))
        return NodeReply(Reply.OK, "offline", lost=read_leases(raw[1]))

    async def host(self, cell: Cell, node: str) -> str:
        """Return the instance that has the node's socket, '' if no instance has it."""
        key = cell.key("node", node)
        status, host = await self._runner.command(cell, ("HMGET", key, "status", "instance"))
        return host.decode() if host and status != b"offline" else ""

    async def is_draining(self, cell: Cell, node: str) -> bool:
        """Tell whether new work for a node was stopped."""
        key = cell.key("node", node)
        return bool(await self._runner.command(cell, ("HGET", key, "drain")) == b"1")

    async def check(self, cell: Cell, node: str) -> NodeReply:
        """Check a node whose timer expired."""
        raw = await self._runner.run("node_check", cell, (self._policy, node))
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0]))
        return NodeReply(Reply.OK, raw[1].decode(), lost=read_leases(raw[2]))

    async def mark(self, cell: Cell, node: str, service: str = "") -> NodeReply:
        """Mark a node's service as unavailable for a while; without one, drop expired marks."""
        raw = await self._runner.run("node_mark", cell, (self._policy, node, service))
        reply = Reply(raw[0])
        if reply not in (Reply.OK, Reply.RESTORED):
            return NodeReply(reply)
        return NodeReply(reply, pool=raw[1].decode(), placed=read_placements(raw[-1], cell))
