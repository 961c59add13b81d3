"""The fault-injecting proxy: its faults, and that it loses no byte of a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from lingua_bench.chaos.process import free_port
from lingua_bench.chaos.proxy import CRUMBS_MAX, HEALTHY, Faults, Proxy, open_proxy
from servers import until

pytestmark = pytest.mark.unit

BOUND_S = 30.0
# Long enough for anything on loopback that is not delayed.
MOMENT_S = 0.2
SAID = bytes(range(256)) * 40
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S):
            await scenario()

    asyncio.run(bounded())


class Target:
    """A server that keeps the pieces it reads and the connections it has."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.connections: list[Streams] = []
        self.ended: list[type[BaseException] | None] = []
        self.came = asyncio.Event()

    @property
    def read(self) -> bytes:
        return b"".join(self.pieces)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append((reader, writer))
        self.came.set()
        try:
            while piece := await reader.read(65_536):
                self.pieces.append(piece)
            self.ended.append(None)
        except OSError as error:
            self.ended.append(type(error))
        finally:
            writer.close()


@asynccontextmanager
async def rig() -> AsyncIterator[tuple[Proxy, Target, Streams]]:
    target = Target()
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
    async with server, open_proxy(server.sockets[0].getsockname()[1], seed=7) as proxy:
        client = await asyncio.open_connection("127.0.0.1", proxy.port)
        await target.came.wait()
        try:
            yield proxy, target, client
        finally:
            client[1].close()


def test_without_faults_everything_passes_both_ways_and_an_end_is_an_end() -> None:
    async def scenario() -> None:
        async with rig() as (_, target, (reader, writer)):
            writer.write(SAID)
            await until(lambda: target.read == SAID, BOUND_S, "it came")
            answer = target.connections[0][1]
            answer.write(b"heard")
            answer.write_eof()
            assert await reader.read() == b"heard"
            await until(lambda: target.ended == [None], BOUND_S, "it came")

    run(scenario)


def test_a_late_connection_is_late_and_keeps_its_order_whatever_the_jitter() -> None:
    async def scenario() -> None:
        async with rig() as (proxy, target, (_, writer)):
            proxy.faults = Faults(latency_ms=150, jitter_ms=100)
            began = monotonic()
            for start in range(0, len(SAID), 1024):
                writer.write(SAID[start : start + 1024])
                await asyncio.sleep(0.003)
            await until(lambda: bool(target.pieces), BOUND_S, "it came")
            assert monotonic() - began >= 0.15
            await until(lambda: len(target.read) == len(SAID), BOUND_S, "it came")
            assert target.read == SAID
            assert proxy.delayed > 1

    run(scenario)


def test_crumbs_are_single_bytes_at_the_beginning_of_what_was_sent() -> None:
    async def scenario() -> None:
        async with rig() as (proxy, target, (_, writer)):
            proxy.faults = Faults(crumbs=True)
            writer.write(SAID)
            await until(lambda: target.read == SAID, BOUND_S, "it came")
            # The receiver may find two or three together; never the whole.
            assert sum(len(piece) <= 4 for piece in target.pieces) > CRUMBS_MAX / 8

    run(scenario)


def test_a_deaf_lane_holds_back_one_way_only_and_delivers_when_healed() -> None:
    async def scenario() -> None:
        async with rig() as (proxy, target, (reader, writer)):
            proxy.faults = Faults(deaf=frozenset({"up"}))
            writer.write(SAID)
            target.connections[0][1].write(b"the other way")
            assert await reader.readexactly(13) == b"the other way"
            await asyncio.sleep(MOMENT_S)
            assert target.read == b""
            proxy.faults = HEALTHY
            await until(lambda: target.read == SAID, BOUND_S, "it came")

    run(scenario)


def test_a_reset_cuts_both_sides_off_and_new_connections_pass_once_healed() -> None:
    async def scenario() -> None:
        async with rig() as (proxy, target, (reader, writer)):
            proxy.faults = Faults(reset_s=0.05)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            await until(lambda: target.ended == [ConnectionResetError], BOUND_S, "it came")
            assert proxy.resets == 1
            writer.close()
            proxy.faults = HEALTHY
            _, again = await asyncio.open_connection("127.0.0.1", proxy.port)
            again.write(b"once more")
            await until(lambda: target.read == b"once more", BOUND_S, "it came")
            again.close()

    run(scenario)


def test_a_connection_is_closed_when_nobody_listens_behind_the_proxy() -> None:
    async def scenario() -> None:
        async with open_proxy(free_port()) as proxy:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_a_deaf_lane_takes_only_so_much_and_then_the_sender_must_wait() -> None:
    async def scenario() -> None:
        async with rig() as (proxy, target, (_, writer)):
            proxy.faults = Faults(deaf=frozenset({"up"}))
            much = bytes(32 << 20)
            writer.write(much)
            sending = asyncio.create_task(writer.drain())
            done, _ = await asyncio.wait([sending], timeout=MOMENT_S)
            assert not done, "32 MB fit into nobody's buffers"
            proxy.faults = HEALTHY
            await sending
            await until(lambda: len(target.read) == len(much), BOUND_S, "it came")

    run(scenario)
