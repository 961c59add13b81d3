"""What an audience costs that only reads, and whether speakers notice it.

`python -m lingua_bench.audience` starts what `lingua bench live` starts, twice: a real scheduler
with its store and nodes that answer at once. On the first, sessions speak in real time all the
while. On both, 2,000 readers of one room's captions are connected. In turns nobody says anything in
these rooms; somebody speaks in the room of the first instance, and 200 consoles are open there; or
both happens on the other instance, which serves no speakers. The last case is the control: readers
are processes on this machine too, and what their own work costs the speakers must not be taken for
the service's.

The cases follow each other forth and back every few seconds, because the machine is never the same
for long. All results of a case are compared with all of another; how sure the ratio is, is
found by drawing the turns again and again (bootstrap).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec
import uvloop

from lingua_bench.live_clients import percentile
from lingua_bench.live_orders import Paced
from lingua_bench.live_processes import allow_many_sockets, running_system, started
from lingua_bench.live_usage import children_of, usage_of
from lingua_bench.slow_readers import TARGET, RawRoomMember

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lingua_bench.live_processes import LoadProcess

Case = Literal["nobody", "here", "elsewhere"]
CASES: Final[tuple[Case, ...]] = ("nobody", "here", "elsewhere")
# One round; the next one begins as this one ends, so that each case has each neighbour.
ROUND: Final[tuple[Case, ...]] = ("nobody", "here", "elsewhere", "elsewhere", "here", "nobody")
SOURCE: Final = "zh"
# An utterance of the speaker in the room: how often, and how long.
EVERY_S: Final = 1.0
CHUNKS: Final = 10
# Frames of 100 ms in an utterance of the speakers that are measured: a p99 needs many utterances.
FINAL_EVERY: Final = 10
AT_ONCE: Final = 50
OPEN_S: Final = 30.0
ORDER_EXTRA_S: Final = 60.0
# After a change: consoles that come are not what is measured.
CALM_S: Final = 1.5
# How often the turns are drawn, and the part of the ratios that the interval holds.
DRAWS: Final = 1000
SURE: Final = 0.9
READERS: Final = "readers"
NICE: Final = 19


@dataclass(frozen=True, slots=True)
class AudiencePlan:
    """The size of the measurement."""

    readers: int = 2_000
    consoles: int = 200
    sessions: int = 100
    rounds: int = 8
    # How long each turn is measured.
    seconds: float = 4.0


@dataclass(frozen=True, slots=True)
class AudienceTurn:
    """One case, once: when it was measured, and what was used meanwhile."""

    case: Case
    began: float
    ended: float
    # Shares of a core.
    scheduler_cpu: float
    readers_cpu: float
    # Events that all readers together got in a second.
    events_per_s: float


class ReaderTally(msgspec.Struct):
    """What a process of readers has done since its start."""

    events: int
    cpu_s: float


class ReadingProcess:
    """A process of readers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def tally(self) -> ReaderTally:
        """Ask what it has done."""
        return await self._told("tally")

    async def open_consoles(self, count: int) -> None:
        """Let so many consoles be open."""
        await self._told(f"consoles {count}")

    async def _told(self, word: str) -> ReaderTally:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), ORDER_EXTRA_S)
        return msgspec.json.decode(line, type=ReaderTally)


class Host:
    """An instance with a room, its speaker and its readers."""

    def __init__(self, load: LoadProcess, pid: int, speaker: RawRoomMember) -> None:
        self.load = load
        self.url = load.metrics_url.removesuffix("/metrics")
        self.pid = pid
        self.speaker = speaker
        # Memory in MB before and after the readers came.
        self.mb_alone = self.mb_read = self.mb_watched = 0.0
        self.readers: ReadingProcess
        self.speaking: asyncio.Task[None] | None = None

    def note_mb(self) -> float:
        """Return how much memory the instance uses."""
        return usage_of(self.pid).rss_kb / 1024

    async def become(self, *, is_read: bool, consoles: int) -> None:
        """Let the room's speaker speak and consoles be open, or neither."""
        if self.speaking is not None:
            self.speaking.cancel()
        self.speaking = asyncio.create_task(_speak(self.speaker)) if is_read else None
        await self.readers.open_consoles(consoles if is_read else 0)


@asynccontextmanager
async def _host(plan: AudiencePlan) -> AsyncIterator[Host]:
    async with running_system() as load:
        speaker = RawRoomMember()
        host = Host(load, _newest_scheduler(), speaker)
        await speaker.open(f"{host.url.replace('http', 'ws', 1)}/ws/session", SOURCE, TARGET)
        path = f"/captions/{await speaker.create()}?lang={TARGET}"
        host.mb_alone = host.note_mb()
        words = (READERS, host.url, path, str(plan.readers))
        async with started("lingua_bench.audience", *words) as (process, _):
            host.readers = ReadingProcess(process)
            host.mb_read = host.note_mb()
            await host.readers.open_consoles(plan.consoles)
            host.mb_watched = host.note_mb()
            try:
                yield host
            finally:
                if host.speaking is not None:
                    host.speaking.cancel()
                speaker.socket.abort()


async def _speak(speaker: RawRoomMember) -> None:
    while True:
        speaker.say(CHUNKS)
        await asyncio.sleep(EVERY_S)


def _newest_scheduler() -> int:
    """Return the last process of `lingua serve` that this process has started."""
    found = [
        pid
        for pid in children_of(os.getpid())
        if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return max(found)


@dataclass(frozen=True, slots=True)
class Measured:
    """All turns, all results (when, ms), and what the readers took of memory."""

    turns: list[AudienceTurn]
    samples: list[tuple[float, float]]
    readers_mb: float
    consoles_mb: float


async def measure(plan: AudiencePlan) -> Measured:
    """Measure all cases in turns while the sessions speak."""
    cases = ROUND * plan.rounds
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(_host(plan))
        other = await stack.enter_async_context(_host(plan))
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lingua-bench-"))
        file = Path(folder) / "samples"
        order = Paced(
            sessions=plan.sessions,
            seconds=len(cases) * (plan.seconds + 2 * CALM_S),
            final_every=FINAL_EVERY,
            samples=str(file),
        )
        speaking = asyncio.create_task(here.load.follow(order, order.seconds + ORDER_EXTRA_S))
        await asyncio.sleep(CALM_S)
        turns = [await _turn(case, here, other, plan) for case in cases]
        for host in (here, other):
            await host.become(is_read=False, consoles=0)
        await speaking
        samples = msgspec.json.decode(file.read_bytes(), type=list[tuple[float, float]])
    return Measured(
        turns,
        samples,
        readers_mb=here.mb_read - here.mb_alone,
        consoles_mb=here.mb_watched - here.mb_read,
    )


async def _turn(case: Case, here: Host, other: Host, plan: AudiencePlan) -> AudienceTurn:
    for host, name in ((here, "here"), (other, "elsewhere")):
        await host.become(is_read=case == name, consoles=plan.consoles)
    await asyncio.sleep(CALM_S)
    hosts = (here, other)
    before = [await host.readers.tally() for host in hosts]
    began, used = monotonic(), usage_of(here.pid).cpu_s
    await asyncio.sleep(plan.seconds)
    ended, used = monotonic(), usage_of(here.pid).cpu_s - used
    after = [await host.readers.tally() for host in hosts]
    took = ended - began
    return AudienceTurn(
        case=case,
        began=began,
        ended=ended,
        scheduler_cpu=used / took,
        readers_cpu=sum(b.cpu_s - a.cpu_s for a, b in zip(before, after, strict=True)) / took,
        events_per_s=sum(b.events - a.events for a, b in zip(before, after, strict=True)) / took,
    )


# What was found


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of two cases, and the interval that holds nine of ten if turns are drawn anew."""

    ratio: float
    low: float
    high: float


def by_turn(measured: Measured, case: Case) -> list[list[float]]:
    """Return the results of each turn of a case."""
    return [
        [ms for at, ms in measured.samples if turn.began <= at < turn.ended]
        for turn in measured.turns
        if turn.case == case
    ]


def compare(
    some: Sequence[list[float]], base: Sequence[list[float]], share: float, chance: random.Random
) -> Ratio:
    """Compare a percentile of all results of some turns with that of others."""

    def of(turns: Sequence[list[float]]) -> float:
        return percentile([ms for turn in turns for ms in turn], share)

    drawn = sorted(
        of(chance.choices(some, k=len(some))) / max(0.001, of(chance.choices(base, k=len(base))))
        for _ in range(DRAWS)
    )
    edge = int(DRAWS * (1 - SURE) / 2)
    found = (of(some) / max(0.001, of(base)), drawn[edge], drawn[-1 - edge])
    return Ratio(*(round(value, 3) for value in found))


def report(measured: Measured) -> dict[str, object]:
    """Return what each case costs, and how speakers' latencies compare."""
    chance = random.Random(0)
    results = {case: by_turn(measured, case) for case in CASES}
    found: dict[str, object] = {
        "readers_mb": round(measured.readers_mb, 1),
        "consoles_mb": round(measured.consoles_mb, 1),
    }
    for case in CASES:
        turns = [asdict(turn) for turn in measured.turns if turn.case == case]
        everything = [ms for turn in results[case] for ms in turn]
        found[case] = {
            "turns": len(turns),
            "utterances": len(everything),
            "p50_ms": round(percentile(everything, 0.5), 2),
            "p99_ms": round(percentile(everything, 0.99), 2),
        } | {
            name: round(statistics.median(turn[name] for turn in turns), 3)
            for name in ("scheduler_cpu", "readers_cpu", "events_per_s")
        }
    for some, base in (("here", "nobody"), ("here", "elsewhere"), ("elsewhere", "nobody")):
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            pair = results[cast("Case", some)], results[cast("Case", base)]
            found[f"{name}_{some}_to_{base}"] = compare(*pair, share, chance)
    return found


# The process of the readers


class EventCounter(asyncio.Protocol):
    """One reader: asks, and counts the events of what it gets."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.events = 0
        # Set by the beginning of the answer.
        self.begun = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count."""
        if not self.begun.done():
            if not data.startswith(b"HTTP/1.1 200"):
                self.begun.set_exception(ConnectionError(data[:200].decode()))
                return
            self.begun.set_result(None)
        self.events += data.count(b"\nevent: ")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail if it had not begun."""
        if not self.begun.done():
            self.begun.set_exception(exc or ConnectionError("closed before it began"))


class AudienceReaders:
    """All readers of one process."""

    def __init__(self, url: str) -> None:
        self._name, _, self._port = url.removeprefix("http://").rpartition(":")
        # Events of consoles that were closed.
        self._past = 0
        self._open: dict[str, list[EventCounter]] = {}

    async def open(self, path: str, count: int) -> None:
        """Open so many streams of a path."""
        for at in range(0, count, AT_ONCE):
            some = range(min(AT_ONCE, count - at))
            opened = await asyncio.gather(*(self._open_one(path) for _ in some))
            self._open.setdefault(path, []).extend(opened)

    def close(self, path: str) -> None:
        """Close all streams of a path."""
        for counter in self._open.pop(path, ()):
            self._past += counter.events
            counter.transport.abort()

    async def _open_one(self, path: str) -> EventCounter:
        where = f"{self._name}:{self._port}"
        request = f"GET {path} HTTP/1.1\r\nHost: {where}\r\n\r\n".encode()
        loop = asyncio.get_running_loop()
        _, counter = await loop.create_connection(
            lambda: EventCounter(request), self._name, int(self._port)
        )
        async with asyncio.timeout(OPEN_S):
            await counter.begun
        return counter

    @property
    def tally(self) -> ReaderTally:
        """Return what was done so far; a stream that was lost is an error of the measurement."""
        counters = [counter for some in self._open.values() for counter in some]
        if any(counter.transport.is_closing() for counter in counters):
            raise ConnectionError("a stream has ended")
        return ReaderTally(self._past + sum(counter.events for counter in counters), process_time())


async def read_along(url: str, captions: str, count: int) -> None:
    """Read with so many; each line on the input is done and answered with the tally."""
    allow_many_sockets()
    # Real readers are on other machines: these use what the others leave of this one.
    os.nice(NICE)
    readers, console = AudienceReaders(url), "/api/v1/events"
    await readers.open(captions, count)
    print("reading", flush=True)  # noqa: T201 the parent reads it
    while line := await asyncio.to_thread(sys.stdin.readline):
        word, _, number = line.strip().partition(" ")
        if word == "consoles":
            readers.close(console)
            await readers.open(console, int(number))
        print(msgspec.json.encode(readers.tally).decode(), flush=True)  # noqa: T201 as above


def main(words: Sequence[str]) -> None:
    """Measure, or be the process of the readers."""
    if words[:1] == [READERS]:
        uvloop.run(read_along(words[1], words[2], int(words[3])))
        return
    plan = AudiencePlan()
    parser = argparse.ArgumentParser(prog="python -m lingua_bench.audience")
    for name, default in asdict(plan).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    measured = asyncio.run(measure(AudiencePlan(**vars(parser.parse_args(words)))))
    for name, value in report(measured).items():
        print(name, msgspec.json.encode(value).decode())  # noqa: T201 the result


if __name__ == "__main__":
    main(sys.argv[1:])
