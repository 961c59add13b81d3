"""The nodes of the harness: forked in milliseconds, each records its attempts.

A fork server has everything imported and forks a node for every name it reads, so that a restart
costs next to nothing. A node reads the marks in its audio and returns them in its result.
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

from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.history import (
    AttemptFinished,
    AttemptStarted,
    NodeExited,
    NodeStarted,
    Recorder,
    StreamBegun,
    StreamEnded,
)
from lingua_bench.chaos.process import die_with_parent
from lingua_node import Job, Node, Result, Stream

# How long a result is held for a nemesis that does not answer.
HELD_S: Final = 1.0
DATAGRAM_BYTES: Final = 4096


class NodePlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the nodes of a fork server work."""

    urls: tuple[str, ...]
    place: str
    max_jobs: int = 4
    # Streams at the same time, besides jobs; 0: the nodes do not listen.
    max_streams: int = 0
    least_ms: float = 20
    most_ms: float = 200
    seed: int = 0
    # The size of the translated speech in every result.
    speech_bytes: int = 0
    # The socket of the nemesis that releases results for rooms; empty if there is none.
    deliveries: str = ""


class RecordingNode:
    """One node: its work and its history."""

    def __init__(self, name: str, plan: NodePlan) -> None:
        self._name = name
        self._plan = plan
        self._recorder = Recorder(Path(plan.place) / f"{name}-{os.getpid()}.node")
        self._chance = Random(f"{name} {plan.seed} {os.getpid()}")
        self._running = self._listening = 0
        # The instance that it is connected to.
        self._url = ""
        # Held results -> set when they are released.
        self._held: dict[str, asyncio.Event] = {}
        self._deliveries: socket.socket | None = None
        self.node = self._make(name)
        self._recorder.note(NodeStarted(monotonic(), name, plan.max_jobs, plan.max_streams))

    def run(self) -> None:
        """Work until this process is killed; an end without a kill is recorded."""
        try:
            self.node.run()
        finally:
            self._recorder.note(NodeExited(monotonic(), self._name))

    async def translate(self, job: Job) -> Result:
        """Pretend to work, then return the marks of the audio."""
        said = marked_audio.marks_in(job.audio)
        self._running += 1
        refused = self.node.stats.refused
        self._recorder.note(
            AttemptStarted(
                at=monotonic(),
                job=job.job_id,
                attempt=job.attempt_id,
                said=said,
                target=job.tgt_lang,
                running=self._running,
                refused=refused,
            )
        )
        is_done = False
        try:
            await asyncio.sleep(self._chance.uniform(self._plan.least_ms, self._plan.most_ms) / 1e3)
            is_done = True
        finally:
            self._running -= 1
            self._recorder.note(AttemptFinished(monotonic(), job.job_id, job.attempt_id, is_done))
        await self._may_deliver(said)
        text = marked_audio.translated(said, job.tgt_lang, job.attempt_id)
        speech = bytes(self._plan.speech_bytes)
        return Result(text_asr=said, text_translated=text, tts_audio=speech)

    async def listen(self, stream: Stream) -> None:
        """Report the marks of the audio so far while somebody speaks; the stream names itself."""
        self._listening += 1
        self._recorder.note(StreamBegun(monotonic(), stream.stream_id, self._listening))
        try:
            async for _ in stream:
                heard = stream.audio[: marked_audio.whole(stream.audio)]
                said = marked_audio.marks_in(heard) if heard else marked_audio.GARBLED
                if said != marked_audio.GARBLED:
                    await stream.partial(
                        stable=said,
                        unstable=stream.stream_id,
                        upto_ms=stream.audio_ms,
                        translations={
                            target: (f"{target} {said}", "") for target in stream.open.tgt_langs
                        },
                    )
        finally:
            self._listening -= 1
            self._recorder.note(StreamEnded(monotonic(), stream.stream_id, stream.is_cut))

    async def _may_deliver(self, said: str) -> None:
        """Hold a result for a room until the nemesis, if there is one, releases it."""
        named = marked_audio.read(said)
        if (
            not self._plan.deliveries
            or named is None
            or named.speaker < marked_audio.FIRST_PARTICIPANT
        ):
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
                for source, target in itertools.permutations(marked_audio.LANGUAGES, 2)
            ],
            watch=self._watch,
            max_jobs=self._plan.max_jobs,
            max_streams=self._plan.max_streams,
            # The machine is meant to be busy.
            reports_usage=False,
        )
        node.job(self.translate)
        if self._plan.max_streams:
            node.stream(self.listen)
        return node


def urls_of(name: str, urls: tuple[str, ...]) -> tuple[str, ...]:
    """Return the URLs of a node in its order of preference: nodes are spread over the instances."""
    first = int(name.rpartition("-")[2]) % len(urls)
    return urls[first:] + urls[:first]


def run_fork_server(plan: NodePlan) -> None:
    """Fork a node for every name that is read; at the end of the input, end all nodes."""
    # Never waited for before the end: the pid of a killed process must not be reused.
    pids, parent = [], os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            die_with_parent(parent)()
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(silence, stream)
            RecordingNode(line.strip(), plan).run()
            os._exit(0)
        pids.append(pid)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    run_fork_server(msgspec.json.decode(sys.argv[1], type=NodePlan))
