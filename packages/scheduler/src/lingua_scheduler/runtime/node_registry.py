"""The nodes of this instance: registration, heartbeats, draining, and their loss.

Every step is idempotent in the store. A step that met an unavailable store is repeated by the
node's next heartbeat, or by the timer that the store itself keeps.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.nodes.capability import capability
from lingua_scheduler.nodes.pressure import NodeUsage, over_threshold, pressure_text
from lingua_scheduler.runtime.node import LiveNode
from lingua_scheduler.runtime.node_declaration import NodeDeclaration, declared
from lingua_scheduler.state.keys import identifier
from lingua_scheduler.state.records import NodeAbout, NodeBeat
from lingua_scheduler.state.reply import Reply
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.to_node import NodeRegisterAck

if TYPE_CHECKING:
    from lingua_cli.logs import EventLog
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.dispatcher import Dispatcher
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.node import NodeOutlet
    from lingua_scheduler.runtime.node_reports import NodeReports
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.state.store import Store
    from lingua_wire.from_node import NodeHeartbeat, NodeRegister

SCHEMA_VERSION = "2.0"
BEAT_EVERY_MS = 2000
GONE_RETRY_S = 0.25
# How long a node that was sent to another instance has to register there.
COME_BACK_MS = 3000
# How long the end of an instance waits for an unavailable store.
UNDO_S = 2.0


class RegistrationRefused(Exception):
    """A registration that is refused."""

    def __init__(self, code: ErrorCode, problem: str) -> None:
        self.code = code
        super().__init__(problem)


@dataclass(slots=True, kw_only=True, eq=False)
class NodeRegistry:
    """The nodes whose sockets are on this instance."""

    settings: Settings
    instance: str
    nodes: dict[str, LiveNode]
    store: Store
    cells: Cells
    dispatcher: Dispatcher
    retry: StoreRetry
    effects: Effects
    reports: NodeReports
    held: HeldJobs
    log: EventLog
    clock: Clock

    async def register(
        self, register: NodeRegister, outlet: NodeOutlet, *, tenant: str, slots_max: int | None
    ) -> LiveNode:
        """Register a node; raises `RegistrationRefused` or what is wrong with its declarations."""
        self._check(register)
        node_id = register.node_id or f"node-{secrets.token_hex(4).upper()}"
        identifier("node_id", node_id)
        slots = register.max_jobs or self.settings.nodes.max_jobs
        declaration = NodeDeclaration.of_registration(register)
        node = LiveNode(
            node_id,
            secrets.token_hex(8),
            outlet,
            declaration,
            tenant=tenant,
            max_jobs=min(slots, slots_max or slots),
        )
        node.limit_slots(node.max_jobs, declaration.streams_within(slots_max))
        await self._enter(node)
        return node

    async def set_slots_max(self, node: LiveNode, slots_max: int | None) -> None:
        """Give a node as many slots and streams as it declared, but no more than `slots_max`."""
        slots = node.declaration.register.max_jobs or self.settings.nodes.max_jobs
        slots, streams = min(slots, slots_max or slots), node.declaration.streams_within(slots_max)
        if (slots, streams) != (node.max_jobs, node.max_streams):
            node.limit_slots(slots, streams)
            await self.enter_again(node)

    def _check(self, register: NodeRegister) -> None:
        version = register.capability_schema_version
        if version not in (None, SCHEMA_VERSION):
            raise RegistrationRefused(
                ErrorCode.INVALID_CAPABILITY_SCHEMA,
                f"capability_schema_version must be {SCHEMA_VERSION}, got: {version}",
            )
        gpus = register.hardware.gpus if register.hardware is not None else None
        if self.settings.nodes.require_gpu and not gpus:
            raise RegistrationRefused(
                ErrorCode.NO_GPU_AVAILABLE, "this deployment takes nodes with a GPU"
            )

    async def _enter(self, node: LiveNode, *, again: bool = False, sends_ack: bool = True) -> bool:
        """Register a node in the store; False if another socket of the node has its place."""
        declaration = node.declaration
        can = capability(declared(declaration, tenant=node.tenant)).packed()
        about = NodeAbout(
            instance=self.instance,
            max=node.max_jobs,
            streams=node.max_streams,
            acks=node.acks,
            silence_ms=self.settings.nodes.silence_ms,
            info=f"{declaration.register.platform} {declaration.register.version}"[:128],
            again=again,
        )
        answer = await self.store.nodes.register(
            self.cells.of_node(node.id), node.id, node.boot, conn=node.conn, can=can, about=about
        )
        if answer.reply is Reply.FENCED:
            # The node has another socket, or the store lost this one: it registers anew.
            node.outlet.close(CloseCode.GOING_AWAY, "the node is registered on another socket")
            return False
        former = self.nodes.get(node.id)
        self.nodes[node.id] = node
        if former is not None and former is not node:
            former.outlet.close(CloseCode.REPLACED, "a newer socket of this node took over")
        if sends_ack:
            node.outlet.send(
                NodeRegisterAck(
                    node_id=node.id,
                    message="registered",
                    status="registering",
                    max_jobs=node.max_jobs,
                    heartbeat_ms=BEAT_EVERY_MS,
                )
            )
        is_old = node.traits.buffers_slices
        self.log("node.registered", node=node.id, slots=node.max_jobs, old=is_old)
        work = await self.dispatcher.move_leases(node.id, answer.lost, "node_restarted")
        work.push.extend(answer.placed)
        self.effects.perform(work)
        self.reports.restore_held(node, answer.held)
        return True

    async def beat(self, node: LiveNode, beat: NodeHeartbeat) -> None:
        """Handle a heartbeat: health, load, abilities, and the jobs the node reports as running."""
        declaration, can = node.declaration.after(beat), b""
        if declaration is not node.declaration:
            can = capability(declared(declaration, tenant=node.tenant)).packed()
        usage = beat.resource_usage
        load = NodeUsage(usage.cpu_percent, usage.mem_percent, usage.gpu_percent or 0.0)
        most = self.settings.nodes.resource_percent_max
        is_over = over_threshold(load, most)
        jobs = None
        if beat.running is not None:
            jobs = [f"{job.job_id}|{job.attempt_id}" for job in beat.running]
        reported = NodeBeat(
            good=declaration.is_fit,
            acks=node.acks,
            jobs=jobs,
            running=usage.running_jobs,
            over=is_over,
            pressure=pressure_text(load, most),
        )
        answer = await self.store.nodes.beat(
            self.cells.of_node(node.id), node.id, node.boot, reported, can, conn=node.conn
        )
        node.beaten(declaration, beat)
        if answer.reply is Reply.NO_NODE:
            if await self._enter(node, again=True):
                await self._beat_again(node)
            return
        if answer.reply is Reply.FENCED:
            node.outlet.close(CloseCode.REPLACED, "a newer process of this node took over")
            return
        node.is_now(is_draining=answer.draining, is_over=is_over)
        node.report_status(answer.status, self.clock.wall_ms())
        for running in answer.unknown:
            # From the right, because the node's job id may contain the separator.
            job_id, _, attempt = running.rpartition("|")
            node.cancel(job_id, int(attempt), "not_assigned")
        work = await self.dispatcher.move_leases(node.id, answer.lost, "not_running")
        work.push.extend(answer.placed)
        self.effects.perform(work)

    async def drain(self, node: LiveNode, *, draining: bool) -> None:
        """Stop or resume new work for a node."""
        cell = self.cells.of_node(node.id)
        answer, left = await self.retry.until_stored(
            lambda: self.store.nodes.drain(cell, node.id, drain=draining)
        )
        node.drain(is_draining=draining)
        self.log("node.drains" if draining else "node.resumes", node=node.id, leases=left)
        for placement in answer.placed:
            self.effects.push(placement)

    async def enter_again(self, node: LiveNode) -> None:
        """Register a node again in its present state: the store may have lost it."""
        is_in = await self.retry.until_stored(
            lambda: self._enter(node, again=True, sends_ack=False)
        )
        if is_in and node.last_beat is not None and self.nodes.get(node.id) is node:
            await self.retry.until_stored(lambda: self._beat_again(node))

    async def _beat_again(self, node: LiveNode) -> None:
        """Repeat a node's last heartbeat, which makes it ready before its next one comes."""
        if node.last_beat is not None:
            # The jobs it ran then may have ended.
            await self.beat(node, msgspec.structs.replace(node.last_beat, running=None))

    async def send_away(self, node: LiveNode) -> None:
        """Let a node take its jobs to another instance, because this one stops.

        A node that cannot resume loses what it finishes without a socket: it is disconnected when
        it has nothing left.
        """
        cell = self.cells.of_node(node.id)
        if not node.traits.resumes:
            await self._finish_jobs(node)
        node.send_away()
        keep_ms = COME_BACK_MS if node.traits.resumes else 0
        answer = await self.retry.until_stored(
            lambda: self.store.nodes.offline(cell, node.id, node.conn, keep_ms=keep_ms)
        )
        if self.nodes.get(node.id) is node:
            del self.nodes[node.id]
        work = await self.dispatcher.move_leases(node.id, answer.lost, "node_lost")
        self.effects.perform(work)
        self.held.remove_all_of(node.id)
        node.outlet.close(CloseCode.GOING_AWAY, "the instance stops")

    async def _finish_jobs(self, node: LiveNode) -> None:
        """Wait until a node that cannot resume has nothing left; it gets nothing new."""
        cell = self.cells.of_node(node.id)
        was_drained = await self.retry.until_stored(
            lambda: self.store.nodes.is_draining(cell, node.id)
        )
        await self.retry.until_stored(lambda: self.store.nodes.drain(cell, node.id, drain=True))
        try:
            while self.held.has_any_of(node.id):  # noqa: ASYNC110 ends in many ways
                await asyncio.sleep(GONE_RETRY_S / 5)
        finally:
            # Also if this is cancelled; bounded, because the store may be unavailable.
            if not was_drained:
                with suppress(TimeoutError):
                    async with asyncio.timeout(UNDO_S):
                        await self.retry.until_stored(lambda: self._undo_drain(node))

    async def _undo_drain(self, node: LiveNode) -> None:
        """Allow a node work where it registers next, but not here."""
        cell = self.cells.of_node(node.id)
        await self.store.nodes.offline(cell, node.id, node.conn)
        # It has no boot id, so that the store cannot see whether it has registered anew.
        await self.store.nodes.drain(cell, node.id, drain=False)

    async def gone(self, node: LiveNode) -> None:
        """Move the jobs of a node whose socket is lost."""
        if self.nodes.get(node.id) is node:
            del self.nodes[node.id]
        elif node.is_sent_away:
            return
        self.log("node.lost", node=node.id)
        while self.nodes.get(node.id) is None:
            try:
                await self.effects.node_lost(node)
            except StoreUnavailable:
                await asyncio.sleep(GONE_RETRY_S)
            else:
                return
