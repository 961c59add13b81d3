"""The node's socket, phase by phase: handshake, entering, working.

Nodes of the older protocol understand few answers; what they do not know they ignore, so that
errors are told to all alike.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from lingua_scheduler.edge import advice
from lingua_scheduler.edge.counting import counters
from lingua_scheduler.edge.session_socket import Forbidden
from lingua_scheduler.edge.waiting import Waiting
from lingua_scheduler.errors import InvalidInput, InvalidMessage, StoreUnavailable
from lingua_scheduler.live.registry import NodeRefused
from lingua_scheduler.messages import from_node as m
from lingua_scheduler.messages.codec import NODE_MESSAGES, form_of
from lingua_scheduler.messages.codes import CloseCode, ErrorCode
from lingua_scheduler.messages.to_node import (
    NodeErrorMessage,
    NodeTokenExpiring,
    NodeTokenRefreshed,
)
from lingua_scheduler.tokens import InvalidToken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.edge.door import Door
    from lingua_scheduler.edge.wire import Wire
    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.live.node import LiveNode
    from lingua_scheduler.messages.to_node import ToNode
    from lingua_scheduler.tokens import NodeGrant

ERRORS_MAX = 50


class NodeSocket:
    """What the phases of one node's socket share, and the board's way to the node."""

    def __init__(self, wire: Wire, instance: Instance, door: Door, bearer: str | None) -> None:
        self.wire = wire
        self.instance = instance
        self.door = door
        self.bearer = bearer
        self.codec = NODE_MESSAGES[form_of(wire.subprotocol)]
        self._encode = self.codec.encode
        self._seen = counters(instance.metrics, "node", m.NodeMessage)
        self._write = wire.send_binary if self.codec.is_binary else wire.send_text
        # What the node's token allows; None where nobody is asked.
        self.grant: NodeGrant | None = None
        # Messages refused since the last one that was used.
        self.errors = 0

    def send(self, message: ToNode) -> bool:
        """Send one message; tells whether the socket was there to take it."""
        if not self.wire.is_open:
            return False
        self._write(self._encode(message))
        return self.wire.is_open

    def close(self, code: int, reason: str) -> None:
        """Close the socket."""
        self.wire.close(code, reason)

    def show(self, token: str | None, node_id: str) -> NodeGrant | None:
        """Let a node in by its token, which is looked at from now on; raises `InvalidToken`."""
        self.grant = self.door.node(token or self.bearer, node_id)
        self.door.hold(self)
        return self.grant

    @property
    def is_open(self) -> bool:
        """Tell whether the socket is there."""
        return self.wire.is_open

    def token_expires(self, in_ms: int) -> bool:
        """Warn a node that knows what to do, when it is registered."""
        working = self.wire.receiver
        if not isinstance(working, Working):
            return False
        if not working.node.is_old:
            self.send(NodeTokenExpiring(expires_in_ms=in_ms))
        return True

    def token_ends(self, code: CloseCode, reason: str) -> None:
        """Close: what the node holds goes elsewhere."""
        self.close(code, reason)

    def decode(self, data: bytes, *, is_text: bool) -> m.NodeMessage | None:
        """Read a message, or answer that it is none."""
        if is_text is self.codec.is_binary:
            self.refuse(ErrorCode.INVALID_MESSAGE, "not the form of this socket's subprotocol")
            return None
        try:
            message = self.codec.decode(data)
        except InvalidMessage as problem:
            self.refuse(ErrorCode.INVALID_MESSAGE, str(problem))
            return None
        self._seen[type(message)].inc()
        return message

    def refuse(self, code: ErrorCode, problem: str) -> None:
        """Answer a message that cannot be used."""
        self.instance.metrics.invalid_messages_total.labels(socket="node", code=code).inc()
        self.send(NodeErrorMessage(code=code, message=problem))
        self.errors += 1
        if self.errors >= ERRORS_MAX:
            self.close(CloseCode.TOO_MANY_ERRORS, "too many invalid messages in a row")


class NodeHandshake:
    """Waits for `node_register`."""

    def __init__(self, socket: NodeSocket) -> None:
        self._socket = socket
        limit = socket.instance.settings.server.handshake_ms / 1000
        self._timer = asyncio.get_running_loop().call_later(limit, self._too_late)

    def text(self, data: bytes) -> None:
        """Take a JSON message."""
        self._first(self._socket.decode(data, is_text=True))

    def binary(self, data: bytes) -> None:
        """Take a MessagePack message."""
        self._first(self._socket.decode(data, is_text=False))

    def lost(self) -> None:
        """The node went away."""
        self._timer.cancel()

    def _first(self, message: m.NodeMessage | None) -> None:
        socket = self._socket
        if message is None:
            return
        if not isinstance(message, m.NodeRegister):
            socket.refuse(ErrorCode.NODE_NOT_REGISTERED, "the first message must be node_register")
        elif socket.instance.draining:
            socket.close(CloseCode.GOING_AWAY, "the instance stops")
        else:
            self._timer.cancel()
            entering = Entering(socket)
            socket.wire.receiver = entering
            socket.instance.tasks.start(entering.enter(message))

    def _too_late(self) -> None:
        self._socket.close(CloseCode.HANDSHAKE_TIMEOUT, "no node_register in time")


class Entering(Waiting):
    """The store takes the node in."""

    def __init__(self, socket: NodeSocket) -> None:
        super().__init__(socket.wire)
        self._socket = socket

    async def enter(self, register: m.NodeRegister) -> None:
        """Take the node in and go on with what came early, or turn it away."""
        await self.see_through(self._enter(register))

    async def _enter(self, register: m.NodeRegister) -> None:
        socket = self._socket
        node = await self._try(register)
        if node is None:
            return
        if self.is_lost:
            await socket.instance.registry.gone(node)
            return
        socket.wire.receiver = Working(socket, node)
        self.go_on()

    async def _try(self, register: m.NodeRegister) -> LiveNode | None:
        socket = self._socket
        try:
            grant = socket.show(register.token, register.node_id or "")
            return await socket.instance.registry.register(
                labelled(register, grant), socket,
                tenant=grant.tenant if grant is not None else "",
                slots_max=grant.max_jobs if grant is not None else None,
            )  # fmt: skip
        except InvalidToken as problem:
            socket.refuse(ErrorCode.UNAUTHORIZED, advice.told(problem, advice.NODE))
            socket.close(CloseCode.UNAUTHORIZED, str(problem))
        except Forbidden as problem:
            socket.refuse(ErrorCode.FORBIDDEN, str(problem))
            socket.close(CloseCode.FORBIDDEN, "the token does not allow this")
        except NodeRefused as problem:
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
        self._board = socket.instance.board
        self._workshop = socket.instance.workshop

    def text(self, data: bytes) -> None:
        """Take a JSON message."""
        message = self._socket.decode(data, is_text=True)
        if message is not None:
            self._handle(message)

    def binary(self, data: bytes) -> None:
        """Take a MessagePack message."""
        message = self._socket.decode(data, is_text=False)
        if message is not None:
            self._handle(message)

    def lost(self) -> None:
        """The node went away: its jobs go elsewhere at once."""
        instance = self._socket.instance
        instance.tasks.start(instance.registry.gone(self._node))

    def _handle(self, message: m.NodeMessage) -> None:
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
            self._socket.errors = 0

    def _result(self, result: m.JobResult) -> None:
        self._socket.instance.tasks.start(self._workshop.report(self._node, result))

    def _ack(self, ack: m.JobAck) -> None:
        self._node.acks = True
        self._workshop.accepted(self._node, ack.job_id, ack.attempt_id, running=False)

    def _started(self, started: m.JobStarted) -> None:
        self._node.acks = True
        self._workshop.accepted(self._node, started.job_id, started.attempt_id, running=True)

    def _partial(self, partial: m.NodeAsrPartial) -> None:
        self._workshop.heard(self._node, partial)

    def _beat(self, beat: m.NodeHeartbeat) -> None:
        self._socket.instance.tasks.start(self._take_beat(beat))

    async def _take_beat(self, beat: m.NodeHeartbeat) -> None:
        try:
            await self._socket.instance.registry.beat(self._node, beat)
        except InvalidInput as problem:
            self._socket.refuse(ErrorCode.INVALID_MESSAGE, str(problem))

    def _drain(self, ask: m.NodeDrain) -> None:
        registry = self._socket.instance.registry
        self._socket.instance.tasks.start(registry.drain(self._node, draining=ask.draining))

    def _error(self, report: m.NodeError) -> None:
        self._socket.instance.log("node.error", node=self._node.id, code=report.code)

    def _refresh_token(self, message: m.NodeTokenRefresh) -> None:
        """A newer token counts from now on: it may allow fewer jobs, or more again."""
        socket, node = self._socket, self._node
        grant = socket.door.node(message.token, node.id)
        if grant is not None and socket.grant is not None:
            if grant.tenant != node.tenant:
                raise Forbidden("the token is not of this node's tenant")
            labelled(node.said.register, grant)
            socket.grant = grant
            socket.door.hold(socket)
            socket.instance.tasks.start(
                socket.instance.registry.set_slots_max(node, grant.max_jobs)
            )
        permits = socket.door.permits
        socket.send(NodeTokenRefreshed(**(permits.left(grant) if permits and grant else {})))

    def _again(self, _: m.NodeRegister) -> None:
        raise InvalidMessage("the node is registered already")

    def _cancelled(self, _: m.JobCancelAck) -> None:
        self._board.metrics.cancels_acknowledged_total.inc()

    HANDLERS: ClassVar[dict[type, Callable[[Working, Any], None]]] = {
        m.JobResult: _result,
        m.JobAck: _ack,
        m.JobStarted: _started,
        m.NodeAsrPartial: _partial,
        m.NodeHeartbeat: _beat,
        m.NodeDrain: _drain,
        m.NodeError: _error,
        m.JobCancelAck: _cancelled,
        m.NodeRegister: _again,
        m.NodeTokenRefresh: _refresh_token,
    }


def labelled(register: m.NodeRegister, grant: NodeGrant | None) -> m.NodeRegister:
    """Return a registration with the labels that count, or raise `Forbidden`.

    A token that names labels gives them to a node that names none, and allows no others.
    """
    if grant is None or grant.labels is None:
        return register
    if register.labels is None:
        return msgspec.structs.replace(register, labels=grant.labels)
    foreign = sorted(set(register.labels) - set(grant.labels))
    if foreign:
        raise Forbidden(f"the token does not allow the label {foreign[0][:64]!r}")
    return register
