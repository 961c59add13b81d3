"""A scripted scheduler: nodes register, and the test sends messages and checks the answers.

Real sockets on 127.0.0.1. Registrations are answered by `on_register`, everything else only by the
test. Waiting is bounded: `expect` fails with the messages that arrived instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import msgspec
from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    WSUpgradeResponse,
    WSUpgradeResponseWithListener,
    ws_create_server,
)

from lingua_node import Job, Node, Result
from lingua_node.old_node import OldNode
from lingua_wire.codec import ASSIGNMENTS, NODE_MESSAGES, SUBPROTOCOLS, form_of
from lingua_wire.from_node import NodeHeartbeat, NodeRegister
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_node import JobAssign, JobResultAck, NodeRegisterAck, ToNode

BOUND_S = 30.0
PROTOCOL_HEADER = "Sec-WebSocket-Protocol"

Message = TypeVar("Message")


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario within a time limit."""
    asyncio.run(asyncio.wait_for(scenario, 60))


def job(job_id: str = "j1", attempt_id: int = 1, **fields: Any) -> JobAssign:
    filled: dict[str, Any] = {
        "session_id": "s1",
        "utterance_index": 0,
        "src_lang": "en",
        "tgt_lang": "es",
        "pipeline": PipelineConfig(use_asr=True, use_nmt=True, use_tts=True),
        "audio": b"\0\1" * 16_000,
        "audio_format": "pcm16",
        "sample_rate": 16_000,
        "trace_id": "t1",
        **fields,
    }
    return JobAssign(job_id=job_id, attempt_id=attempt_id, **filled)


def register_ack(heartbeat_ms: int | None = None) -> Callable[[NodeRegister], ToNode]:
    def answer(register: NodeRegister) -> ToNode:
        return NodeRegisterAck(
            node_id=register.node_id or "given",
            message="registered",
            status="registering",
            heartbeat_ms=heartbeat_ms,
        )

    return answer


class Connection(WSListener):
    """One node's socket, as the scheduler sees it."""

    def __init__(self, scheduler: ScriptedScheduler, request: WSUpgradeRequest) -> None:
        self.scheduler = scheduler
        offered = request.headers.get(PROTOCOL_HEADER, "")
        self.offered = [name.strip() for name in offered.split(",") if name.strip()]
        supported = [name for name in self.offered if name in scheduler.supported]
        self.chosen = supported[0] if supported else None
        self.codec = NODE_MESSAGES[form_of(self.chosen)]
        self.encode = ASSIGNMENTS[form_of(self.chosen)].encode
        self.kind = WSMsgType.BINARY if self.codec.is_binary else WSMsgType.TEXT
        # All received messages, and where `expect` continues, by type.
        self.received: list[Any] = []
        self.raw: list[bytes] = []
        self._taken: dict[type, int] = {}
        self._arrival = asyncio.Event()
        self.lost = asyncio.Event()
        self.close_code = 0
        self.transport: WSTransport

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport
        self.scheduler.connections.put_nowait(self)
        self.scheduler.all.append(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            self.close_code = int.from_bytes(frame.get_payload_as_bytes()[:2], "big")
            transport.disconnect()
        elif frame.msg_type == self.kind:
            self.take(frame.get_payload_as_bytes())

    def take(self, data: bytes) -> None:
        message = self.codec.decode(data)
        self.raw.append(data)
        self.received.append(message)
        self._arrival.set()
        answer = self.scheduler.on_register
        if isinstance(message, NodeRegister) and answer is not None:
            self.send(answer(message))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.lost.set()
        self._arrival.set()

    def send(self, message: ToNode) -> None:
        self.transport.send(self.kind, self.encode(message))

    def acknowledge(self, job_id: str, attempt_id: int = 1) -> None:
        self.send(JobResultAck(job_id=job_id, attempt_id=attempt_id, status="accepted"))

    def close(self, code: int) -> None:
        self.transport.send_close(cast(WSCloseCode, code))
        self.transport.disconnect()

    def cut(self) -> None:
        """Break the connection without a close frame."""
        self.transport.disconnect(graceful=False)

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.received if isinstance(message, kind)]

    async def expect(self, kind: type[Message]) -> Message:
        """Return the next message of a kind."""
        at = self._taken.get(kind, 0)
        while len(found := self.of(kind)) <= at:
            if self.lost.is_set():
                raise AssertionError(f"no {kind.__name__}; lost after {self.received}")
            self._arrival.clear()
            try:
                await asyncio.wait_for(self._arrival.wait(), BOUND_S)
            except TimeoutError:
                raise AssertionError(f"no {kind.__name__} in {self.received}") from None
        self._taken[kind] = at + 1
        return found[at]


class ScriptedScheduler:
    """Listens on a port of its own and keeps every connection."""

    def __init__(self) -> None:
        self.url = ""
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.all: list[Connection] = []
        self.supported: tuple[str, ...] = SUBPROTOCOLS
        self.on_register: Callable[[NodeRegister], ToNode] | None = register_ack()
        # Refuses the upgrade with this status.
        self.http_status = 0

    def accept(self, request: WSUpgradeRequest) -> WSUpgradeResponseWithListener:
        if self.http_status:
            response = WSUpgradeResponse.create_error_response(self.http_status)
            return WSUpgradeResponseWithListener(response, None)
        connection = Connection(self, request)
        headers = {PROTOCOL_HEADER: connection.chosen} if connection.chosen else None
        response = WSUpgradeResponse.create_101_response(headers)
        return WSUpgradeResponseWithListener(response, connection)

    async def connection(self) -> Connection:
        """Return the next connection of a node."""
        return await asyncio.wait_for(self.connections.get(), BOUND_S)

    async def node(self) -> Connection:
        """Return the next connection once its node is registered and may get jobs."""
        connection = await self.connection()
        await connection.expect(NodeHeartbeat)
        return connection


@asynccontextmanager
async def scripted_scheduler(*, answers_pings: bool = True) -> AsyncIterator[ScriptedScheduler]:
    scheduler = ScriptedScheduler()
    server = await ws_create_server(
        scheduler.accept, "127.0.0.1", 0, enable_auto_pong=answers_pings
    )
    port = server.sockets[0].getsockname()[1]
    scheduler.url = f"ws://127.0.0.1:{port}/ws/node"
    try:
        yield scheduler
    finally:
        server.close()
        for connection in scheduler.all:
            connection.cut()
            await connection.lost.wait()


def ignored(word: str, detail: str) -> None:
    """Ignore what happens to the connection."""


def node_for(scheduler: ScriptedScheduler, handler: Any = None, **settings: Any) -> Node:
    node = Node(scheduler.url, **{"node_id": "n1", "watch": ignored, **settings})
    node.job(handler or answer)
    return node


async def answer(job: Job) -> Result:
    return Result(text_asr="hello", text_translated="hola")


@asynccontextmanager
async def serving(*nodes: Node | OldNode) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(node.serve()) for node in nodes]
    try:
        yield tasks
    finally:
        for node in nodes:
            node.stop()
        await asyncio.wait_for(asyncio.gather(*tasks), BOUND_S)


@asynccontextmanager
async def connected(handler: Any = None, **settings: Any) -> AsyncIterator[Connection]:
    """A node that is being served."""
    async with (
        scripted_scheduler() as scheduler,
        serving(node_for(scheduler, handler, **settings)),
    ):
        yield await scheduler.node()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition that no event reports."""
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 nothing announces it
            await asyncio.sleep(0.005)


def as_json(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data, type=dict[str, Any])
