"""SIGTERM under load: everything that was accepted has its outcome before the scheduler ends.

Real processes: the scheduler with its private store, and nodes. The clients are in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import servers
from lingua_bench.chaos.scheduler_process import SchedulerProcess
from stress.raw_client import Pace, RawClient
from stress.serving import BOUND_S, data_dir, serving_with_nodes
from stress.test_embedded_kills import nothing_is_left

pytestmark = pytest.mark.stress

SESSIONS = 12
BUSY = Pace(window=6, pause_s=0.03)


async def keep_speaking(client: RawClient) -> None:
    """Speak until the socket is closed; clients with an even number stop at a `go_away`."""
    with contextlib.suppress(aiohttp.ClientError):
        while not (client.went_away and client.number % 2 == 0):
            await client.speak(1)


def of_kind(history: list[tuple[Any, ...]], event: str) -> set[tuple[int, int]]:
    """Return which session's utterances an event is about."""
    return {(number, rest[0]) for _, number, name, *rest in history if name == event}


def is_loaded(history: list[tuple[Any, ...]]) -> bool:
    """Tell whether much was answered and something accepted is still in progress."""
    accepted, ended = of_kind(history, "accepted"), of_kind(history, "outcome")
    return len(ended) > 100 and not accepted <= ended


async def refuses_connections(server: SchedulerProcess) -> bool:
    async with aiohttp.ClientSession() as http:
        try:
            socket = await http.ws_connect(server.client_url())
        except aiohttp.ClientError:
            return True
        await socket.close()
        return False


def test_sigterm_under_load_finishes_all_that_was_accepted_and_then_says_come_back() -> None:
    asyncio.run(drained())


async def drained() -> None:
    history: list[tuple[Any, ...]] = []
    # The last one is a client of the older protocol.
    clients = [
        RawClient(n, BUSY, lambda *line: history.append(line), is_old=n == SESSIONS - 1)
        for n in range(SESSIONS)
    ]
    with tempfile.TemporaryDirectory(prefix="live-") as directory:
        place = Path(directory)
        async with serving_with_nodes(place, work_ms=(50, 600)) as server:
            async with aiohttp.ClientSession() as http:
                for client in clients:
                    await client.begin(http, server.client_url())
                listening = [asyncio.create_task(client.listen()) for client in clients]
                speaking = [asyncio.create_task(keep_speaking(client)) for client in clients]
                await servers.until(lambda: is_loaded(history), BOUND_S, "there is load")
                before = len(history)
                stopping = asyncio.create_task(server.stop())
                await servers.until(
                    lambda: any(client.went_away for client in clients), BOUND_S, "go_away"
                )
                assert await refuses_connections(server)
                await asyncio.wait_for(asyncio.gather(*listening), BOUND_S)
                for task in speaking:
                    task.cancel()
                await asyncio.gather(*speaking, return_exceptions=True)
            async with asyncio.timeout(BOUND_S):
                assert await stopping == 0
        await nothing_is_left(data_dir(place))
    assert_finished(clients, history, before)


def assert_finished(clients: list[RawClient], history: list[tuple[Any, ...]], before: int) -> None:
    assert [client.close_code for client in clients] == [1001] * SESSIONS
    assert [client.went_away for client in clients] == [True] * (SESSIONS - 1) + [False]
    accepted, ended = of_kind(history, "accepted"), of_kind(history, "outcome")
    assert accepted <= ended
    # Something was in progress, and the clients that went on speaking received an error.
    assert of_kind(history[:before], "accepted") - of_kind(history[:before], "outcome")
    assert any(rest[:1] == ["SESSION_CLOSED"] for _, _, event, *rest in history if event == "error")
    # The old client receives no acceptances: what it had sent before must be answered.
    sent = {key for key in of_kind(history[:before], "sent") if key[0] == SESSIONS - 1}
    refused = {(n, rest[1]) for _, n, event, *rest in history if event == "error"}
    assert sent <= ended | refused
