"""Nodes come, beat, drain and go: what each of these means for the store and for jobs.

One registry per instance. Every step is idempotent in the store; a step that met an unreachable
store is repeated by the node's next beat, or by the timer the store itself keeps.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live.declared import Said, declared
from lingua_scheduler.live.node import LiveNode
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_node import NodeRegisterAck
from lingua_scheduler.nodes.capability import capability
from lingua_scheduler.nodes.health import Usage, over_threshold, pressure_text
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
# How long a node that was sent elsewhere has to register there.
COME_BACK_MS = 3000
# How long the end of an instance waits for a store that is away.
UNDO_S = 2.0


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

    async def set_slots_max(self, node: LiveNode, slots_max: int | None) -> None:
        """Let a node have as many slots as it declared, but no more than this."""
        slots = node.said.register.max_jobs or self._settings.nodes.max_jobs
        slots = min(slots, slots_max or slots)
        if slots != node.max_jobs:
            node.max_jobs = slots
            await self.enter_again(node)

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

    async def _enter(self, node: LiveNode, *, again: bool = False, is_told: bool = True) -> bool:
        """Tell the store of a node; False if another socket of it has its place."""
        board = self._board
        can = capability(declared(node.said, tenant=node.tenant)).packed()
        about = NodeAbout(
            instance=board.instance, max=node.max_jobs, acks=node.acks,
            silence_ms=self._settings.nodes.silence_ms,
            info=f"{node.said.register.platform} {node.said.register.version}"[:128],
            again=again,
        )  # fmt: skip
        answer = await board.store.node_register(
            board.cells.of_node(node.id), node.id, node.boot, conn=node.conn, can=can, about=about
        )
        if answer.reply is Reply.FENCED:
            # It has another socket, or the store has forgotten this one: it finds its place anew.
            node.outlet.close(CloseCode.GOING_AWAY, "the node is registered on another socket")
            return False
        former = board.nodes.get(node.id)
        board.nodes[node.id] = node
        if former is not None and former is not node:
            former.outlet.close(CloseCode.REPLACED, "a newer socket of this node took over")
        if is_told:
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
        board.workshop.take_back(node, answer.held)
        return True

    async def beat(self, node: LiveNode, beat: NodeHeartbeat) -> None:
        """Take a heartbeat: health, load, abilities, and what the node believes it runs."""
        board, said = self._board, node.said.after(beat)
        can = b""
        if said is not node.said:
            can = capability(declared(said, tenant=node.tenant)).packed()
        usage = beat.resource_usage
        load = Usage(usage.cpu_percent, usage.mem_percent, usage.gpu_percent or 0.0)
        most = self._settings.nodes.resource_percent_max
        over = over_threshold(load, most)
        jobs = None
        if beat.running is not None:
            jobs = [f"{job.job_id}|{job.attempt_id}" for job in beat.running]
        answer = await board.store.node_beat(
            board.cells.of_node(node.id), node.id, node.boot,
            Beat(
                good=said.is_fit, acks=node.acks, jobs=jobs, running=usage.running_jobs,
                over=over, pressure=pressure_text(load, most),
            ),
            can, conn=node.conn,
        )  # fmt: skip
        node.said, node.last_beat = said, beat
        if answer.reply is Reply.NO_NODE:
            if await self._enter(node, again=True):
                await self._beat_again(node)
            return
        if answer.reply is Reply.FENCED:
            node.outlet.close(CloseCode.REPLACED, "a newer process of this node took over")
            return
        node.draining, node.is_over = answer.draining, over
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
        node.draining = draining
        board.log("node.drains" if draining else "node.resumes", node=node.id, leases=left)
        for placement in answer.placed:
            board.push(placement)

    async def enter_again(self, node: LiveNode) -> None:
        """The store may have forgotten the node: it registers as it stands."""
        is_in = await self._board.insist(lambda: self._enter(node, again=True, is_told=False))
        if is_in and node.last_beat is not None and self._board.nodes.get(node.id) is node:
            await self._board.insist(lambda: self._beat_again(node))

    async def _beat_again(self, node: LiveNode) -> None:
        """A beat makes a node ready; the next one of an old node may be far."""
        if node.last_beat is not None:
            # What it ran then says nothing of now.
            await self.beat(node, msgspec.structs.replace(node.last_beat, running=None))

    async def send_away(self, node: LiveNode) -> None:
        """The instance stops: the node takes its jobs to another one.

        Nodes of the older protocol lose what they finish without a socket, so they are let go only
        when they have nothing left.
        """
        board = self._board
        cell = board.cells.of_node(node.id)
        if node.is_old:
            await self._finish_old(node)
        node.is_sent_away = True
        keep_ms = 0 if node.is_old else COME_BACK_MS
        answer = await board.insist(
            lambda: board.store.node_offline(cell, node.id, node.conn, keep_ms=keep_ms)
        )
        if board.nodes.get(node.id) is node:
            del board.nodes[node.id]
        board.perform(await board.dispatcher.move_leases(node.id, answer.lost, "node_lost"))
        board.workshop.let_go(node)
        node.outlet.close(CloseCode.GOING_AWAY, "the instance stops")

    async def _finish_old(self, node: LiveNode) -> None:
        """Wait until a node of the older protocol has nothing left; it gets nothing new."""
        board = self._board
        cell = board.cells.of_node(node.id)
        was_drained = await board.insist(lambda: board.store.node_drains(cell, node.id))
        await board.insist(lambda: board.store.node_drain(cell, node.id, drain=True))
        try:
            while board.workshop.holds_for(node):  # noqa: ASYNC110 ends by many ways
                await asyncio.sleep(GONE_RETRY_S / 5)
        finally:
            # Also when the time for all this is over; not for ever, should the store be away.
            if not was_drained:
                with suppress(TimeoutError):
                    async with asyncio.timeout(UNDO_S):
                        await board.insist(lambda: self._undo_drain(node))

    async def _undo_drain(self, node: LiveNode) -> None:
        """Let a node flow that is not to get anything here: where it registers next."""
        store, cell = self._board.store, self._board.cells.of_node(node.id)
        await store.node_offline(cell, node.id, node.conn)
        # It has no boot id to tell where it comes back from where it never left.
        await store.node_drain(cell, node.id, drain=False)

    async def gone(self, node: LiveNode) -> None:
        """A node's socket is lost: what it held goes elsewhere, at once."""
        board = self._board
        if board.nodes.get(node.id) is node:
            del board.nodes[node.id]
        elif node.is_sent_away:
            return
        board.log("node.lost", node=node.id)
        while board.nodes.get(node.id) is None:
            try:
                await board.workshop.node_lost(node)
            except StoreUnavailable:
                await asyncio.sleep(GONE_RETRY_S)
            else:
                return
