"""One TCP port: WebSockets on given paths, HTTP by aiohttp on all others.

A `_RequestReader` reads the head of a connection's first request. The connection counts against the
limits from the start; TLS and the request head have bounded time and size. The path then decides:
the connection goes to a `WebSocket`, to aiohttp, or gets a plain refusal. The listener does not
know tokens or sessions: a route's `accept` decides, and refuses by raising `Refusal`. Connections
are counted by the address of the TCP socket; what a proxy says of its client is for the receiver.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web

from lingua_scheduler.edge.keep_alive import KeepAlive
from lingua_scheduler.edge.listener_options import (
    AcceptSocket,
    ConnectionLimits,
    ListenerOptions,
    SocketRoute,
)
from lingua_scheduler.edge.request_head import (
    REQUEST_LINE,
    Refusal,
    RequestHead,
    address_in,
    cap_key,
    client_address,
    first_values,
    is_loopback,
    is_origin_allowed,
    listed,
    parse_headers,
    response_to,
    upgrade_key,
)
from lingua_scheduler.edge.websocket import WebSocket

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AcceptSocket",
    "ConnectionLimits",
    "ListenerOptions",
    "Refusal",
    "RequestHead",
    "SocketRoute",
    "TcpListener",
    "start_listener",
]

BACKLOG: Final = 1024
# How long a refused peer may take to read the response, and how many such peers there may be at
# once. Further ones are aborted: a flood must not hold sockets open by being refused.
LINGER_S: Final = 0.5
LINGERING_MAX: Final = 256
TLS_SHUTDOWN_S: Final = 1.0
CLOSE_GRACE_S: Final = 1.5
# Unsent bytes that the kernel may hold for a peer that does not read. A socket with a larger send
# limit gets a share of that limit: with too little, each turn of the loop would move only a few
# bytes, and a fast peer would look slow.
KERNEL_UNSENT_BYTES_MAX: Final = 64 * 1024
KERNEL_SHARE: Final = 4
# The phases of a request reader.
READING, DECIDING, REFUSED = range(3)
# The kind of a connection that was accepted here.
NOT_TAKEN: Final = -1


async def start_listener(
    host: str,
    port: int,
    *,
    sockets: Mapping[str, SocketRoute],
    http: web.Server,
    options: ListenerOptions | None = None,
) -> TcpListener:
    """Listen, and serve each connection by the path of its first request."""
    listener = TcpListener(sockets, http, options or ListenerOptions())
    await listener.listen(host, port)
    return listener


class TcpListener:
    """A listening port and all its connections."""

    def __init__(
        self, sockets: Mapping[str, SocketRoute], http: web.Server, options: ListenerOptions
    ) -> None:
        self.sockets = sockets
        self.http = http
        self.options = options
        # The handler of aiohttp, which `listen` replaces by one that checks for upgrades first.
        self._serve_http = http.request_handler
        self._origins = frozenset(origin.lower() for origin in options.origins)
        self.port = 0
        # The WebSockets that have not ended.
        self.websockets: set[WebSocket] = set()
        self.keep_alive = KeepAlive()
        # WebSockets opened, and connections refused by reason, since the start.
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        # WebSockets ended, by the code that ended them.
        self.closed: Counter[int] = Counter()

        self._server: asyncio.Server | None = None
        # Connections that count against the limits, and their number by address.
        self._connections: set[_Connection] = set()
        self._per_ip: Counter[str] = Counter()
        # Open connections that another process accepted, by the kind that it gave.
        self.taken: Counter[int] = Counter()
        # Connections over a limit that still read their refusal.
        self._lingering = 0
        # TLS handshakes under way.
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def listen(self, host: str, port: int) -> None:
        """Open the port; 0 takes a free one."""
        self.begin(port)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._new_protocol, host, port, backlog=BACKLOG, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def begin(self, port: int) -> None:
        """Prepare for connections, also if another process listens on the port."""
        self.http.request_handler = self._serve_kept_alive
        self.port = port

    async def take(self, sock: socket.socket, kind: int) -> None:
        """Serve a connection that another process accepted."""
        if self.options.tls is None:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: _RequestReader(self, kind=kind), sock)
            return
        try:
            connection = self.register(address_in(sock.getpeername()), kind)
        except Refusal as refusal:
            self.refused[refusal.reason] += 1
            sock.close()
        else:
            await _TlsAcceptor(self).secure(sock, connection)

    def _new_protocol(self) -> asyncio.Protocol:
        return _RequestReader(self) if self.options.tls is None else _TlsAcceptor(self)

    def stop_accepting(self) -> None:
        """Close the port; open connections go on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """End all connections within a bound: WebSockets with 1001, HTTP after its request."""
        self.stop_accepting()
        self._is_closing = True
        for task in self._handshakes:
            task.cancel()
        for connection in self._connections:
            if not connection.is_settled:
                connection.abort()
        for websocket in tuple(self.websockets):
            websocket.close(1001, "going away")
        self.http.pre_shutdown()
        try:
            await asyncio.wait_for(self._is_empty.wait(), CLOSE_GRACE_S)
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()
            await self._is_empty.wait()
        self.keep_alive.stop()

    @property
    def connections(self) -> int:
        """How many connections are open, of any kind."""
        return len(self._connections)

    def register(self, remote: str, kind: int = NOT_TAKEN) -> _Connection:
        """Count a new connection, or refuse it over a limit, before any other work is done."""
        key = cap_key(remote)
        if (refusal := self.refusal_of(key)) is not None:
            raise refusal
        connection = _Connection(self, key, kind)
        self._connections.add(connection)
        self.taken[kind] += 1
        self._per_ip[key] += 1
        self._is_empty.clear()
        return connection

    def refusal_of(self, key: str) -> Refusal | None:
        """Return why one more connection of a peer is refused; None if it is not."""
        limits = self.options.limits
        if self._is_closing:
            return Refusal(503, "going away", {"Retry-After": "1"})
        if 0 < limits.connections_max <= len(self._connections):
            return Refusal(503, "too many connections", {"Retry-After": "5"})
        if 0 < limits.connections_per_ip_max <= self._per_ip[key]:
            return Refusal(429, "too many connections from this address", {"Retry-After": "5"})
        return None

    def unregister(self, connection: _Connection) -> None:
        """Remove an ended connection from the count; safe to repeat."""
        if connection not in self._connections:
            return
        self._connections.discard(connection)
        self.taken[connection.kind] -= 1
        self._per_ip[connection.key] -= 1
        if not self._per_ip[connection.key]:
            del self._per_ip[connection.key]
        if not self._connections:
            self._is_empty.set()

    def admit(self, head: bytes, transport: asyncio.Transport) -> tuple[WebSocket, str] | None:
        """Return the WebSocket that may open and its key, or None if the request is for aiohttp."""
        line, _, rest = head.partition(b"\r\n")
        request = REQUEST_LINE.fullmatch(line)
        if request is None:
            raise Refusal(400, "malformed request line")
        path, _, query = request[2].decode("ascii").partition("?")
        route = self.sockets.get(path)
        if route is None:
            return None
        headers = parse_headers(rest)
        key = upgrade_key(request, headers)
        self._check_origin(headers, transport)
        offered = listed(headers.get("sec-websocket-protocol", ""))
        chosen = next((name for name in offered if name in route.subprotocols), None)
        remote = address_in(transport.get_extra_info("peername"))
        if self.options.behind_proxy:
            remote = client_address(remote, headers.get("x-forwarded-for", ""))
        websocket = WebSocket(route.limits, remote, chosen, self.options.on_error, self._forget)
        websocket.receiver = route.accept(
            websocket, RequestHead(path, first_values(query), headers, offered, remote)
        )
        return websocket, key

    def open_websocket(
        self, admission: tuple[WebSocket, str], early: bytes, connection: _Connection
    ) -> None:
        """Open an admitted WebSocket on the transport of its connection, which is paused."""
        websocket, key = admission
        transport = connection.transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP,
            socket.TCP_NOTSENT_LOWAT,
            max(KERNEL_UNSENT_BYTES_MAX, websocket.limits.send_bytes_max // KERNEL_SHARE),
        )
        self.accepted += 1
        self.websockets.add(websocket)
        self.keep_alive.add(websocket)
        websocket.attach(transport, key, early, connection.leave)

    def _check_origin(self, headers: Mapping[str, str], transport: asyncio.Transport) -> None:
        origin = headers.get("origin")
        if origin is None:
            return
        ours = address_in(transport.get_extra_info("sockname"))
        if not is_origin_allowed(
            origin, headers.get("host", ""), self._origins, by_loopback=is_loopback(ours)
        ):
            raise Refusal(403, "origin not allowed")

    def _forget(self, websocket: WebSocket) -> None:
        """Remove a WebSocket that has ended."""
        self.websockets.discard(websocket)
        self.closed[websocket.close_code or 1006] += 1
        self.keep_alive.discard(websocket)

    async def _serve_kept_alive(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a request that aiohttp has read; a later request of a connection may upgrade it."""
        connection = request.transport.get_protocol() if request.transport else None
        if request.raw_path.partition("?")[0] in self.sockets and isinstance(
            connection, _HttpConnection
        ):
            return connection.upgrade(request)
        return await self._serve_http(request)

    def may_linger(self) -> bool:
        """Tell whether one more refused peer may stay to read its response; count it if so."""
        if self._lingering >= LINGERING_MAX:
            return False
        self._lingering += 1
        return True

    def stop_lingering(self) -> None:
        """Remove a refused peer from the count."""
        self._lingering -= 1

    def keep_handshake(self, task: asyncio.Task[None]) -> None:
        """Keep a reference to a TLS handshake until it is done."""
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)


class _Connection:
    """One connection that counts against the limits until it ends."""

    __slots__ = ("_listener", "is_settled", "key", "kind", "transport")

    def __init__(self, listener: TcpListener, key: str, kind: int) -> None:
        self._listener = listener
        self.key = key
        self.kind = kind
        # None during a TLS handshake.
        self.transport: asyncio.Transport | None = None
        # Handed over to a WebSocket or to aiohttp, which decides its end.
        self.is_settled = False

    def leave(self) -> None:
        self._listener.unregister(self)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _RequestReader(asyncio.Protocol):
    """A connection from its first byte until its request head is read."""

    __slots__ = (
        "_connection",
        "_deadline",
        "_head",
        "_is_lingering",
        "_kind",
        "_listener",
        "_loop",
        "_phase",
        "_remote",
        "_searched",
        "_timer",
        "_transport",
    )

    def __init__(
        self,
        listener: TcpListener,
        connection: _Connection | None = None,
        kind: int = NOT_TAKEN,
    ) -> None:
        self._listener = listener
        self._kind = kind
        self._loop = asyncio.get_running_loop()
        self._phase = READING
        # The deadline for TLS and the head together.
        self._deadline = self._loop.time() + listener.options.limits.head_ms / 1000
        self._is_lingering = False
        # The bytes received so far, and how many of them cannot contain the end of the head.
        self._head = bytearray()
        self._searched = 0
        # Bounds the time to send the head, then the time to read a refusal.
        self._timer: asyncio.TimerHandle | None = None
        # None for a connection that is not counted: not yet, or because it is over a limit.
        self._connection = connection
        self._remote = ""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._remote = address_in(transport.get_extra_info("peername"))
        try:
            self._connection = self._connection or self._listener.register(self._remote, self._kind)
        except Refusal as refusal:
            self._refuse_over_limit(refusal)
            return
        self._connection.transport = self._transport
        self._timer = self._loop.call_at(self._deadline, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self._phase == REFUSED:
            return
        self._head += data
        if self._phase == READING:
            self._find_end_of_head()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._phase = REFUSED
        if self._timer is not None:
            self._timer.cancel()
        if self._connection is not None:
            self._connection.leave()
        if self._is_lingering:
            self._listener.stop_lingering()

    def _find_end_of_head(self) -> None:
        limit = self._listener.options.limits.head_bytes_max
        end = self._head.find(b"\r\n\r\n", self._searched)
        if end > limit or (end < 0 and len(self._head) > limit):
            self._refuse(Refusal(431, "request head too large"))
        elif end < 0:
            self._searched = max(0, len(self._head) - 3)
        else:
            self._phase = DECIDING
            self._transport.pause_reading()
            # In its own callback: an error of an accept function must not end the read callback.
            self._loop.call_soon(self._decide, end)

    def _decide(self, end: int) -> None:
        """Hand the connection over by its path, or refuse it."""
        if self._phase != DECIDING or self._transport.is_closing():
            return
        try:
            admission = self._listener.admit(bytes(self._head[:end]), self._transport)
        except Refusal as refusal:
            self._refuse(refusal)
        except BaseException as error:
            self._listener.options.on_error(error)
            self._refuse(Refusal(500, "internal error"))
            raise
        else:
            self._hand_over(admission, bytes(self._head), end)

    def _hand_over(self, admission: tuple[WebSocket, str] | None, data: bytes, end: int) -> None:
        assert self._connection is not None
        assert self._timer is not None
        self._timer.cancel()
        self._connection.is_settled = True
        if admission is None:
            _HttpConnection(self._listener, self._connection).take_over(self._transport, data)
        else:
            self._listener.open_websocket(admission, data[end + 4 :], self._connection)

    def _refuse(self, refusal: Refusal) -> None:
        """Respond, then wait for the peer to close: closing first may cut off the response."""
        self._listener.refused[refusal.reason] += 1
        self._phase = REFUSED
        if self._timer is not None:
            self._timer.cancel()
        transport = self._transport
        transport.write(response_to(refusal))
        self._timer = self._loop.call_later(LINGER_S, transport.abort)
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            transport.close()

    def _refuse_over_limit(self, refusal: Refusal) -> None:
        """Refuse a connection over a limit; it may stay for a short while at most."""
        self._is_lingering = self._listener.may_linger()
        if self._is_lingering:
            self._refuse(refusal)
        else:
            self._listener.refused[refusal.reason] += 1
            self._phase = REFUSED
            self._transport.abort()

    def _too_slow(self) -> None:
        self._listener.refused["head timeout"] += 1
        self._phase = REFUSED
        self._transport.write(response_to(Refusal(408, "request head took too long")))
        self._transport.close()


class _TlsAcceptor(asyncio.Protocol):
    """Counts a connection before its TLS handshake costs any time.

    A TLS server of the loop would do the handshake first and report the connection afterwards.
    `start_tls` does not help: uvloop reads from the socket before it can be called.
    """

    __slots__ = ("_listener",)

    def __init__(self, listener: TcpListener) -> None:
        self._listener = listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        try:
            connection = self._listener.register(address_in(plain.get_extra_info("peername")))
        except Refusal as refusal:
            self._listener.refused[refusal.reason] += 1
        else:
            # A second descriptor keeps the socket open when this transport is aborted.
            sock = socket.socket(fileno=os.dup(plain.get_extra_info("socket").fileno()))
            handshake = asyncio.get_running_loop().create_task(self.secure(sock, connection))
            self._listener.keep_handshake(handshake)
        plain.abort()

    async def secure(self, sock: socket.socket, connection: _Connection) -> None:
        """Do the TLS handshake of a counted connection, then read its request."""
        sock.setblocking(False)  # noqa: FBT003 - the only parameter
        reader = _RequestReader(self._listener, connection)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: reader,
                sock,
                ssl=self._listener.options.tls,
                ssl_handshake_timeout=self._listener.options.limits.head_ms / 1000,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except OSError:
            self._listener.refused["tls handshake"] += 1
        finally:
            if connection.transport is None:
                connection.leave()


class _HttpConnection(asyncio.Protocol):
    """A connection that aiohttp serves; wrapped to learn of its end and of a later upgrade."""

    __slots__ = ("_connection", "_ends_with", "_handler", "_listener")

    def __init__(self, listener: TcpListener, connection: _Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._handler = listener.http()
        # The last four bytes that were read.
        self._ends_with = b""

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        transport.set_protocol(self)
        # Before the bytes are fed: the handler may want to pause again.
        transport.resume_reading()
        self._handler.connection_made(transport)
        self.data_received(data)

    def refusal_of_another(self) -> Refusal | None:
        """Return why one more connection of this peer would be refused; None if it would not."""
        return self._listener.refusal_of(self._connection.key)

    def upgrade(self, request: web.BaseRequest) -> web.StreamResponse:
        """Open a WebSocket on a kept-alive connection, as proxies and connection pools request.

        To aiohttp this looks like a lost connection; the response it gets is not sent.
        """
        transport = self._connection.transport
        assert transport is not None
        if transport.is_closing():
            return web.Response()
        if self._ends_with != b"\r\n\r\n":
            return self._refuse(Refusal(400, "data before the upgrade was answered"))
        try:
            admission = self._listener.admit(_raw_head(request), transport)
        except Refusal as refusal:
            return self._refuse(refusal)
        except BaseException as error:
            self._listener.options.on_error(error)
            raise
        assert admission is not None
        self._handler.transport = None
        self._handler.connection_lost(None)
        transport.pause_reading()
        self._listener.open_websocket(admission, b"", self._connection)
        return web.Response()

    def _refuse(self, refusal: Refusal) -> web.StreamResponse:
        self._listener.refused[refusal.reason] += 1
        response = web.Response(
            status=refusal.status, text=f"{refusal.reason}\n", headers=refusal.headers
        )
        response.force_close()
        return response

    def data_received(self, data: bytes) -> None:
        self._ends_with = (self._ends_with + data[-4:])[-4:]
        self._handler.data_received(data)

    def eof_received(self) -> None:
        self._handler.eof_received()

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.leave()
        self._handler.connection_lost(exc)


def refusal_of_another(request: web.BaseRequest) -> Refusal | None:
    """Return why one more connection of a request's peer would be refused; None if it would not.

    A browser opens one for a WebSocket, and does not tell its page why it got none.
    """
    connection = request.transport.get_protocol() if request.transport else None
    return connection.refusal_of_another() if isinstance(connection, _HttpConnection) else None


def _raw_head(request: web.BaseRequest) -> bytes:
    """Return the raw head of a request that aiohttp has parsed."""
    version = f"HTTP/{request.version.major}.{request.version.minor}"
    lines = [f"{request.method} {request.raw_path} {version}".encode()]
    lines += [name + b": " + value for name, value in request.raw_headers]
    return b"\r\n".join(lines)
