"""One TCP port for WebSockets on given paths, and for HTTP by aiohttp on all others.

Each connection is first an `_Arrival`: it is counted against the caps, has bounded time and bytes
for TLS and its request head, and is then handed on by its path: to a `Wire`, to aiohttp, or to a
plain refusal. The front knows no tokens and no sessions: a route's `accept` decides who may enter,
and says no by raising `Refusal`. Addresses are the socket's own; no header is believed about them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web

from lingua_scheduler.edge.head import (
    REQUEST_LINE,
    Head,
    Refusal,
    first_values,
    is_loopback,
    is_origin_allowed,
    listed,
    parse_headers,
    response_to,
    upgrade_key,
)
from lingua_scheduler.edge.wire import Receiver, Watch, Wire, WireLimits

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Front",
    "FrontLimits",
    "FrontOptions",
    "Head",
    "Refusal",
    "Route",
    "SocketRoute",
    "serve_front",
]

BACKLOG: Final = 1024
# How long a refused peer may take to read the answer, and how many such there may be at once:
# past that number they are cut off, because a flood must not hold sockets by being refused.
LINGER_S: Final = 0.5
LINGERING_MAX: Final = 256
TLS_SHUTDOWN_S: Final = 1.0
CLOSE_GRACE_S: Final = 1.5
# What the kernel may hold for a peer that does not read, on top of what it has sent already.
# A peer that may leave much unread gets a part of that: with too little, each turn of the loop
# would move only so much, and a fast peer would look slow.
KERNEL_UNSENT_BYTES_MAX: Final = 64 * 1024
KERNEL_SHARE: Final = 4
# The phases of an arrival.
READING, DECIDING, REFUSED = range(3)

_log = logging.getLogger(__name__)

# Decides whether a wire may open and who receives from it; raises Refusal to turn it away.
# Nothing can be sent on the wire before it returns.
Route = Callable[[Wire, Head], Receiver]


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """What a WebSocket path leads to."""

    accept: Route
    limits: WireLimits = field(default_factory=WireLimits)
    # Which subprotocols the server speaks; the first offered one of them is chosen, else none.
    subprotocols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """What strangers may cost, all of them together and each address; 0 is unlimited."""

    head_bytes_max: int = 16 * 1024
    head_ms: int = 5000
    connections_max: int = 10_000
    connections_per_ip_max: int = 0


def _log_error(error: BaseException) -> None:
    _log.error("a receiver failed", exc_info=error)


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """How a front treats those who come."""

    limits: FrontLimits = field(default_factory=FrontLimits)
    # Web pages that may connect; see `is_origin_allowed` for what none means.
    origins: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    # Told of every error that a receiver or an accept function raises.
    on_error: Callable[[BaseException], None] = _log_error


async def serve_front(
    host: str,
    port: int,
    *,
    sockets: Mapping[str, SocketRoute],
    http: web.Server,
    options: FrontOptions | None = None,
) -> Front:
    """Listen, and serve each connection by the path of its first request."""
    front = Front(sockets, http, options or FrontOptions())
    await front.listen(host, port)
    return front


class Front:
    """A listening port and all that came in through it."""

    def __init__(
        self, sockets: Mapping[str, SocketRoute], http: web.Server, options: FrontOptions
    ) -> None:
        self.sockets = sockets
        self.http = http
        self.options = options
        # How aiohttp answers a request: we see each first, as it may ask for a WebSocket.
        self._serve_http = http.request_handler
        http.request_handler = self._serve_kept_alive
        self._origins = frozenset(origin.lower() for origin in options.origins)
        self.port = 0
        # The wires that are not lost yet.
        self.wires: set[Wire] = set()
        self.watch = Watch()
        # WebSockets opened, and connections turned away by reason, since the start.
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        # WebSockets ended, by the code that ended them.
        self.closed: Counter[int] = Counter()

        self._server: asyncio.Server | None = None
        # Every connection that counts against the caps, and how many each address has.
        self._visits: set[_Visit] = set()
        self._per_ip: Counter[str] = Counter()
        # Connections past a cap that still read their refusal.
        self._lingering = 0
        # TLS handshakes under way.
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def listen(self, host: str, port: int) -> None:
        """Open the port; 0 takes a free one."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._doorman, host, port, backlog=BACKLOG, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _doorman(self) -> asyncio.Protocol:
        return _Arrival(self) if self.options.tls is None else _TlsArrival(self)

    def stop_accepting(self) -> None:
        """Close the port; what is connected goes on."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        """End everything: wires with 1001, HTTP after its current request, all within a bound."""
        self.stop_accepting()
        self._is_closing = True
        for task in self._handshakes:
            task.cancel()
        for visit in self._visits:
            if not visit.is_settled:
                visit.abort()
        for wire in tuple(self.wires):
            wire.close(1001, "going away")
        self.http.pre_shutdown()
        try:
            await asyncio.wait_for(self._is_empty.wait(), CLOSE_GRACE_S)
        except TimeoutError:
            for visit in tuple(self._visits):
                visit.abort()
            await self._is_empty.wait()
        self.watch.stop()

    @property
    def connections(self) -> int:
        """How many connections are open, of any kind."""
        return len(self._visits)

    def enter(self, remote: str) -> _Visit:
        """Count a new connection, or refuse it for a cap, before anything else is done for it."""
        limits = self.options.limits
        key = _cap_key(remote)
        if self._is_closing:
            raise Refusal(503, "going away")
        if 0 < limits.connections_max <= len(self._visits):
            raise Refusal(503, "too many connections", {"Retry-After": "5"})
        if 0 < limits.connections_per_ip_max <= self._per_ip[key]:
            raise Refusal(429, "too many connections from this address", {"Retry-After": "5"})
        visit = _Visit(self, key)
        self._visits.add(visit)
        self._per_ip[key] += 1
        self._is_empty.clear()
        return visit

    def leave(self, visit: _Visit) -> None:
        """Count a connection no longer; safe to repeat."""
        if visit not in self._visits:
            return
        self._visits.discard(visit)
        self._per_ip[visit.key] -= 1
        if not self._per_ip[visit.key]:
            del self._per_ip[visit.key]
        if not self._visits:
            self._is_empty.set()

    def admit(self, head: bytes, transport: asyncio.Transport) -> tuple[Wire, str] | None:
        """Return the wire that may open and its key, or None if the request is for aiohttp."""
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
        remote = _address(transport.get_extra_info("peername"))
        wire = Wire(route.limits, remote, chosen, self.options.on_error, self._forget)
        wire.receiver = route.accept(
            wire, Head(path, first_values(query), headers, offered, remote)
        )
        return wire, key

    def open(self, admission: tuple[Wire, str], early: bytes, visit: _Visit) -> None:
        """Let an admitted wire live on the transport of its visit, which is paused."""
        wire, key = admission
        transport = visit.transport
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP,
            socket.TCP_NOTSENT_LOWAT,
            max(KERNEL_UNSENT_BYTES_MAX, wire.limits.send_bytes_max // KERNEL_SHARE),
        )
        self.accepted += 1
        self.wires.add(wire)
        self.watch.add(wire)
        wire.attach(transport, key, early, visit.leave)

    def _check_origin(self, headers: Mapping[str, str], transport: asyncio.Transport) -> None:
        origin = headers.get("origin")
        if origin is None:
            return
        ours = _address(transport.get_extra_info("sockname"))
        if not is_origin_allowed(
            origin, headers.get("host", ""), self._origins, by_loopback=is_loopback(ours)
        ):
            raise Refusal(403, "origin not allowed")

    def _forget(self, wire: Wire) -> None:
        """Let go of a wire that is lost."""
        self.wires.discard(wire)
        self.closed[wire.close_code or 1006] += 1
        self.watch.discard(wire)

    async def _serve_kept_alive(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a request that aiohttp has read; it may not be the first of its connection."""
        connection = request.transport.get_protocol() if request.transport else None
        if request.raw_path.partition("?")[0] in self.sockets and isinstance(
            connection, _HttpConnection
        ):
            return connection.upgrade(request)
        return await self._serve_http(request)

    def may_linger(self) -> bool:
        """Tell whether one more refused peer may stay to read its answer, and count it."""
        if self._lingering >= LINGERING_MAX:
            return False
        self._lingering += 1
        return True

    def stop_lingering(self) -> None:
        """Count a refused peer no longer."""
        self._lingering -= 1

    def keep_handshake(self, task: asyncio.Task[None]) -> None:
        """Hold on to a TLS handshake until it is done."""
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)


class _Visit:
    """One connection that counts against the caps, until it leaves."""

    __slots__ = ("_front", "is_settled", "key", "transport")

    def __init__(self, front: Front, key: str) -> None:
        self._front = front
        self.key = key
        # What the connection is on; None during a TLS handshake.
        self.transport: asyncio.Transport | None = None
        # Handed on: its end is decided elsewhere.
        self.is_settled = False

    def leave(self) -> None:
        self._front.leave(self)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Arrival(asyncio.Protocol):
    """A connection from its first byte until it is known where it goes."""

    __slots__ = (
        "_deadline",
        "_front",
        "_head",
        "_is_lingering",
        "_loop",
        "_phase",
        "_remote",
        "_searched",
        "_timer",
        "_transport",
        "_visit",
    )

    def __init__(self, front: Front, visit: _Visit | None = None) -> None:
        self._front = front
        self._loop = asyncio.get_running_loop()
        self._phase = READING
        # The end of its time, be it spent on TLS or on the head.
        self._deadline = self._loop.time() + front.options.limits.head_ms / 1000
        self._is_lingering = False
        # The request head and what came after it, and how much of it has no end of the head.
        self._head = bytearray()
        self._searched = 0
        # Bounds first the whole arrival, then the time to read a refusal.
        self._timer: asyncio.TimerHandle | None = None
        # None for a connection that is not counted: not yet, or because it is past a cap.
        self._visit = visit
        self._remote = ""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._remote = _address(transport.get_extra_info("peername"))
        try:
            self._visit = self._visit or self._front.enter(self._remote)
        except Refusal as refusal:
            self._turn_away(refusal)
            return
        self._visit.transport = self._transport
        self._timer = self._loop.call_at(self._deadline, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self._phase == REFUSED:
            return
        self._head += data
        if self._phase == READING:
            self._look_for_end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._phase = REFUSED
        if self._timer is not None:
            self._timer.cancel()
        if self._visit is not None:
            self._visit.leave()
        if self._is_lingering:
            self._front.stop_lingering()

    def _look_for_end(self) -> None:
        limit = self._front.options.limits.head_bytes_max
        end = self._head.find(b"\r\n\r\n", self._searched)
        if end > limit or (end < 0 and len(self._head) > limit):
            self._refuse(Refusal(431, "request head too large"))
        elif end < 0:
            self._searched = max(0, len(self._head) - 3)
        else:
            self._phase = DECIDING
            self._transport.pause_reading()
            # In a callback of its own, where an error of an accept function ends nothing else.
            self._loop.call_soon(self._decide, end)

    def _decide(self, end: int) -> None:
        """Hand the connection on by its path, or refuse it."""
        if self._phase != DECIDING or self._transport.is_closing():
            return
        try:
            admission = self._front.admit(bytes(self._head[:end]), self._transport)
        except Refusal as refusal:
            self._refuse(refusal)
        except BaseException as error:
            self._front.options.on_error(error)
            self._refuse(Refusal(500, "internal error"))
            raise
        else:
            self._hand_on(admission, bytes(self._head), end)

    def _hand_on(self, admission: tuple[Wire, str] | None, data: bytes, end: int) -> None:
        assert self._visit is not None
        assert self._timer is not None
        self._timer.cancel()
        self._visit.is_settled = True
        if admission is None:
            _HttpConnection(self._front, self._visit).take_over(self._transport, data)
        else:
            self._front.open(admission, data[end + 4 :], self._visit)

    def _refuse(self, refusal: Refusal) -> None:
        """Answer, then wait a little for the peer to close: closing first may cut the answer."""
        self._front.refused[refusal.reason] += 1
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

    def _turn_away(self, refusal: Refusal) -> None:
        """Refuse a connection past a cap, at no more cost than a short while."""
        self._is_lingering = self._front.may_linger()
        if self._is_lingering:
            self._refuse(refusal)
        else:
            self._front.refused[refusal.reason] += 1
            self._phase = REFUSED
            self._transport.abort()

    def _too_slow(self) -> None:
        self._front.refused["head timeout"] += 1
        self._phase = REFUSED
        self._transport.write(response_to(Refusal(408, "request head took too long")))
        self._transport.close()


class _TlsArrival(asyncio.Protocol):
    """A connection that is counted before it may spend our time on a TLS handshake.

    A server of the loop would do the handshake first and tell us of the connection after it. And
    `start_tls` is no help: uvloop reads, whatever one does, before it can be called.
    """

    __slots__ = ("_front",)

    def __init__(self, front: Front) -> None:
        self._front = front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain = cast("asyncio.Transport", transport)
        try:
            visit = self._front.enter(_address(plain.get_extra_info("peername")))
        except Refusal as refusal:
            self._front.refused[refusal.reason] += 1
        else:
            # The transport goes and the connection stays, by a second handle on the socket.
            sock = socket.socket(fileno=os.dup(plain.get_extra_info("socket").fileno()))
            handshake = asyncio.get_running_loop().create_task(self._secure(sock, visit))
            self._front.keep_handshake(handshake)
        plain.abort()

    async def _secure(self, sock: socket.socket, visit: _Visit) -> None:
        sock.setblocking(False)  # noqa: FBT003 - the only parameter
        arrival = _Arrival(self._front, visit)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: arrival,
                sock,
                ssl=self._front.options.tls,
                ssl_handshake_timeout=self._front.options.limits.head_ms / 1000,
                ssl_shutdown_timeout=TLS_SHUTDOWN_S,
            )
        except OSError:
            self._front.refused["tls handshake"] += 1
        finally:
            if visit.transport is None:
                visit.leave()


class _HttpConnection(asyncio.Protocol):
    """A connection that aiohttp serves; in between to know its end, and for a late upgrade."""

    __slots__ = ("_ends_with", "_front", "_handler", "_visit")

    def __init__(self, front: Front, visit: _Visit) -> None:
        self._front = front
        self._visit = visit
        self._handler = front.http()
        # The last bytes that were read.
        self._ends_with = b""

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        transport.set_protocol(self)
        # Before the bytes are fed: the handler may want to pause again.
        transport.resume_reading()
        self._handler.connection_made(transport)
        self.data_received(data)

    def upgrade(self, request: web.BaseRequest) -> web.StreamResponse:
        """Open a WebSocket on a kept-alive connection, as proxies and connection pools ask for.

        To aiohttp this looks like a peer that has gone; the response it gets goes nowhere.
        """
        transport = self._visit.transport
        assert transport is not None
        if transport.is_closing():
            return web.Response()
        if self._ends_with != b"\r\n\r\n":
            return self._refuse(Refusal(400, "data before the upgrade was answered"))
        try:
            admission = self._front.admit(_raw_head(request), transport)
        except Refusal as refusal:
            return self._refuse(refusal)
        except BaseException as error:
            self._front.options.on_error(error)
            raise
        assert admission is not None
        self._handler.transport = None
        self._handler.connection_lost(None)
        transport.pause_reading()
        self._front.open(admission, b"", self._visit)
        return web.Response()

    def _refuse(self, refusal: Refusal) -> web.StreamResponse:
        self._front.refused[refusal.reason] += 1
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
        self._visit.leave()
        self._handler.connection_lost(exc)


def _raw_head(request: web.BaseRequest) -> bytes:
    """Return a request that aiohttp has parsed as it came."""
    version = f"HTTP/{request.version.major}.{request.version.minor}"
    lines = [f"{request.method} {request.raw_path} {version}".encode()]
    lines += [name + b": " + value for name, value in request.raw_headers]
    return b"\r\n".join(lines)


def _address(name: tuple[str, int] | None) -> str:
    """Return the address of a socket's name; IPv4 seen through IPv6 as what it is."""
    return name[0].removeprefix("::ffff:") if name else ""


def _cap_key(remote: str) -> str:
    """Return what one caller is counted by: an IPv4 address, or the network of an IPv6 one."""
    return ipaddress.IPv6Address(remote).packed[:8].hex() if ":" in remote else remote
