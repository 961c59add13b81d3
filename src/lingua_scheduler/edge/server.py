"""The whole process behind `lingua serve`: store, instance, port; and its orderly end.

Boot order: store, instance with its loops, then the port. The end is the reverse: refuse what is
new, finish what is here, close with a code that says to come back, then the store.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from lingua_scheduler.edge.address import unusable
from lingua_scheduler.edge.door import Door, bearer_of
from lingua_scheduler.edge.front import FrontLimits, FrontOptions, SocketRoute, serve_front
from lingua_scheduler.edge.head import Refusal
from lingua_scheduler.edge.http import http_app
from lingua_scheduler.edge.node_socket import NodeHandshake, NodeSocket
from lingua_scheduler.edge.permits import Permits
from lingua_scheduler.edge.realtime_socket import SUBPROTOCOL, Ready, RealtimeSocket, admitted
from lingua_scheduler.edge.session_socket import Handshake, SessionSocket
from lingua_scheduler.edge.wire import WireLimits
from lingua_scheduler.errors import ConfigError
from lingua_scheduler.live.instance import Instance
from lingua_scheduler.logs import EventLog
from lingua_scheduler.messages.codec import SUBPROTOCOLS
from lingua_scheduler.state.opening import open_connection, store_directory
from lingua_scheduler.state.owner import noted_address
from lingua_scheduler.state.revocations import Revocations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractContextManager

    from lingua_scheduler.config import Server, Settings
    from lingua_scheduler.edge.front import Front
    from lingua_scheduler.edge.head import Head
    from lingua_scheduler.edge.wire import Receiver, Wire

SESSION_PATH = "/ws/session"
NODE_PATH = "/ws/node"
REALTIME_PATH = "/v1/realtime/translations"


@dataclass(slots=True)
class RunningServer:
    """A scheduler that serves."""

    settings: Settings
    instance: Instance
    front: Front
    # Ends only with the process; if it ends by itself, the process must not go on without it.
    loops: asyncio.Task[None]

    @property
    def port(self) -> int:
        """Return the port it listens on."""
        return self.front.port

    @property
    def url(self) -> str:
        """Return the address of its HTTP side."""
        scheme = "https" if self.settings.server.tls_cert_file else "http"
        host = self.settings.server.host
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    async def drain(self) -> bool:
        """Finish what is under way; tells whether all of it was finished."""
        self.front.stop_accepting()
        return await self.instance.drain()


@asynccontextmanager
async def running_server(settings: Settings) -> AsyncIterator[RunningServer]:
    """Serve until the block is left; leaving it drops what is not finished (see `drain`)."""
    log = EventLog("scheduler")
    async with open_connection(settings) as connection:
        instance = Instance(settings, connection, log)
        await instance.open()
        permits = Permits(Revocations(connection, instance.cells.all[0]), log)
        await permits.read()
        loops = asyncio.create_task(_run(instance, permits))
        door = Door(settings, permits)
        runner = web.AppRunner(http_app(instance, door), access_log=None)
        await runner.setup()
        front: Front | None = None
        try:
            front = await _listen(settings, instance, runner, door)
            server = RunningServer(settings, instance, front, loops)
            with _noted(server):
                yield server
        finally:
            if front is not None:
                await front.close()
            await runner.cleanup()
            loops.cancel()
            await asyncio.gather(loops, return_exceptions=True)
            await instance.tasks.end()
            await instance.neighbours.leave()


def _noted(server: RunningServer) -> AbstractContextManager[None]:
    """Say in the data directory where it listens, to who would use that directory, too."""
    if server.settings.deployment_mode != "local":
        return nullcontext()
    return noted_address(store_directory(server.settings), server.url)


async def _run(instance: Instance, permits: Permits) -> None:
    """Run every loop; if one of them ends, all do."""
    async with asyncio.TaskGroup() as group:
        group.create_task(instance.run())
        group.create_task(permits.run())


async def _listen(
    settings: Settings, instance: Instance, runner: web.AppRunner, door: Door
) -> Front:
    server = settings.server

    def session(wire: Wire, head: Head) -> Receiver:
        _refuse_when_draining(instance)
        return Handshake(SessionSocket(wire, instance, door, bearer_of(head)))

    def node(wire: Wire, head: Head) -> Receiver:
        _refuse_when_draining(instance)
        return NodeHandshake(NodeSocket(wire, instance, door, bearer_of(head)))

    def realtime(wire: Wire, head: Head) -> Receiver:
        _refuse_when_draining(instance)
        socket = RealtimeSocket(wire, instance, *admitted(instance, door, head))
        # Nothing can be sent before this returns.
        asyncio.get_running_loop().call_soon(socket.begin, door)
        return Ready(socket)

    http = runner.server
    assert http is not None
    tls = _tls(server)
    listening = serve_front(
        server.host,
        server.port,
        sockets={
            SESSION_PATH: SocketRoute(session, _client_limits(server), SUBPROTOCOLS),
            NODE_PATH: SocketRoute(node, _node_limits(server), SUBPROTOCOLS),
            REALTIME_PATH: SocketRoute(realtime, _client_limits(server), (SUBPROTOCOL,)),
        },
        http=http,
        options=FrontOptions(
            limits=FrontLimits(
                head_ms=min(server.handshake_ms, 5000),
                connections_max=server.connections_max,
                connections_per_ip_max=server.connections_per_ip_max,
            ),
            origins=server.origins,
            tls=tls,
            on_error=instance.failed,
        ),
    )
    try:
        front = await listening
    except OSError as error:
        raise await unusable(server.host, server.port, error) from error
    _follow(instance, front)
    return front


def _follow(instance: Instance, front: Front) -> None:
    metrics = instance.metrics

    def count(*paths: str) -> int:
        wanted = [front.sockets[path].limits for path in paths]
        return sum(1 for wire in front.wires if any(wire.limits is limits for limits in wanted))

    def fetch() -> None:
        for reason, number in front.refused.items():
            metrics.connections_refused_total.labels(reason=reason).value = number
        for code, number in front.closed.items():
            metrics.closes_total.labels(code=str(code)).value = number

    metrics.sources.append(fetch)
    metrics.connections.labels(kind="session").follow(lambda: count(SESSION_PATH, REALTIME_PATH))
    metrics.connections.labels(kind="node").follow(lambda: count(NODE_PATH))
    metrics.connections.labels(kind="http").follow(lambda: front.connections - len(front.wires))


def _refuse_when_draining(instance: Instance) -> None:
    if instance.draining:
        raise Refusal(503, "the instance stops", {"Retry-After": "1"})


def _client_limits(server: Server) -> WireLimits:
    return WireLimits(
        server.message_bytes_max, server.unread_bytes_max, server.ping_ms, server.dead_ms
    )


def _node_limits(server: Server) -> WireLimits:
    return WireLimits(
        server.node_message_bytes_max,
        server.node_unread_bytes_max,
        server.node_ping_ms,
        server.node_dead_ms,
    )


def _tls(server: Server) -> ssl.SSLContext | None:
    if not server.tls_cert_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(server.tls_cert_file, server.tls_key_file)
    except OSError as error:
        raise ConfigError("server.tls_cert_file", f"cannot be used: {error}") from error
    return context
