"""Nodes come, beat, drain and go: what each of these means for the store and for jobs.

One registry per instance. Every step is idempotent in the store; a step that met an unreachable
store is repeated by the node's next beat, or by the timer the store itself keeps.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live.declared import Said, declared
from lingua_scheduler.live.node import LiveNode
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_node import NodeRegisterAck
from lingua_scheduler.nodes.capability import capability
from lingua_scheduler.nodes.health import Usage, over_threshold
from lingua_scheduler.state.keys import identifier
from lingua_scheduler.state.records import Beat, NodeAbout
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import JobBoard
    from lingua_scheduler.live.node import NodeOutlet
    from lingua_scheduler.messages.from_node import NodeHeartbeat, NodeRegister

SCHEMA_VERSION = "2.0"
BEAT_EVERY_MS = 2000
GONE_RETRY_S = 0.25


class NodeRefused(Exception):
    """A registration that cannot be taken."""

    def __init__(self, code: ErrorCode, problem: str) -> None:
        self.code = code
        super().__init__(problem)


class NodeRegistry:
    """The nodes whose sockets are on this instance."""

    def __init__(self, board: JobBoard, settings: Settings) -> None:
        self._board = board
        self._settings = settings

    async def register(
        self, register: NodeRegister, outlet: NodeOutlet, *, tenant: str, slots_max: int | None
    ) -> LiveNode:
        """Let a node in; raises `NodeRefused` or what is wrong with its declarations."""
        self._check(register)
        node_id = register.node_id or f"node-{secrets.token_hex(4).upper()}"
        identifier("node_id", node_id)
        slots = register.max_jobs or self._settings.nodes.max_jobs
        node = LiveNode(
            node_id, secrets.token_hex(8), outlet, Said.at_first(register), tenant=tenant,
            max_jobs=min(slots, slots_max or slots),
        )  # fmt: skip
        await self._enter(node)
        return node

    def _check(self, register: NodeRegister) -> None:
        version = register.capability_schema_version
        if version not in (None, SCHEMA_VERSION):
            raise NodeRefused(
                ErrorCode.INVALID_CAPABILITY_SCHEMA,
                f"capability_schema_version must be {SCHEMA_VERSION}, got: {version}",
            )
        gpus = register.hardware.gpus if register.hardware is not None else None
        if self._settings.nodes.require_gpu and not gpus:
            raise NodeRefused(ErrorCode.NO_GPU_AVAILABLE, "this deployment takes nodes with a GPU")

    async def _enter(self, node: LiveNode) -> None:
        board = self._board
        can = capability(declared(node.said, tenant=node.tenant)).packed()
        about = NodeAbout(
            instance=board.instance, max=node.max_jobs, acks=node.acks,
            silence_ms=self._settings.nodes.silence_ms,
            info=f"{node.said.register.platform} {node.said.register.version}"[:128],
        )  # fmt: skip
        answer = await board.store.node_register(
            board.cells.of_node(node.id), node.id, node.boot, conn=node.conn, can=can, about=about
        )
        former = board.nodes.get(node.id)
        board.nodes[node.id] = node
        if former is not None and former is not node:
            former.outlet.close(CloseCode.REPLACED, "a newer socket of this node took over")
        node.outlet.send(
            NodeRegisterAck(
                node_id=node.id, message="registered", status="registering",
                max_jobs=None if node.is_old else node.max_jobs,
                heartbeat_ms=None if node.is_old else BEAT_EVERY_MS,
            )
        )  # fmt: skip
        board.log("node.registered", node=node.id, slots=node.max_jobs, old=node.is_old)
        work = await board.dispatcher.move_leases(node.id, answer.lost, "node_restarted")
        work.push.extend(answer.placed)
        board.perform(work)

    async def beat(self, node: LiveNode, beat: NodeHeartbeat) -> None:
        """Take a heartbeat: health, load, abilities, and what the node believes it runs."""
        board, said = self._board, node.said.after(beat)
        can = b""
        if said is not node.said:
            can = capability(declared(said, tenant=node.tenant)).packed()
        usage = beat.resource_usage
        load = Usage(usage.cpu_percent, usage.mem_percent, usage.gpu_percent or 0.0)
        jobs = None
        if beat.running is not None:
            jobs = [f"{job.job_id}|{job.attempt_id}" for job in beat.running]
        answer = await board.store.node_beat(
            board.cells.of_node(node.id), node.id, node.boot,
            Beat(
                good=said.is_fit, acks=node.acks, jobs=jobs, running=usage.running_jobs,
                over=over_threshold(load, self._settings.nodes.resource_percent_max),
            ),
            can,
        )  # fmt: skip
        node.said = said
        if answer.reply is Reply.NO_NODE:
            await self._enter(node)
            return
        if answer.reply is Reply.FENCED:
            node.outlet.close(CloseCode.REPLACED, "a newer process of this node took over")
            return
        node.tell_status(answer.status, board.clock.wall_ms())
        for running in answer.unknown:
            # From the right: the id is whatever the node believes it is.
            job_id, _, attempt = running.rpartition("|")
            node.cancel(job_id, int(attempt), "not_assigned")
        work = await board.dispatcher.move_leases(node.id, answer.lost, "not_running")
        work.push.extend(answer.placed)
        board.perform(work)

    async def drain(self, node: LiveNode, *, draining: bool) -> None:
        """Stop or resume new work for a node."""
        board = self._board
        cell = board.cells.of_node(node.id)
        answer, left = await board.insist(
            lambda: board.store.node_drain(cell, node.id, drain=draining)
        )
        board.log("node.drains" if draining else "node.resumes", node=node.id, leases=left)
        for placement in answer.placed:
            board.push(placement)

    async def gone(self, node: LiveNode) -> None:
        """A node's socket is lost: what it held goes elsewhere, at once."""
        board = self._board
        if board.nodes.get(node.id) is node:
            del board.nodes[node.id]
        board.log("node.lost", node=node.id)
        while board.nodes.get(node.id) is None:
            try:
                await board.node_lost(node)
            except StoreUnavailable:
                await asyncio.sleep(GONE_RETRY_S)
            else:
                return
