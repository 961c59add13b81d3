"""Nodes of real engines for the chaos of real speech."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

import aiohttp

from lingua_bench.chaos.process import Process, free_port, until
from lingua_bench.chaos.scheduler_process import read_page, summed
from lingua_bench.speech.process_registry import read_proc
from lingua_bench.speech.run import family
from lingua_speech.host.worker_process import CHILD
from lingua_speech.models import default_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AsyncExitStack
    from pathlib import Path

    from lingua_bench.chaos.deployment import Deployment

# Two nodes load at once, on two cores that are busy otherwise.
NODE_S: Final = 120.0
HEAL_S: Final = 60.0
LOOK_S: Final = 0.2
STAGES: Final = ("asr", "nmt", "tts")
READY, RESTARTS = "lingua_node_ready", "lingua_node_worker_restarts_total"
# A worker's libraries tell its stage; a translation worker has programs of its own instead.
LIBRARIES: Final = {"asr": ("onnxruntime",), "tts": ("espeak", "pico")}


class SpeechNode:
    """A node of real engines: a fixed name, and one process after another."""

    def __init__(self, name: str, urls: Sequence[str], place: Path, max_jobs: int) -> None:
        self.name = name
        self._port = free_port()
        # Workers that its former processes had to replace.
        self._counted = 0
        self._counts: Counter[str] = Counter()
        words = ["node", "--engines", "default", "--node-id", name, "--max-jobs", str(max_jobs)]
        words += ["--metrics", f"127.0.0.1:{self._port}"]
        words += [word for url in urls for word in ("--url", url)]
        self._process = Process(
            [sys.executable, "-m", "lingua_cli", *words],
            place / f"{name}.log",
            {"LINGUA_MODELS": str(default_store().root)},
        )

    @property
    def pid(self) -> int:
        """Return its pid."""
        return self._process.pid

    @property
    def restarts(self) -> int:
        """Return how many workers all its processes had to replace, as far as it was read."""
        return self._counted + self._counts[RESTARTS]

    async def start(self) -> None:
        """Start a process and wait until it is registered."""
        await self._process.start()
        async with asyncio.timeout(NODE_S):
            while ": registered" not in await self._process.read_line(NODE_S):
                pass

    async def count(self) -> None:
        """Read its metrics; without an answer the values that were read before stand."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            self._counts = summed(await read_page(f"http://127.0.0.1:{self._port}/metrics"))

    async def has_healed(self, restarts: int) -> bool:
        """Tell whether a worker was replaced since then, and all stages work."""
        await asyncio.sleep(LOOK_S)
        await self.count()
        return self.restarts > restarts and self._counts[READY] == len(STAGES)

    async def kill(self) -> None:
        """End it by kill -9."""
        await self._process.kill()
        self._counted, self._counts = self.restarts, Counter()

    async def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        await self.count()
        await self._process.stop()

    def workers(self) -> dict[int, str]:
        """Return its loaded worker processes and their stages."""
        pids = [pid for pid in family(self.pid) if CHILD in read_proc(pid, "cmdline")]
        found = {pid: stage_of(pid) for pid in pids}
        return {pid: stage for pid, stage in found.items() if stage}


def stage_of(pid: int) -> str:
    """Return the stage of a worker; empty while it has not loaded."""
    maps = read_proc(pid, "maps")
    for stage, libraries in LIBRARIES.items():
        if any(library in maps for library in libraries):
            return stage
    return "nmt" if len(family(pid)) > 1 else ""


async def open_speech_nodes(deployment: Deployment, stack: AsyncExitStack) -> list[SpeechNode]:
    """Start the nodes of a deployment; the end of the stack kills them."""
    scenario = deployment.scenario
    urls = [instance.node_url() for instance in deployment.instances]
    nodes = [
        # Each prefers another scheduler.
        SpeechNode(f"speech-{at}", urls[at:] + urls[:at], deployment.place, scenario.max_jobs)
        for at in range(scenario.nodes)
    ]
    for node in nodes:
        stack.push_async_callback(node.kill)
    async with asyncio.TaskGroup() as starting:
        for node in nodes:
            starting.create_task(node.start())
    await until(deployment.nodes_are_ready, HEAL_S, "all nodes are ready")
    return nodes
