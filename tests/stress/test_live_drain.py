"""SIGTERM under load, and a client that does not read: nobody else loses anything.

Real processes: the scheduler with its private store, nodes, and clients in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import pytest

import servers
from stress.live_cast import NodeKind, Scheduler, Talker, cradle, scheduler
from stress.live_load import QUICK
from stress.test_embedded_kills import nothing_is_left

pytestmark = pytest.mark.stress

BOUND_S = 30.0
SESSIONS = 12
BUSY = replace(QUICK, sessions=SESSIONS, pause_s=0.03, window=6)
CALM = replace(QUICK, sessions=6, pause_s=0.02, window=1)
# Results that fill a socket, and what a client may leave of them unread.
SPEECH_BYTES, UNREAD_BYTES = 64 * 1024, 256 * 1024
SLOW_READER = 4408


@contextlib.asynccontextmanager
async def serving(place: Path, kind: NodeKind, **settings: str) -> AsyncIterator[Scheduler]:
    """Run a scheduler with two nodes that are ready."""
    async with (
        scheduler(place, **settings) as server,
        cradle(server.ws("/ws/node"), place, kind) as nodes,
    ):
        for name in ("a", "b"):
            await nodes.start(name)
        await servers.until(lambda: server.ready_nodes() == 2, BOUND_S, "nodes are ready")
        yield server


async def keep_talking(talker: Talker) -> None:
    """Speak until the socket is gone; those with an even number heed a `go_away`."""
    with contextlib.suppress(aiohttp.ClientError):
        while not (talker.went_away and talker.number % 2 == 0):
            await talker.speak(1)


def of_kind(history: list[tuple[Any, ...]], event: str) -> set[tuple[int, int]]:
    """Return which session's utterances an event is about."""
    return {(number, rest[0]) for _, number, name, *rest in history if name == event}


async def refuses_visitors(server: Scheduler) -> bool:
    async with aiohttp.ClientSession() as http:
        try:
            visit = await http.ws_connect(server.ws("/ws/session"))
        except aiohttp.ClientError:
            return True
        await visit.close()
        return False


def test_sigterm_under_load_finishes_all_that_was_accepted_and_then_says_come_back() -> None:
    asyncio.run(drained())


async def drained() -> None:
    history: list[tuple[Any, ...]] = []
    # The last one is a client of the older protocol.
    talkers = [
        Talker(n, BUSY, lambda *line: history.append(line), is_old=n == SESSIONS - 1)
        for n in range(SESSIONS)
    ]
    with tempfile.TemporaryDirectory(prefix="live-") as directory:
        place = Path(directory)
        async with serving(place, NodeKind(64, 50, 600)) as server:
            async with aiohttp.ClientSession() as http:
                for talker in talkers:
                    await talker.begin(http, server.ws("/ws/session"))
                listening = [asyncio.create_task(talker.listen()) for talker in talkers]
                talking = [asyncio.create_task(keep_talking(talker)) for talker in talkers]
                await servers.until(
                    lambda: len(of_kind(history, "outcome")) > 100, BOUND_S, "load is there"
                )
                before = len(history)
                server.process.send_signal(signal.SIGTERM)
                await servers.until(
                    lambda: any(talker.went_away for talker in talkers), BOUND_S, "go_away"
                )
                assert await refuses_visitors(server)
                await asyncio.wait_for(asyncio.gather(*listening), BOUND_S)
                for task in talking:
                    task.cancel()
                await asyncio.gather(*talking, return_exceptions=True)
            async with asyncio.timeout(BOUND_S):
                assert await server.process.wait() == 0
        await nothing_is_left(place / "data")
    assert_finished(talkers, history, before)


def assert_finished(talkers: list[Talker], history: list[tuple[Any, ...]], before: int) -> None:
    assert [talker.close_code for talker in talkers] == [1001] * SESSIONS
    assert [talker.went_away for talker in talkers] == [True] * (SESSIONS - 1) + [False]
    accepted, ended = of_kind(history, "accepted"), of_kind(history, "outcome")
    assert accepted <= ended
    # Something was under way, and who would not stop talking was told that it is not heard.
    assert of_kind(history[:before], "accepted") - of_kind(history[:before], "outcome")
    assert any(rest[:1] == ["SESSION_CLOSED"] for _, _, event, *rest in history if event == "error")
    # The old client is told of no acceptance: what it had sent before must be answered.
    sent = {key for key in of_kind(history[:before], "sent") if key[0] == SESSIONS - 1}
    turned_away = {(n, rest[1]) for _, n, event, *rest in history if event == "error"}
    assert sent <= ended | turned_away


def test_a_client_that_stops_reading_is_dropped_and_the_others_do_not_notice() -> None:
    asyncio.run(slow_reader_dropped())


async def slow_reader_dropped() -> None:
    kind = NodeKind(64, 5, 10, tts_bytes=SPEECH_BYTES)
    unread = {"LINGUA_SERVER__UNREAD_BYTES_MAX": str(UNREAD_BYTES)}
    with tempfile.TemporaryDirectory(prefix="live-") as directory:
        async with (
            serving(Path(directory), kind, **unread) as server,
            aiohttp.ClientSession() as http,
        ):
            others = [Talker(n, CALM, lambda *_: None) for n in range(CALM.sessions)]
            slow = Talker(3, CALM, lambda *_: None)
            for talker in (*others, slow):
                await talker.begin(http, server.ws("/ws/session"))
            listening = [asyncio.create_task(talker.listen()) for talker in others]
            await all_speak(others, 30)
            alone = [took for talker in others for took in talker.latencies]
            for talker in others:
                talker.latencies.clear()
            await stall(slow, others, server)
            # It reads again: what was on its way, then why it was dropped, if it comes within the
            # second that the scheduler waits for that.
            await asyncio.wait_for(slow.listen(), BOUND_S)
            assert slow.close_code in (SLOW_READER, aiohttp.WSCloseCode.ABNORMAL_CLOSURE)
            closed = (await server.metrics())[f'scheduler_closes_total{{code="{SLOW_READER}"}}']
            assert closed == 1
            beside = [took for talker in others for took in talker.latencies]
            print(f"median alone {median(alone):.4f} s, beside a slow reader {median(beside):.4f}")
            # Loosely: beside a server that waits for its reader they would get nothing at all.
            assert median(beside) < 10 * median(alone) + 0.5
            await all_speak(others, 5)
            assert not any(talker.close_code for talker in others)
            for task in listening:
                task.cancel()
            assert (await server.metrics())["scheduler_internal_errors_total"] == 0


async def all_speak(talkers: list[Talker], count: int) -> None:
    async def one(talker: Talker) -> None:
        await talker.speak(count)
        await talker.until(lambda: not talker.open)

    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(one(talker) for talker in talkers))


async def stall(slow: Talker, others: list[Talker], server: Scheduler) -> None:
    """Have it speak among the others and never read, until the scheduler has parted with it."""
    held = slow.socket.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    connected = (await server.metrics())['scheduler_connections{kind="session"}']
    async with asyncio.timeout(BOUND_S):
        index = 0
        while (await server.metrics())['scheduler_connections{kind="session"}'] == connected:
            await slow.utter(index, ("en",))
            await all_speak(others, 1)
            index += 1
