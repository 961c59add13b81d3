"""An instance dies (kill -9) with letters unread and half read: a survivor has all of them applied.

The letters tell a node, which is at the survivor by now, to stop jobs: the node counts them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING

import aiohttp
import pytest
import uvloop

from edge.live_server import JSON, NewNode
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.server import running_server
from lingua_scheduler.peers.messages import StopAttempt
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.peers.stream import GROUP
from lingua_scheduler.state.keys import InstanceKeys
from servers import Server, _die_with_parent, free_port, start_server, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from lingua_scheduler.state.connection import Connection

pytestmark = pytest.mark.stress

UNREAD, PENDING = 500, 100
BOUND_S = 30.0
# The promised bound; the rest of the time is what a loaded machine adds.
ADOPTED_WITHIN_S = 7.0


def environment(store: Server, name: str) -> dict[str, str]:
    return {
        "LINGUA_DEPLOYMENT_MODE": "cross_instance",
        "LINGUA_REDIS__URL": f"redis://127.0.0.1:{store.port}",
        "LINGUA_INSTANCE_ID": name,
        "LINGUA_SERVER__PORT": "0",
    }


@asynccontextmanager
async def doomed(store: Server) -> AsyncIterator[asyncio.subprocess.Process]:
    """An instance in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lingua_cli", "serve", stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL, env=os.environ | environment(store, "doomed"),
        preexec_fn=_die_with_parent(os.getpid()),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def fill_inbox(connection: Connection) -> None:
    """Write letters to an instance that does not read now; some it has begun to read."""
    post = PeerSender(connection, "lingua", "writer")
    sent = [
        post.send("doomed", StopAttempt(f"job-{number}", 1, "node-1", "cancelled"))
        for number in range(UNREAD + PENDING)
    ]
    assert all(await asyncio.gather(*sent))
    keys = InstanceKeys("lingua", "doomed")
    read = await connection.command(
        keys.slot, "XREADGROUP", "GROUP", GROUP, "doomed", "COUNT", PENDING,
        "STREAMS", keys.inbox, ">",
    )  # fmt: skip
    assert len(read[0][1]) == PENDING


async def scenario(store: Server) -> tuple[Counter[str], float]:
    settings = load_settings(None, environment(store, "survivor"))
    async with running_server(settings) as survivor, aiohttp.ClientSession() as http:
        socket = await http.ws_connect(f"{survivor.url}/ws/node", protocols=(JSON,))
        async with NewNode(socket, JSON) as node, doomed(store) as process:
            await node.enter("node-1")
            view = survivor.instance.peers.presence
            await until(
                lambda: view.view is not None and "doomed" in view.view.alive, BOUND_S, "it lives"
            )
            # Stopped first, so that nobody reads while the inbox is filled.
            process.send_signal(signal.SIGSTOP)
            await fill_inbox(survivor.instance.store.runner.connection)
            process.kill()
            killed_at = monotonic()
            stopped: Counter[str] = Counter()
            while len(stopped) < UNREAD + PENDING:
                message = await node.expect("job_cancel")
                stopped[message["job_id"]] += 1
            took_s = monotonic() - killed_at
            await until(lambda: not has_inbox(store), BOUND_S, "the inbox is gone")
            metrics = survivor.instance.metrics
            # Counted when the survivor hears that the inbox is gone, which we may see before.
            adopted = metrics.peers.letters_adopted_total
            await until(lambda: adopted.value > 0, BOUND_S, "the letters are counted")
            assert adopted.value == UNREAD + PENDING
            assert metrics.instance.internal_errors_total.value == 0
        return stopped, took_s


def has_inbox(store: Server) -> bool:
    return bool(store.ask("EXISTS", InstanceKeys("lingua", "doomed").inbox))


def test_unread_and_half_read_letters_of_a_killed_instance_are_applied_once_by_a_survivor(
    tmp_path: Path,
) -> None:
    with (
        start_server(tmp_path / "store", port=free_port(), unix=False) as store,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        stopped, took_s = runner.run(scenario(store))
    assert set(stopped.values()) == {1}
    print(f"{len(stopped)} letters adopted, the last {took_s:.2f} s after the kill")
    assert took_s <= ADOPTED_WITHIN_S
