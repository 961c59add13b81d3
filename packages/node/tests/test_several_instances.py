"""A node and two real schedulers over one store: one is killed, the node moves to the other.

The killed scheduler is a process (`kill -9`), the other runs in the test, which checks in the store
what a node must keep: its boot id, its leases, its status.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from edge.live_server import JSON, NewClient
from lingua_node import Job, Node, Result
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.server import NODE_PATH, SESSION_PATH, running_server
from node_peer import answer, run, serving
from servers import _die_with_parent, free_port, start_server, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from servers import Server

pytestmark = pytest.mark.stress

BOUND_S = 20.0
# The node waits at most JITTER_S; the rest is for a busy machine.
MOVED_WITHIN_S = 1.0
NODE_KEY = "lingua:v1:{c0}:node:n1"
LEASES_KEY = "lingua:v1:{c0}:leases:n1"


def environment(store: Server, name: str) -> dict[str, str]:
    return {
        "LINGUA_DEPLOYMENT_MODE": "cross_instance",
        "LINGUA_REDIS__URL": f"redis://127.0.0.1:{store.port}",
        "LINGUA_INSTANCE_ID": name,
        "LINGUA_SERVER__PORT": "0",
        "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
    }


@contextlib.asynccontextmanager
async def instance_process(
    store: Server, name: str, log: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run a scheduler as a process; give the process and the address that it prints."""
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "lingua_cli",
            "serve",
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env=os.environ | environment(store, name),
            preexec_fn=_die_with_parent(os.getpid()),
        )
    try:
        assert process.stdout is not None
        line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
        assert line, f"it ended at once; see {log}"
        yield process, next(word for word in line.decode().split() if word.startswith("http"))
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def node_socket(url: str) -> str:
    return url.replace("http", "ws", 1) + NODE_PATH


@contextlib.asynccontextmanager
async def speaking_client(url: str) -> AsyncIterator[NewClient]:
    async with aiohttp.ClientSession() as http:
        ws = await http.ws_connect(f"{url}{SESSION_PATH}", protocols=(JSON,))
        async with NewClient(ws, JSON) as client:
            await client.open(src_lang="zh", tgt_lang="en")
            yield client


def known_of_node(store: Server) -> dict[str, str]:
    flat: list[bytes] = store.ask("HGETALL", NODE_KEY)
    wanted = {"boot", "instance", "status", "orphans", "conn"}
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs if name.decode() in wanted}


def leases(store: Server) -> list[bytes]:
    return list(store.ask("ZRANGE", LEASES_KEY, 0, -1))


def state_of(store: Server, job: Job) -> bytes:
    return bytes(store.ask("HGET", f"lingua:v1:{{c0}}:job:{job.job_id}", "state") or b"")


def beat_count(store: Server) -> int:
    return int(store.ask("HGET", NODE_KEY, "good") or 0)


class Work:
    """A handler that is busy until the test lets it end, and the reports of the node."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.started: list[Job] = []
        # When the node was registered, by `monotonic`, and where.
        self.registered: list[tuple[float, str]] = []

    async def handle(self, job: Job) -> Result:
        self.started.append(job)
        await self.may_end.wait()
        return await answer(job)

    def watch(self, word: str, detail: str) -> None:
        if word == "registered":
            self.registered.append((time.monotonic(), detail))

    def node(self, *urls: str, **settings: Any) -> Node:
        node = Node(
            [*map(node_socket, urls)],
            node_id="n1",
            watch=self.watch,
            reports_usage=False,
            **settings,
        )
        node.job(self.handle)
        return node


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with start_server(tmp_path / "store", port=free_port(), unix=False) as server:
        yield server


def test_a_node_whose_instance_is_killed_goes_on_at_the_other_with_its_leases(
    store: Server, tmp_path: Path
) -> None:
    async def scenario() -> None:
        work = Work()
        settings = load_settings(None, environment(store, "b"))
        async with (
            instance_process(store, "a", tmp_path / "a.log") as (killed, url),
            running_server(settings) as other,
        ):
            node = work.node(url, other.url)
            async with serving(node), contextlib.AsyncExitStack() as client_lives:
                await until(
                    lambda: known_of_node(store).get("status") == "ready", BOUND_S, "n1 is ready"
                )
                client = await client_lives.enter_async_context(speaking_client(url))
                await client.utter(0)
                await until(lambda: bool(work.started), BOUND_S, "the job is with the node")
                # Otherwise only the killed instance would know that the node has it.
                await until(
                    lambda: state_of(store, work.started[0]) == b"RUNNING",
                    BOUND_S,
                    "the store knows that it runs",
                )
                before, held = known_of_node(store), leases(store)
                assert (before["instance"], before["boot"]) == ("a", node.boot_id)
                assert len(held) == 1

                killed.kill()
                killed_at = time.monotonic()
                await until(lambda: len(work.registered) == 2, BOUND_S, "n1 registers again")
                registered_at, where = work.registered[1]
                assert where == f"as n1 at {node_socket(other.url)}"
                assert registered_at - killed_at < MOVED_WITHIN_S

                after = known_of_node(store)
                assert (after["instance"], after["boot"]) == ("b", node.boot_id)
                assert after["conn"] != before["conn"]
                # RESUMED: a new process would be `registering`, its leases orphans to be moved.
                assert (after["status"], after["orphans"]) == ("ready", "")
                assert leases(store) == held
                # Both sides agree on what runs, in this beat and those after it.
                beats = beat_count(store)
                await until(lambda: beat_count(store) > beats + 1, BOUND_S, "the heart beats on")
                assert leases(store) == held
                assert [job.cancelled for job in work.started] == [False]
                work.may_end.set()
                # The result is acknowledged, so that the node drops it.
                node.drain()
                await until(lambda: node.stats.succeeded == 1, BOUND_S, "the job is done")
            assert (node.stats.jobs, node.stats.cancelled, node.stats.lost_results) == (1, 0, 0)

    run(scenario())


def test_a_node_of_an_instance_that_drains_goes_to_the_other_and_gets_its_work(
    store: Server,
) -> None:
    async def scenario() -> None:
        work = Work()
        work.may_end.set()
        async with (
            running_server(load_settings(None, environment(store, "a"))) as a,
            running_server(load_settings(None, environment(store, "b"))) as b,
        ):
            node = work.node(a.url, b.url)
            async with serving(node):
                await until(lambda: "n1" in a.instance.nodes, BOUND_S, "n1 is at a")
                assert await a.drain()
                await until(lambda: len(work.registered) == 2, BOUND_S, "n1 registers again")
                await until(
                    lambda: known_of_node(store).get("status") == "ready", BOUND_S, "n1 is ready"
                )
                known = known_of_node(store)
                assert (known["instance"], known["boot"]) == ("b", node.boot_id)
                assert "n1" in b.instance.nodes
                async with speaking_client(b.url) as client:
                    await client.utter(0)
                    assert (await client.result(0))["text_translated"] == "hola"
            assert node.stats.reconnects == 1

    run(scenario())
