"""A TCP proxy that harms connections as networks do: late, byte by byte, reset, one way silent.

Every connection has two lanes, `up` to the target and `down` from it. `faults` may change at any
time and holds for open and new connections. Bytes are never lost or reordered inside a connection,
as in TCP: a silent lane delivers once it is healed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Lane = Literal["up", "down"]
# The connections of a scheduler that a proxy can be put into.
ProxiedLink = Literal["client", "node", "store"]
READ_BYTES: Final = 65_536
# How much may wait in a lane; beyond that the sender is not read any more.
LANE_BYTES_MAX: Final = 1 << 20
# So much of each piece is sent byte by byte: headers and lengths are at its beginning.
CRUMBS_MAX: Final = 48
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of every connection."""

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    # The beginning of every piece is sent byte by byte.
    crumbs: bool = False
    # Connections are reset after about so long.
    reset_s: float = 0.0
    # Lanes that deliver nothing.
    deaf: frozenset[Lane] = frozenset()


HEALTHY: Final = Faults()


class Proxy:
    """Listens on a port of 127.0.0.1 and forwards to another port."""

    def __init__(self, target: int, seed: int = 0) -> None:
        self._target = target
        self._chance = Random(seed)
        self._faults = HEALTHY
        # Set whenever the faults change, for lanes that wait.
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        # Counts of the harm, so that a run can tell whether there was any.
        self.accepted = 0
        self.resets = 0
        self.delayed = 0

    @property
    def faults(self) -> Faults:
        """The current faults."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self._faults = faults
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def port(self) -> int:
        """Return the port to connect to."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def open(self, port: int = 0) -> None:
        """Start to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def close(self) -> None:
        """End every connection and stop listening."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def wait_for_change(self, seconds: float | None = None) -> None:
        """Wait until the faults change, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def delay_s(self) -> float:
        """Return the delay of the next piece."""
        faults = self._faults
        return (faults.latency_ms + self._chance.uniform(0, faults.jitter_ms)) / 1000

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.accepted += 1
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            pass  # only `close` cancels, and it waits for this end
        finally:
            self._connections.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            above, below = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            return
        _send_at_once(writer)
        _send_at_once(below)
        waits = [
            asyncio.create_task(self._until_reset()),
            asyncio.create_task(_LaneFlow(self, "up").run(reader, below)),
            asyncio.create_task(_LaneFlow(self, "down").run(above, writer)),
        ]
        try:
            # When one lane ends, the other one soon ends, too.
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if waits[0].done():
                _reset(writer)
                _reset(below)
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
            below.close()

    async def _until_reset(self) -> None:
        while True:
            every_s = self._faults.reset_s
            if not every_s:
                await self.wait_for_change()
                continue
            await self.wait_for_change(self._chance.uniform(0.5, 1.5) * every_s)
            if self._faults.reset_s == every_s:
                self.resets += 1
                return


class _LaneFlow:
    """One direction of one connection."""

    def __init__(self, proxy: Proxy, lane: Lane) -> None:
        self._proxy = proxy
        self._lane = lane
        # (when it is due, bytes), oldest first; None: the sender has ended.
        self._waiting: deque[tuple[float, bytes | None]] = deque()
        self._size = 0
        # Set when something has come, and when something was delivered.
        self._come = asyncio.Event()
        self._taken = asyncio.Event()

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward until either side ends."""
        reading = asyncio.create_task(self._read(reader))
        try:
            await self._write(writer)
        except OSError:
            return
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        due = 0.0
        data: bytes | None = b""
        while data is not None:
            while self._size > LANE_BYTES_MAX:
                self._taken.clear()
                await self._taken.wait()
            try:
                data = await reader.read(READ_BYTES) or None
            except OSError:
                data = None
            delay_s = self._proxy.delay_s()
            self._proxy.delayed += delay_s > 0
            # Later pieces never overtake, whatever the jitter.
            due = max(due, monotonic() + delay_s)
            self._waiting.append((due, data))
            self._size += len(data or b"")
            self._come.set()

    async def _write(self, writer: asyncio.StreamWriter) -> None:
        while True:
            while not self._waiting:
                self._come.clear()
                await self._come.wait()
            due, data = self._waiting.popleft()
            if (left_s := due - monotonic()) > 0:
                await asyncio.sleep(left_s)
            while self._lane in self._proxy.faults.deaf:
                await self._proxy.wait_for_change()
            if data is None:
                return
            self._size -= len(data)
            self._taken.set()
            await self._deliver(data, writer)

    async def _deliver(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        if self._proxy.faults.crumbs:
            crumbs, data = data[:CRUMBS_MAX], data[CRUMBS_MAX:]
            for place in range(len(crumbs)):
                writer.write(crumbs[place : place + 1])
                await asyncio.sleep(0)  # else the event loop would join them again
        writer.write(data)
        await writer.drain()


@contextlib.asynccontextmanager
async def open_proxy(target: int, seed: int = 0, port: int = 0) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a port."""
    proxy = Proxy(target, seed)
    await proxy.open(port)
    try:
        yield proxy
    finally:
        await proxy.close()


def _send_at_once(writer: asyncio.StreamWriter) -> None:
    _socket_of(writer).setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection."""
    if not writer.transport.is_closing():
        _socket_of(writer).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()


def _socket_of(writer: asyncio.StreamWriter) -> socket.socket:
    found: socket.socket = writer.get_extra_info("socket")
    return found
