"""The node's socket, phase by phase: handshake, registering, working.

Nodes of the older protocol ignore answers that they do not know, so that errors are sent to all
nodes alike.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lingua_scheduler.auth.policy import Forbidden, labelled, tenant_of
from lingua_scheduler.auth.tokens import InvalidToken
from lingua_scheduler.edge import token_advice
from lingua_scheduler.edge.ack_batches import batching
from lingua_scheduler.edge.early_buffer import EarlyBuffer
from lingua_scheduler.edge.message_counters import counters
from lingua_scheduler.edge.old_protocol import outlet_for
from lingua_scheduler.edge.websocket import OPEN
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.runtime.node import NodeTraits
from lingua_scheduler.runtime.node_registry import RegistrationRefused
from lingua_wire import from_node as m
from lingua_wire.codec import NODE_MESSAGES, UNREADABLE, form_of, refusal_of
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import InvalidInput, InvalidMessage
from lingua_wire.to_node import (
    NodeErrorMessage,
    NodeTokenExpiring,
    NodeTokenRefreshed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_cli.logs import EventLog
    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.auth.tokens import NodeGrant
    from lingua_scheduler.edge.ack_batches import AckTimer
    from lingua_scheduler.edge.websocket import Receiver, WebSocket
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.runtime.lifecycle import Lifecycle
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.node_registry import NodeRegistry
    from lingua_scheduler.runtime.node_reports import NodeReports
    from lingua_scheduler.streams.hub import StreamHub
    from lingua_scheduler.tasks import Tasks
    from lingua_wire.to_node import JobAssign, ToNode

ERRORS_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """What the sockets of nodes use of the instance."""

    handshake_ms: int
    gate: TokenGate
    lifecycle: Lifecycle
    registry: NodeRegistry
    reports: NodeReports
    streams: StreamHub
    ack_timer: AckTimer
    tasks: Tasks
    metrics: LiveMetrics
    log: EventLog


class NodeSocket:
    """What the phases of one node's socket share; also the outlet to the node."""

    # Of the current protocol; see `old_protocol.py` for the older one.
    traits = NodeTraits()

    def __init__(self, wire: WebSocket, services: NodeServices, bearer: str | None) -> None:
        self.wire = wire
        self.services = services
        self._bearer = bearer
        self.codec = NODE_MESSAGES[form_of(wire.subprotocol)]
        self._encode = self.codec.encode
        self.seen = counters(services.metrics, "node", m.NodeMessage)
        self._write = wire.send_binary if self.codec.is_binary else wire.send_text
        # What the node's token allows; None where no keys are set.
        self.grant: NodeGrant | None = None
        # Messages refused since the last valid one.
        self.errors = 0

    def send(self, message: ToNode) -> bool:
        """Send one message; tells whether the socket was open."""
        wire = self.wire
        if wire.phase != OPEN:
            return False
        self._write(self._encode(message))
        return wire.phase == OPEN

    def assign(self, message: JobAssign, lane: str) -> bool:  # noqa: ARG002 for older nodes
        """Send a job; as `send` does, without a step between."""
        wire = self.wire
        if wire.phase != OPEN:
            return False
        self._write(self._encode(message))
        return wire.phase == OPEN

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
        self.wire.close(code, reason)

    def authenticate(self, token: str | None, node_id: str) -> NodeGrant | None:
        """Check a node's token and watch it from now on; raises `InvalidToken`."""
        gate = self.services.gate
        self.grant = gate.node(token or self._bearer, node_id)
        gate.watch(self)
        return self.grant

    def renew(self, grant: NodeGrant) -> None:
        """Replace the node's token by a newer one."""
        self.grant = grant
        self.services.gate.watch(self)

    def used(self) -> None:
        """Note that a message was valid."""
        self.errors = 0

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is open."""
        return self.wire.is_open

    def token_expires(self, in_ms: int) -> bool:
        """Warn a node of the current protocol, once it is registered."""
        working = self.wire.receiver
        if not isinstance(working, Working):
            return False
        working.node.outlet.send(NodeTokenExpiring(expires_in_ms=in_ms))
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close the socket: the node's jobs move to other nodes."""
        self.close(code, reason)

    def decode(self, data: bytes, *, is_text: bool) -> m.NodeMessage | None:
        """Decode a message, or answer that it is invalid."""
        if is_text is self.codec.is_binary:
            self.refuse_form()
            return None
        try:
            message = self.codec.read(data)
        except UNREADABLE as error:
            self.refuse(ErrorCode.INVALID_MESSAGE, str(refusal_of(error)))
            return None
        self.seen[type(message)].value += 1
        return message

    def refuse_form(self) -> None:
        """Refuse a frame of the other form."""
        self.refuse(ErrorCode.INVALID_MESSAGE, "not the form of this socket's subprotocol")

    def refuse(self, code: ErrorCode, problem: str) -> None:
        """Answer a message that cannot be used."""
        self.services.metrics.sockets.invalid_messages_total.labels(socket="node", code=code).inc()
        self.send(NodeErrorMessage(code=code, message=problem))
        self.errors += 1
        if self.errors >= ERRORS_MAX:
            self.close(CloseCode.TOO_MANY_ERRORS, "too many invalid messages in a row")


class NodeHandshake:
    """Waits for `node_register`."""

    def __init__(self, socket: NodeSocket) -> None:
        self._socket = socket
        limit = socket.services.handshake_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(limit, self._too_late)

    def text(self, data: bytes) -> None:
        """Take a JSON message."""
        self._first(self._socket.decode(data, is_text=True))

    def binary(self, data: bytes) -> None:
        """Take a MessagePack message."""
        self._first(self._socket.decode(data, is_text=False))

    def lost(self) -> None:
        """Handle the loss of the node's socket before its registration."""
        self._timer.cancel()

    def _first(self, message: m.NodeMessage | None) -> None:
        socket = self._socket
        if message is None:
            return
        if not isinstance(message, m.NodeRegister):
            socket.refuse(ErrorCode.NODE_NOT_REGISTERED, "the first message must be node_register")
        elif socket.services.lifecycle.is_draining:
            socket.close(CloseCode.GOING_AWAY, "the instance stops")
        else:
            self._timer.cancel()
            registering = Registering(socket)
            socket.wire.receiver = registering
            socket.services.tasks.start(registering.register(message))

    def _too_late(self) -> None:
        self._socket.close(CloseCode.HANDSHAKE_TIMEOUT, "no node_register in time")


class Registering(EarlyBuffer):
    """The store registers the node."""

    def __init__(self, socket: NodeSocket) -> None:
        super().__init__(socket.wire)
        self._socket = socket

    async def register(self, register: m.NodeRegister) -> None:
        """Register the node and handle messages that came early, or refuse it."""
        await self.close_unless_answered(self._register(register))

    async def _register(self, register: m.NodeRegister) -> None:
        socket = self._socket
        node = await self._try(register)
        if node is None:
            return
        if self.is_lost:
            await socket.services.registry.gone(node)
            return
        socket.wire.receiver = WORKING[socket.codec.is_binary](socket, node)
        self.deliver()

    async def _try(self, register: m.NodeRegister) -> LiveNode | None:
        socket = self._socket
        try:
            grant = socket.authenticate(register.token, register.node_id or "")
            return await socket.services.registry.register(
                labelled(register, grant),
                outlet_for(register, batching(register, socket, socket.services.ack_timer)),
                tenant=tenant_of(grant),
                slots_max=grant.max_jobs if grant is not None else None,
            )
        except InvalidToken as problem:
            socket.refuse(
                ErrorCode.UNAUTHORIZED, token_advice.refusal_text(problem, token_advice.NODE)
            )
            socket.close(CloseCode.UNAUTHORIZED, str(problem))
        except Forbidden as problem:
            socket.refuse(ErrorCode.FORBIDDEN, str(problem))
            socket.close(CloseCode.FORBIDDEN, "the token does not allow this")
        except RegistrationRefused as problem:
            socket.refuse(problem.code, str(problem))
            socket.close(CloseCode.REFUSED, problem.code)
        except InvalidInput as problem:
            socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
            socket.close(CloseCode.REFUSED, "the declarations cannot be used")
        except StoreUnavailable:
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            socket.refuse(code, code.hint)
            socket.close(CloseCode.TRY_AGAIN_LATER, "the store cannot be reached")
        return None


class Working:
    """The node is registered."""

    def __init__(self, socket: NodeSocket, node: LiveNode) -> None:
        self._socket = socket
        self.node = self._node = node
        self._services = socket.services
        self._reports = socket.services.reports
        # What every message needs, without a way through others.
        self._read = socket.codec.read
        self._seen = socket.seen

    def refuse_form(self, data: bytes) -> None:  # noqa: ARG002 refused unread
        """Refuse a frame of the other form."""
        self._socket.refuse_form()

    def lost(self) -> None:
        """Handle the loss of the node's socket: its jobs move to other nodes at once."""
        self._services.streams.node_lost(self._node)
        self._services.tasks.start(self._services.registry.gone(self._node))

    def receive(self, data: bytes) -> None:
        """Take a message."""
        try:
            message = self._read(data)
        except UNREADABLE as error:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(refusal_of(error)))
            return
        self._seen[type(message)].value += 1
        node_id = getattr(message, "node_id", "")
        if node_id and node_id != self._node.id:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, "not the node of this connection")
            return
        try:
            self.HANDLERS[type(message)](self, message)
        except InvalidToken as problem:
            self._socket.refuse(ErrorCode.UNAUTHORIZED, str(problem))
        except Forbidden as problem:
            self._socket.refuse(ErrorCode.FORBIDDEN, str(problem))
        except InvalidInput as problem:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
        else:
            if self._socket.errors:
                self._socket.used()

    def _result(self, result: m.JobResult) -> None:
        self._services.tasks.begin(self._reports.report(self._node, result))

    def _ack(self, ack: m.JobAck) -> None:
        self._node.acknowledged()
        self._reports.accepted(self._node, ack.job_id, ack.attempt_id, is_running=False)

    def _started(self, started: m.JobStarted) -> None:
        self._node.acknowledged()
        self._reports.accepted(
            self._node,
            started.job_id,
            started.attempt_id,
            is_running=True,
            ago_ms=started.running_ms,
        )

    def _partial(self, partial: m.NodeAsrPartial) -> None:
        self._reports.partial_text(self._node, partial)

    def _stream_partial(self, partial: m.StreamPartial) -> None:
        self._services.streams.partial(self._node, partial)

    def _stream_closed(self, closed: m.StreamClosed) -> None:
        self._services.streams.closed(self._node, closed)

    def _audio_part(self, part: m.JobAudioPart) -> None:
        self._reports.audio_part(self._node, part)

    def _beat(self, beat: m.NodeHeartbeat) -> None:
        self._services.tasks.start(self._handle_beat(beat))

    async def _handle_beat(self, beat: m.NodeHeartbeat) -> None:
        try:
            await self._services.registry.beat(self._node, beat)
        except InvalidInput as problem:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))

    def _drain(self, ask: m.NodeDrain) -> None:
        drain = self._services.registry.drain(self._node, draining=ask.draining)
        self._services.tasks.start(drain)

    def _error(self, report: m.NodeError) -> None:
        self._services.log("node.error", node=self._node.id, code=report.code)

    def _refresh_token(self, message: m.NodeTokenRefresh) -> None:
        """Apply a newer token, which may allow fewer or more jobs."""
        socket, node, services = self._socket, self._node, self._services
        grant = services.gate.node(message.token, node.id)
        if grant is not None and socket.grant is not None:
            if grant.tenant != node.tenant:
                raise Forbidden("the token is not of this node's tenant")
            labelled(node.declaration.register, grant)
            socket.renew(grant)
            services.tasks.start(services.registry.set_slots_max(node, grant.max_jobs))
        socket.send(NodeTokenRefreshed(**services.gate.left(grant)))

    def _again(self, _: m.NodeRegister) -> None:
        raise InvalidMessage("the node is registered already")

    def _cancelled(self, _: m.JobCancelAck) -> None:
        self._services.metrics.jobs.cancels_acknowledged_total.inc()

    HANDLERS: ClassVar[dict[type, Callable[[Working, Any], None]]] = {
        m.JobResult: _result,
        m.JobAck: _ack,
        m.JobStarted: _started,
        m.NodeAsrPartial: _partial,
        m.StreamPartial: _stream_partial,
        m.StreamClosed: _stream_closed,
        m.JobAudioPart: _audio_part,
        m.NodeHeartbeat: _beat,
        m.NodeDrain: _drain,
        m.NodeError: _error,
        m.JobCancelAck: _cancelled,
        m.NodeRegister: _again,
        m.NodeTokenRefresh: _refresh_token,
    }


class JsonWorking(Working):
    """Messages are text."""

    text = Working.receive
    binary = Working.refuse_form


class MessagePackWorking(Working):
    """Messages are binary."""

    text = Working.refuse_form
    binary = Working.receive


# By whether messages are binary.
WORKING: tuple[Callable[[NodeSocket, LiveNode], Receiver], ...]
WORKING = (JsonWorking, MessagePackWorking)
