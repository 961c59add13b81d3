"""The producer and its readers, over real sockets where one matters; the source is scripted."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from edge.console_states import NOW_MS, node, whole_state
from edge.live_server import until
from lingua_scheduler.auth.gate import TokenGate
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.console.documents import ConsoleState
from lingua_scheduler.edge.console.feed import BEHIND_MAX, READERS_MAX, ConsoleFeed, FeedReader
from lingua_scheduler.edge.console.pages import ConsolePages
from lingua_scheduler.edge.guard import Guard
from lingua_scheduler.metrics import LiveMetrics
from lingua_scheduler.tasks import Tasks

pytestmark = pytest.mark.unit


class Source:
    """States that differ in everything that is large."""

    def __init__(self, nodes: int = 1) -> None:
        self._nodes = nodes
        self.read_count = 0

    async def read(self) -> ConsoleState:
        self.read_count += 1
        nodes = {
            f"n{number}": node(f"n{number}", leased=self.read_count)
            for number in range(self._nodes)
        }
        return whole_state(at_ms=NOW_MS + self.read_count, nodes=nodes)


class Play:
    def __init__(self, nodes: int = 1) -> None:
        self.errors: list[BaseException] = []
        self.tasks = Tasks(self.errors.append)
        self.metrics = LiveMetrics()
        self.source = Source(nodes)
        self.feed = ConsoleFeed(self.source, self.tasks, self.metrics, period_s=0.005)

    def reader(self) -> FeedReader:
        made = FeedReader(None, lambda: None)
        self.feed.join(made)
        return made

    @property
    def dropped(self) -> float:
        return self.metrics.sockets.console_readers_dropped_total.value


def run(scenario: Callable[[Play], Awaitable[None]], nodes: int = 1) -> None:
    async def whole() -> None:
        play = Play(nodes)
        async with asyncio.timeout(60):
            await scenario(play)
            await play.tasks.end()
        assert play.errors == []

    asyncio.run(whole())


def test_a_reader_gets_the_whole_state_then_updates_and_all_share_the_bytes() -> None:
    async def scenario(play: Play) -> None:
        one, two = play.reader(), play.reader()
        first = await one.next()
        assert first is not None
        assert first.startswith(b"event: snapshot\ndata: {")
        assert first.endswith(b"}\n\n")
        assert await two.next() is first
        update = await one.next()
        assert update is not None
        assert update.startswith(b"event: update\n")
        assert await two.next() is update
        late = play.reader()
        greeting = await late.next()
        assert greeting is not None
        assert greeting.startswith(b"event: snapshot\n")

    run(scenario)


def test_nothing_is_read_while_nobody_reads() -> None:
    async def scenario(play: Play) -> None:
        reader = play.reader()
        await reader.next()
        play.feed.leave(reader)
        await until(lambda: len(play.tasks) == 0, "the producer ends")
        seen = play.source.read_count
        again = play.reader()
        event = await again.next()
        assert event is not None
        assert event.startswith(b"event: snapshot\n")
        assert play.source.read_count == seen + 1

    run(scenario)


def test_a_reader_that_is_behind_is_dropped_and_others_are_not() -> None:
    async def scenario(play: Play) -> None:
        aborted: list[bool] = []
        slow = FeedReader(None, lambda: aborted.append(True))
        play.feed.join(slow)
        fast = play.reader()
        while not aborted:
            assert await fast.next() is not None
        assert await slow.next() is None
        assert (slow.why_ended, play.dropped, fast.is_open) == ("too slow", 1, True)
        assert play.feed.produced >= BEHIND_MAX

    run(scenario)


def test_readers_are_bounded_and_counted() -> None:
    async def scenario(play: Play) -> None:
        for _ in range(READERS_MAX):
            assert not play.feed.is_full
            play.reader()
        assert play.feed.is_full
        text = play.metrics.render()
        assert b"scheduler_console_readers %d\n" % READERS_MAX in text

    run(scenario)


def test_the_end_of_the_process_ends_the_streams() -> None:
    async def scenario(play: Play) -> None:
        reader = play.reader()
        await reader.next()
        play.feed.close()
        while await reader.next() is not None:
            pass
        assert (reader.why_ended, play.feed.is_full) == ("going away", True)

    run(scenario)


@asynccontextmanager
async def served(play: Play) -> AsyncIterator[int]:
    """Serve the stream on a free port."""
    settings = load_settings(None, {})
    gate = TokenGate(settings)
    [route] = ConsolePages(play.feed, Guard(settings.server, gate), gate).routes
    app = web.Application()
    app.router.add_get(route.path, route.handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        play.feed.close()
        await runner.cleanup()


def test_a_socket_that_is_not_read_is_closed_and_the_others_go_on() -> None:
    async def scenario(play: Play) -> None:
        async with served(play) as port, aiohttp.ClientSession() as http:
            with socket.socket() as lazy:
                lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                lazy.connect(("127.0.0.1", port))
                lazy.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                url = f"http://127.0.0.1:{port}/api/v1/events"
                async with http.get(url) as answer:
                    while not play.dropped:
                        assert await answer.content.readany()
                    await until(lambda: len(play.feed) == 1, "the slow reader is forgotten")
                    seen = play.feed.produced
                    while play.feed.produced < seen + 3:
                        assert await answer.content.readany()
            assert play.dropped == 1

    # So much that the kernel cannot keep it for a peer that does not read.
    run(scenario, nodes=400)


def test_a_client_that_leaves_is_forgotten() -> None:
    async def scenario(play: Play) -> None:
        async with served(play) as port, aiohttp.ClientSession() as http:
            async with http.get(f"http://127.0.0.1:{port}/api/v1/events") as answer:
                assert await answer.content.readline() == b"event: snapshot\n"
            await until(lambda: len(play.feed) == 0, "the reader is forgotten")
            await until(lambda: len(play.tasks) == 0, "nothing is produced")
            assert play.dropped == 0

    run(scenario)
