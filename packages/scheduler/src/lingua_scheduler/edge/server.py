"""The process behind `lingua serve`: store, instance, port; and its orderly end.

Start order: store, instance with its loops, then the port. The end is the reverse: refuse new work,
finish accepted work, close sockets with a code that asks to reconnect, then close the store.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from lingua_cli.logs import EventLog
from lingua_scheduler.auth.bearer import offered_token
from lingua_scheduler.auth.expiry import TokenWatch
from lingua_scheduler.auth.gate import TokenGate
from lingua_scheduler.edge.ack_batches import AckTimer
from lingua_scheduler.edge.caption_socket import CaptionSocket, reader_of
from lingua_scheduler.edge.client_access import ClientServices
from lingua_scheduler.edge.http_api import http_app
from lingua_scheduler.edge.listen_errors import explain_listen_error
from lingua_scheduler.edge.node_socket import NodeHandshake, NodeServices, NodeSocket
from lingua_scheduler.edge.realtime_socket import SUBPROTOCOL, Ready, RealtimeSocket, admitted
from lingua_scheduler.edge.request_head import Refusal
from lingua_scheduler.edge.room_door import RoomDoor
from lingua_scheduler.edge.room_pages import UNREAD_BYTES_MAX
from lingua_scheduler.edge.session_socket import Handshake, SessionSocket
from lingua_scheduler.edge.tcp_listener import (
    ConnectionLimits,
    ListenerOptions,
    SocketRoute,
    TcpListener,
)
from lingua_scheduler.edge.websocket import WebSocketLimits
from lingua_scheduler.runtime.instance import Instance
from lingua_scheduler.state.opening import open_connection, store_directory
from lingua_scheduler.state.owner import noted_address
from lingua_scheduler.state.revocations import Revocations
from lingua_wire.codec import SUBPROTOCOLS
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from lingua_scheduler.config import ServerSettings, Settings
    from lingua_scheduler.edge.request_head import RequestHead
    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.edge.websocket import Receiver, WebSocket
    from lingua_scheduler.runtime.drain import SiblingDrain

SESSION_PATH = "/ws/session"
NODE_PATH = "/ws/node"
REALTIME_PATH = "/v1/realtime/translations"
CAPTIONS_PATH = "/ws/captions"
# A reader of captions sends nothing.
CAPTIONS_MESSAGE_BYTES_MAX = 4 << 10


@dataclass(slots=True)
class RunningServer:
    """A scheduler that accepts connections."""

    settings: Settings
    instance: Instance
    front: TcpListener
    # Ends only with the process; if it ends by itself, the process must end too.
    loops: asyncio.Task[None]

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self.front.port

    @property
    def url(self) -> str:
        """Return the URL of its HTTP API."""
        return url_of(self.settings.server, self.port)

    async def drain(self, siblings: SiblingDrain | None = None) -> bool:
        """Finish accepted work; tells whether all of it was finished."""
        self.front.stop_accepting()
        is_done = await self.instance.drain(siblings)
        # They have the last captions; browsers come back by themselves, to another instance.
        self.instance.rooms.captions.close("the instance stops")
        return is_done


def url_of(server: ServerSettings, port: int) -> str:
    """Return the URL of the HTTP API on a port."""
    scheme = "https" if server.tls_cert_file else "http"
    return f"{scheme}://{f'[{server.host}]' if ':' in server.host else server.host}:{port}"


@asynccontextmanager
async def running_server(
    settings: Settings, siblings: Siblings | None = None
) -> AsyncIterator[RunningServer]:
    """Serve until the block is left; leaving it drops unfinished work (see `drain`).

    A worker with siblings does not listen: it takes connections that its supervisor accepted.
    """
    log = EventLog("scheduler")
    async with open_connection(settings) as connection:
        instance = Instance(settings, connection, log)
        await instance.open()
        watch = TokenWatch(Revocations(connection, instance.cells.all[0]), log)
        await watch.read()
        loops = asyncio.create_task(_run(instance, watch))
        gate = TokenGate(settings, watch)
        runner = web.AppRunner(http_app(instance, gate, siblings), access_log=None)
        await runner.setup()
        front: TcpListener | None = None
        try:
            front = _front(settings, instance, runner, gate)
            if siblings is None:
                await _listen(front, settings.server)
            else:
                front.begin(settings.server.port)
            server = RunningServer(settings, instance, front, loops)
            with _noted(server):
                yield server
        finally:
            instance.rooms.captions.close("the instance stops")
            await runner.shutdown()
            if front is not None:
                await front.close()
            await runner.cleanup()
            loops.cancel()
            await asyncio.gather(loops, return_exceptions=True)
            await instance.tasks.end()
            await instance.peers.leave()


def _noted(server: RunningServer) -> AbstractContextManager[None]:
    """Write the server's address into the data directory, for other processes."""
    if server.settings.deployment_mode != "local":
        return nullcontext()
    return noted_address(store_directory(server.settings), server.url)


async def _run(instance: Instance, watch: TokenWatch) -> None:
    """Run every loop; if one of them ends, all do."""
    async with asyncio.TaskGroup() as group:
        group.create_task(instance.run())
        group.create_task(watch.run())


async def _listen(front: TcpListener, server: ServerSettings) -> None:
    try:
        await front.listen(server.host, server.port)
    except OSError as error:
        raise await explain_listen_error(server.host, server.port, error) from error


def _front(
    settings: Settings, instance: Instance, runner: web.AppRunner, gate: TokenGate
) -> TcpListener:
    server = settings.server
    clients, nodes = client_services(instance, gate), node_services(instance, gate)

    def session(wire: WebSocket, head: RequestHead) -> Receiver:
        _refuse_when_draining(instance)
        return Handshake(SessionSocket(wire, clients, bearer_of(head)))

    def node(wire: WebSocket, head: RequestHead) -> Receiver:
        _refuse_when_draining(instance)
        return NodeHandshake(NodeSocket(wire, nodes, bearer_of(head)))

    def realtime(wire: WebSocket, head: RequestHead) -> Receiver:
        _refuse_when_draining(instance)
        socket = RealtimeSocket(wire, clients, *admitted(instance.nodes, gate, head))
        # Nothing can be sent before this returns.
        asyncio.get_running_loop().call_soon(socket.begin)
        return Ready(socket)

    door = RoomDoor(instance.rooms.captions)

    def captions(wire: WebSocket, head: RequestHead) -> Receiver:
        _refuse_when_draining(instance)
        socket = CaptionSocket(wire, door, gate, instance.tasks, reader_of(gate, head))
        # Nothing can be sent before this returns.
        asyncio.get_running_loop().call_soon(socket.begin, dict(head.query))
        return socket

    http = runner.server
    assert http is not None
    front = TcpListener(
        sockets={
            SESSION_PATH: SocketRoute(session, _client_limits(server), SUBPROTOCOLS),
            NODE_PATH: SocketRoute(node, _node_limits(server), SUBPROTOCOLS),
            REALTIME_PATH: SocketRoute(realtime, _client_limits(server), (SUBPROTOCOL,)),
            CAPTIONS_PATH: SocketRoute(captions, _reader_limits(server), SUBPROTOCOLS[:1]),
        },
        http=http,
        options=ListenerOptions(
            limits=ConnectionLimits(
                head_ms=min(server.handshake_ms, 5000),
                connections_max=server.connections_max,
                connections_per_ip_max=server.connections_per_ip_max,
            ),
            origins=server.origins,
            tls=_tls(server),
            behind_proxy=server.behind_proxy,
            on_error=instance.failed,
        ),
    )
    _follow(instance, front)
    return front


def _follow(instance: Instance, front: TcpListener) -> None:
    metrics = instance.metrics

    def count(*paths: str) -> int:
        wanted = [front.sockets[path].limits for path in paths]
        return sum(
            1 for wire in front.websockets if any(wire.limits is limits for limits in wanted)
        )

    def fetch() -> None:
        for reason, number in front.refused.items():
            metrics.sockets.connections_refused_total.labels(reason=reason).value = number
        for code, number in front.closed.items():
            metrics.sockets.closes_total.labels(code=str(code)).value = number

    metrics.sources.append(fetch)
    metrics.sockets.connections.labels(kind="session").follow(
        lambda: count(SESSION_PATH, REALTIME_PATH)
    )
    metrics.sockets.connections.labels(kind="node").follow(lambda: count(NODE_PATH))
    metrics.sockets.connections.labels(kind="http").follow(
        lambda: front.connections - len(front.websockets)
    )


def client_services(instance: Instance, gate: TokenGate) -> ClientServices:
    """Return what the sockets of clients use of an instance."""
    parts = instance.client_parts
    return ClientServices(
        settings=instance.settings,
        gate=gate,
        lifecycle=instance.lifecycle,
        registry=parts.registry,
        ended=parts.ended,
        served=parts.served,
        rooms=instance.rooms.service,
        tasks=instance.tasks,
        clock=instance.clock,
        metrics=instance.metrics,
    )


def node_services(instance: Instance, gate: TokenGate) -> NodeServices:
    """Return what the sockets of nodes use of an instance."""
    parts = instance.node_parts
    return NodeServices(
        handshake_ms=instance.settings.server.handshake_ms,
        gate=gate,
        lifecycle=instance.lifecycle,
        registry=parts.registry,
        reports=parts.reports,
        streams=parts.streams.hub,
        ack_timer=AckTimer(),
        tasks=instance.tasks,
        metrics=instance.metrics,
        log=instance.log,
    )


def bearer_of(head: RequestHead) -> str | None:
    """Return the token of a request's header or subprotocol, if it has one."""
    return offered_token(head.headers.get("authorization", ""), head.subprotocols)


def _refuse_when_draining(instance: Instance) -> None:
    if instance.lifecycle.is_draining:
        raise Refusal(503, "the instance stops", {"Retry-After": "1"})


def _client_limits(server: ServerSettings) -> WebSocketLimits:
    return WebSocketLimits(
        server.message_bytes_max, server.unread_bytes_max, server.ping_ms, server.dead_ms
    )


def _reader_limits(server: ServerSettings) -> WebSocketLimits:
    return WebSocketLimits(
        CAPTIONS_MESSAGE_BYTES_MAX,
        min(UNREAD_BYTES_MAX, server.unread_bytes_max),
        server.ping_ms,
        server.dead_ms,
    )


def _node_limits(server: ServerSettings) -> WebSocketLimits:
    return WebSocketLimits(
        server.node_message_bytes_max,
        server.node_unread_bytes_max,
        server.node_ping_ms,
        server.node_dead_ms,
    )


def _tls(server: ServerSettings) -> ssl.SSLContext | None:
    if not server.tls_cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(server.tls_cert_file, server.tls_key_file)
    except OSError as error:
        raise ConfigError("server.tls_cert_file", f"cannot be used: {error}") from error
    return context
