"""A TCP listener with an echoing WebSocket and a small HTTP site, and raw, misbehaving peers."""

from __future__ import annotations

import asyncio
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvloop
from aiohttp import web

from lingua_scheduler.edge.tcp_listener import (
    ConnectionLimits,
    ListenerOptions,
    RequestHead,
    SocketRoute,
    TcpListener,
    start_listener,
)
from lingua_scheduler.edge.websocket import WebSocket, WebSocketLimits

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = {
    "Host": "127.0.0.1",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": KEY,
}
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
PATIENCE_S = 30


def run(scenario: Coroutine[Any, Any, None], loop: str = "uvloop") -> None:
    """Run a scenario on the named kind of loop, within a bound."""
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(asyncio.wait_for(scenario, 60))


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until the condition holds; fail if it never does."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - the conditions are other objects' fields
            await asyncio.sleep(0.005)


@dataclass(eq=False)
class Echo:
    """Echoes every message, and records all of them."""

    wire: WebSocket
    head: RequestHead
    got: list[bytes] = field(default_factory=list)
    losses: int = 0

    def text(self, data: bytes) -> None:
        self.got.append(data)
        self.wire.send_text(data)

    def binary(self, data: bytes) -> None:
        self.got.append(data)
        self.wire.send_binary(data)

    def lost(self) -> None:
        self.losses += 1


@dataclass
class Door:
    """A front that serves, and everyone it let in."""

    front: TcpListener
    guests: list[Echo]
    errors: list[BaseException]

    @property
    def port(self) -> int:
        return self.front.port


async def size_of_body(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def hello(request: web.Request) -> web.Response:
    return web.Response(text=f"hello {request.path_qs}")


@asynccontextmanager
async def a_door(
    *,
    limits: WebSocketLimits | None = None,
    accept: Callable[[WebSocket, RequestHead], Any] | None = None,
    limits_of_front: ConnectionLimits | None = None,
    **options: Any,
) -> AsyncIterator[Door]:
    """Serve /ws (echo unless told otherwise) and a site, and check that nothing is left behind."""
    guests: list[Echo] = []
    errors: list[BaseException] = []

    def welcome(wire: WebSocket, head: RequestHead) -> Echo:
        guests.append(Echo(wire, head))
        return guests[-1]

    app = web.Application(client_max_size=1 << 20)
    app.router.add_get("/{tail:.*}", hello)
    app.router.add_post("/size", size_of_body)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    assert runner.server is not None
    route = SocketRoute(accept or welcome, limits or WebSocketLimits(), ("lingua.b", "lingua.a"))
    front = await start_listener(
        "127.0.0.1",
        0,
        sockets={"/ws": route},
        http=runner.server,
        options=ListenerOptions(
            limits_of_front or ConnectionLimits(), on_error=errors.append, **options
        ),
    )
    try:
        yield Door(front, guests, errors)
    finally:
        await front.close()
        await runner.cleanup()
    assert front.connections == 0
    assert not front.websockets
    assert all(guest.losses == 1 for guest in guests)


@dataclass
class Peer:
    """A client of raw sockets, which sends exactly the given bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, port: int, tls: ssl.SSLContext | None = None) -> Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=tls))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def request(self, path: str = "/ws", method: str = "GET", **changed: str | None) -> None:
        """Send an upgrade request with these headers changed (`_` for `-`) or left out (None)."""
        headers: dict[str, str | None] = {**UPGRADE}
        for name, value in changed.items():
            headers[name.replace("_", "-")] = value
        lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
        self.send("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "\r\n"]).encode("latin-1"))

    async def answer(self) -> tuple[int, dict[str, str]]:
        """Read a response head."""
        async with asyncio.timeout(PATIENCE_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = raw.decode("latin-1").strip().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        return int(status.split()[1]), {name.lower(): value for name, value in headers.items()}

    async def body(self, headers: dict[str, str]) -> str:
        return (await self.reader.readexactly(int(headers["content-length"]))).decode()

    async def upgrade(self, **changed: str | None) -> dict[str, str]:
        """Open the WebSocket; return the headers of the answer."""
        self.request("/ws", "GET", **changed)
        status, headers = await self.answer()
        assert status == 101, status
        return headers

    def frame(self, kind: int, data: bytes = b"", *, fin: bool = True, rsv: int = 0) -> None:
        self.send(masked(kind, data, fin=fin, rsv=rsv))

    async def hear(self) -> tuple[int, bytes]:
        """Read one frame."""
        async with asyncio.timeout(PATIENCE_S):
            first, second = await self.reader.readexactly(2)
            size = second & 127
            if size > 125:
                count = 2 if size == 126 else 8
                size = int.from_bytes(await self.reader.readexactly(count), "big")
            return first & 15, await self.reader.readexactly(size)

    async def hear_close(self) -> tuple[int, str]:
        """Read frames until the close frame; return its code and reason."""
        while True:
            kind, data = await self.hear()
            if kind == CLOSE:
                return int.from_bytes(data[:2], "big"), data[2:].decode()

    async def ended(self) -> bytes:
        """Read until the other side has ended the connection; return the rest."""
        rest = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            with suppress(ConnectionError):  # a reset is an end too
                while data := await self.reader.read(65536):
                    rest += data
        return bytes(rest)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):  # the other side was first
            await self.writer.wait_closed()


def masked(kind: int, data: bytes, *, fin: bool = True, rsv: int = 0) -> bytes:
    """Return a client's frame, masked with zeros."""
    first = (fin << 7) | (rsv << 4) | kind
    if len(data) < 126:
        return struct.pack(">BB4x", first, 128 | len(data)) + data
    if len(data) < 65536:
        return struct.pack(">BBH4x", first, 254, len(data)) + data
    return struct.pack(">BBQ4x", first, 255, len(data)) + data


@asynccontextmanager
async def a_peer(door: Door, **changed: str | None) -> AsyncIterator[Peer]:
    """Give a peer whose WebSocket is open."""
    peer = await Peer.connect(door.port)
    try:
        await peer.upgrade(**changed)
        yield peer
    finally:
        await peer.close()
