"""The nodes of the harness: forked in milliseconds, each writes down what it began and ended.

A cradle has everything imported and forks a node for every name it reads, so that a restart costs
next to nothing. A node hears whose audio it got and says so in its result.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final

import msgspec

from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.history import Finished, Recorder, Started, Up
from lingua_scheduler.bench.chaos.process import die_with_parent
from lingua_scheduler.node import Job, Node, Result

# How long a result is held for a nemesis that does not say anything.
HELD_S: Final = 1.0
DATAGRAM_BYTES: Final = 4096


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a cradle work."""

    urls: tuple[str, ...]
    place: str
    max_jobs: int = 4
    least_ms: float = 20
    most_ms: float = 200
    seed: int = 0
    # Who is asked before a result of a room is sent; empty: nobody.
    deliveries: str = ""


class Workplace:
    """What one node does and writes down."""

    def __init__(self, name: str, plan: NodePlan) -> None:
        self._plan = plan
        self._recorder = Recorder(Path(plan.place) / f"{name}-{os.getpid()}.node")
        self._chance = Random(f"{name} {plan.seed} {os.getpid()}")
        self._running = 0
        # Where it is connected.
        self._url = ""
        # Results that are held -> set when they may go.
        self._held: dict[str, asyncio.Event] = {}
        self._deliveries: socket.socket | None = None
        self.node = self._make(name)
        self._recorder.note(Up(monotonic(), name, plan.max_jobs))

    async def translate(self, job: Job) -> Result:
        """Pretend to work, then tell whose audio this was."""
        said = speech.heard_in(job.audio)
        self._running += 1
        refused = self.node.stats.refused
        self._recorder.note(
            Started(monotonic(), job.job_id, job.attempt_id, said, job.tgt_lang,
                    self._running, refused)
        )  # fmt: skip
        is_done = False
        try:
            await asyncio.sleep(self._chance.uniform(self._plan.least_ms, self._plan.most_ms) / 1e3)
            is_done = True
        finally:
            self._running -= 1
            self._recorder.note(Finished(monotonic(), job.job_id, job.attempt_id, is_done))
        await self._may_deliver(said)
        text = speech.translated(said, job.tgt_lang, job.attempt_id)
        return Result(text_asr=said, text_translated=text)

    async def _may_deliver(self, said: str) -> None:
        """Hold a result for a room until the nemesis, if there is one, lets it go."""
        named = speech.read(said)
        if not self._plan.deliveries or named is None or named.speaker < speech.FIRST_PERSON:
            return
        asks = self._deliveries = self._deliveries or self._open_deliveries()
        may_go = self._held.setdefault(said, asyncio.Event())
        with contextlib.suppress(OSError, TimeoutError):  # the run is over
            asks.sendto(f"{said} {self._url}".encode(), f"\0{self._plan.deliveries}")
            async with asyncio.timeout(HELD_S):
                await may_go.wait()
        self._held.pop(said, None)

    def _open_deliveries(self) -> socket.socket:
        asks = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        asks.setblocking(False)  # noqa: FBT003
        asks.bind(f"\0{self._plan.deliveries}-{os.getpid()}")
        asyncio.get_running_loop().add_reader(asks, self._released, asks)
        return asks

    def _released(self, asks: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                may_go = self._held.get(asks.recv(DATAGRAM_BYTES).decode())
                if may_go is not None:
                    may_go.set()

    def _watch(self, word: str, detail: str) -> None:
        if word == "connecting":
            self._url = detail.removeprefix("to ")

    def _make(self, name: str) -> Node:
        node = Node(
            urls_of(name, self._plan.urls),
            node_id=name,
            pairs=[
                f"{source}>{target}"
                for source, target in itertools.permutations(speech.LANGUAGES, 2)
            ],
            watch=self._watch,
            max_jobs=self._plan.max_jobs,
            # The machine is meant to be busy.
            reports_usage=False,
        )
        node.job(self.translate)
        return node


def urls_of(name: str, urls: tuple[str, ...]) -> tuple[str, ...]:
    """Return where a node goes, one after another: nodes are spread over the instances."""
    first = int(name.rpartition("-")[2]) % len(urls)
    return urls[first:] + urls[:first]


def be_cradle(plan: NodePlan) -> None:
    """Fork a node for every name that is read; with nobody to read from, end them all."""
    # Never waited for before the end: the number of a killed process must not become another's.
    pids, parent = [], os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            die_with_parent(parent)()
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(silence, stream)
            Workplace(line.strip(), plan).node.run()
            os._exit(0)
        pids.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    be_cradle(msgspec.json.decode(sys.argv[1], type=NodePlan))
