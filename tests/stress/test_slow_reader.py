"""A client that does not read is disconnected, and the others lose nothing.

Real processes: the scheduler with its private store, and nodes. The clients are in this process.
"""

from __future__ import annotations

import asyncio
import socket
import tempfile
from pathlib import Path
from statistics import median

import aiohttp
import pytest

from lingua_bench.chaos.scheduler_process import SchedulerProcess
from stress.raw_client import Pace, RawClient
from stress.serving import BOUND_S, metrics_of, serving_with_nodes

pytestmark = pytest.mark.stress

SESSIONS = 6
CALM = Pace(window=1, pause_s=0.02)
# Results that fill a socket, and how much a client may leave unread.
SPEECH_BYTES, UNREAD_BYTES = 64 * 1024, 256 * 1024
SLOW_READER = 4408


def test_a_client_that_stops_reading_is_dropped_and_the_others_do_not_notice() -> None:
    asyncio.run(slow_reader_dropped())


async def slow_reader_dropped() -> None:
    unread = {"LINGUA_SERVER__UNREAD_BYTES_MAX": str(UNREAD_BYTES)}
    with tempfile.TemporaryDirectory(prefix="live-") as directory:
        async with (
            serving_with_nodes(
                Path(directory), work_ms=(5, 10), speech_bytes=SPEECH_BYTES, settings=unread
            ) as server,
            aiohttp.ClientSession() as http,
        ):
            others = [RawClient(n, CALM, lambda *_: None) for n in range(SESSIONS)]
            slow = RawClient(3, CALM, lambda *_: None)
            for client in (*others, slow):
                await client.begin(http, server.client_url())
            listening = [asyncio.create_task(client.listen()) for client in others]
            await all_speak(others, 30)
            alone = [took for client in others for took in client.latencies]
            for client in others:
                client.latencies.clear()
            await stall(slow, others, server)
            # It reads again: the results in transit, then why it was dropped, if that arrives
            # within the second that the scheduler waits for it.
            await asyncio.wait_for(slow.listen(), BOUND_S)
            assert slow.close_code in (SLOW_READER, aiohttp.WSCloseCode.ABNORMAL_CLOSURE)
            closed = (await metrics_of(server))[f'scheduler_closes_total{{code="{SLOW_READER}"}}']
            assert closed == 1
            beside = [took for client in others for took in client.latencies]
            print(f"median alone {median(alone):.4f} s, beside a slow reader {median(beside):.4f}")
            # A loose limit: a server that waits for its slow reader would give the others nothing
            # at all.
            assert median(beside) < 10 * median(alone) + 0.5
            await all_speak(others, 5)
            assert not any(client.close_code for client in others)
            for task in listening:
                task.cancel()
            assert (await metrics_of(server))["scheduler_internal_errors_total"] == 0


async def all_speak(clients: list[RawClient], count: int) -> None:
    async def one(client: RawClient) -> None:
        await client.speak(count)
        await client.until(lambda: not client.open)

    async with asyncio.timeout(BOUND_S):
        await asyncio.gather(*(one(client) for client in clients))


async def stall(slow: RawClient, others: list[RawClient], server: SchedulerProcess) -> None:
    """Let it speak among the others and never read, until the scheduler has dropped it."""
    held = slow.socket.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    connected = (await metrics_of(server))['scheduler_connections{kind="session"}']
    async with asyncio.timeout(BOUND_S):
        index = 0
        while (await metrics_of(server))['scheduler_connections{kind="session"}'] == connected:
            await slow.utter(index, ("en",))
            await all_speak(others, 1)
            index += 1
