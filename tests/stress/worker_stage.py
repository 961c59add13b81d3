"""A service of several workers, with nodes and sessions of the SDKs in this process.

Each chunk carries its number, and the nodes report the numbers that they received: the outcomes
show every chunk that was lost, doubled or out of order. A failure is reported with what its
sessions received, what the store has of them, and the logs of the workers.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_bench.chaos.scheduler_process import SchedulerProcess, read_page
from lingua_bench.chaos.store import PrivateStore
from lingua_client import Event, Options, Outcome, Reset, Session, SessionLost, connect
from lingua_node import Job, Node, Result
from lingua_scheduler.edge.answers import NodePage
from servers import until
from stress.serving import data_dir, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BOUND_S = 20.0
PROGRAM = "lingua_scheduler.supervisor.worker"
# What the store has of a session, and of all jobs: keys, and how they are read.
OF_SESSION = (("*:session:{}", ("HGETALL",)), ("*:outbox:{}", ("LRANGE", "0", "-1")))
OF_JOBS = ("*:job:*", "HMGET", "state", "attempt", "node", "reason", "outcome")
# 100 ms of opus: opaque to the server, so that it finds no silence in it.
CHUNK_BYTES = 300
ANY_WORK: dict[str, Any] = {"max_jobs": 64, "reports_usage": False, "watch": lambda _, __: None}
QUICK = {
    "LINGUA_SEGMENTATION__HANGOVER_MANUAL_MS": "0",
    "LINGUA_SEGMENTATION__SHORT_MERGE_MS": "0",
    "LINGUA_SEGMENTATION__PAUSE_MS": "0",
}


async def tell(job: Job, work_s: float) -> Result:
    """Return the chunks of a job."""
    await asyncio.sleep(work_s)
    audio = job.audio
    numbers = [
        int.from_bytes(audio[at : at + 4], "big") for at in range(0, len(audio), CHUNK_BYTES)
    ]
    return Result(text_asr=",".join(map(str, numbers)), text_translated=job.tgt_lang)


class Speaker:
    """A session that speaks numbered chunks and collects its outcomes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[Event] = []
        # When each of them arrived.
        self._times: list[float] = []
        self.said = 0
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        # A service that stops for good takes the session with it, after its last outcome.
        with suppress(SessionLost):
            async for event in self.session:
                self.events.append(event)
                self._times.append(time())

    async def say(self, chunks: int = 3) -> None:
        """Speak one utterance."""
        for number in range(self.said, self.said + chunks):
            await self.session.send(number.to_bytes(4, "big") * (CHUNK_BYTES // 4))
            await asyncio.sleep(0.005)
        self.said += chunks
        await self.session.cut()

    @property
    def outcomes(self) -> list[Outcome]:
        return [event for event in self.events if isinstance(event, Outcome)]

    @property
    def chunks(self) -> list[int]:
        """Return the numbers of all translated chunks, in the order of outcomes."""
        return [int(number) for o in self.outcomes for number in o.text_asr.split(",") if number]

    async def heard_all(self) -> None:
        """Wait until everything that was said has an outcome."""
        await until(lambda: len(self.chunks) >= self.said, BOUND_S, "all outcomes")

    async def end(self) -> None:
        """Close; each chunk was translated once, in order, in one session."""
        await asyncio.wait_for(self.session.close(), BOUND_S)
        self.check()
        await asyncio.wait_for(self._listening, BOUND_S)

    @property
    def is_whole(self) -> bool:
        """Tell whether it has received what it should have, in one session."""
        are_resets = any(isinstance(event, Reset) for event in self.events)
        return self.chunks == [*range(self.said)] and not are_resets

    def history(self) -> str:
        """Return everything that it received, one event in a line."""
        session, listening = self.session, self._listening
        missing = sorted({*range(self.said)} - {*self.chunks})
        end = repr(listening.exception()) if listening.done() else "not ended"
        lines = [
            f"session {session.id} at {session.url or 'no server'}, {end}",
            f"said {self.said}, without a translation {missing}, {session.resumes} resumes",
            f"position {session.epoch}/{session.seq}, {session.duplicates} duplicates",
        ]
        for at, event in zip(self._times, self.events, strict=True):
            if isinstance(event, Outcome) and event.kind == "translation":
                place = f"seq {event.seq}, index {event.utterance_index}"
                lines.append(f"{at:.3f} translation {place}: {event.text_asr}")
            else:
                lines.append(f"{at:.3f} {event}")
        return "\n".join(lines)

    def check(self) -> None:
        assert [event for event in self.events if isinstance(event, Reset)] == []
        assert {(o.kind, o.reason) for o in self.outcomes} == {("translation", "")}
        assert self.chunks == [*range(self.said)]
        seqs = [outcome.seq for outcome in self.outcomes]
        assert seqs == sorted(set(seqs))


class WorkerStage:
    """A running service."""

    def __init__(self, server: SchedulerProcess, stack: AsyncExitStack, place: Path) -> None:
        self.server = server
        self._stack = stack
        self._place = place
        self._speakers: list[Speaker] = []

    async def nodes(self, count: int, work_s: float = 0) -> None:
        """Connect nodes, one after another."""
        for number in range(count):
            node = Node([self.server.node_url()], node_id=f"n{number}", **ANY_WORK)
            await self._stack.enter_async_context(serving_node(node, work_s))

    async def speaker(self) -> Speaker:
        """Open a session."""
        session = connect(
            [self.server.client_url()],
            source="en",
            targets=("es",),
            audio_format="opus",
            options=Options(silence_s=2),
        )
        speaker = Speaker(await self._stack.enter_async_context(session))
        self._speakers.append(speaker)
        return speaker

    async def nodes_by_worker(self) -> Counter[str]:
        """Return the number of connected nodes of each worker."""
        page = msgspec.json.decode(
            await read_page(f"{self.server.url}/api/v1/nodes"), type=NodePage
        )
        return Counter(node.instance for node in page.nodes if node.status == "ready")

    async def testimony(self) -> str:
        """Return what is known of the sessions that miss something, and the logs."""
        parts, reads = [], []
        for speaker in self._speakers:
            if not speaker.is_whole:
                parts.append(speaker.history())
                resets = [event for event in speaker.events if isinstance(event, Reset)]
                ids = [*(reset.former_id for reset in resets), speaker.session.id]
                reads += [(key.format(name), *how) for name in ids for key, how in OF_SESSION]
        store = PrivateStore(data_dir(self._place))
        with suppress(OSError, TimeoutError):  # the store may have ended
            for words in (*reads, OF_JOBS):
                found = await store.read_keys(*words)
                parts += [f"{key}: {value}" for key, value in found.items()]
        parts.append((self._place / f"{self.server.name}.log").read_text(errors="replace"))
        return "\n".join(parts)

    def pids(self) -> list[int]:
        """Return the processes of the workers, the oldest first."""
        columns = ["ps", "-axww", "-o", "pid=,ppid=,command="]
        listing = subprocess.run(columns, capture_output=True, text=True, check=True).stdout
        rows = (line.split(maxsplit=2) for line in listing.splitlines())
        ours = str(self.server.pid)
        return [int(pid) for pid, parent, what in rows if parent == ours and PROGRAM in what]


@asynccontextmanager
async def serving_node(node: Node, work_s: float) -> AsyncIterator[None]:
    @node.job
    async def do(job: Job) -> Result:
        return await tell(job, work_s)

    task = asyncio.create_task(node.serve())
    try:
        yield
    finally:
        node.stop()
        await asyncio.wait_for(task, BOUND_S)


@asynccontextmanager
async def workers(place: Path, count: int = 2, **settings: str) -> AsyncIterator[WorkerStage]:
    """Serve with workers, until the block is left."""
    chosen = {**QUICK, "LINGUA_SERVER__WORKERS": str(count), **settings}
    async with serving(place, chosen, "info") as server, AsyncExitStack() as stack:
        stage = WorkerStage(server, stack, place)
        try:
            yield stage
        except AssertionError as failure:
            failure.add_note(await stage.testimony())
            raise
