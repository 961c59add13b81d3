"""What an audience costs that only reads, and whether speakers notice it.

`python -m lingua_bench.audience` starts what `lingua bench live` starts, twice: a real scheduler
with its store and nodes that answer at once. On the first, sessions speak in real time. Beside them
2,000 readers of one room's captions and 200 consoles read: nowhere, on the same instance, or on the
other one, which serves no speakers. The last case is the control: readers are processes on this
machine too, and what their own work costs the speakers must not be taken for the service's.

The cases follow each other forth and back, many times, because the machine is never the same for
long. What counts is the ratio of neighbours: the middle one, and between which values half lie.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final, Literal, cast

import msgspec
import uvloop

from lingua_bench.live_orders import Paced
from lingua_bench.live_processes import allow_many_sockets, running_system, started
from lingua_bench.live_usage import children_of, usage_of
from lingua_bench.slow_readers import TARGET, RawRoomMember

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from lingua_bench.live_processes import LoadProcess

Case = Literal["nobody", "here", "elsewhere"]
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
# After readers came or left: their coming is not what is measured.
CALM_S: Final = 1.5
READERS: Final = "readers"
NICE: Final = 19


@dataclass(frozen=True, slots=True)
class AudiencePlan:
    """The size of the measurement."""

    readers: int = 2_000
    consoles: int = 200
    sessions: int = 100
    rounds: int = 3
    # How long each slice is measured.
    seconds: float = 6.0


@dataclass(frozen=True, slots=True)
class Slice:
    """One case, once."""

    case: Case
    p50_ms: float
    p99_ms: float
    # By the scheduler's own clock, in whole milliseconds: without what the load itself is late.
    timeline_p99_ms: float
    late_p99_ms: float
    # Shares of a core, and the memory of the scheduler with the speakers.
    scheduler_cpu: float
    readers_cpu: float
    scheduler_mb: float
    # Events that all readers together got in a second.
    events_per_s: float


class Tally(msgspec.Struct):
    """What the process of the readers has done since its start."""

    events: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Host:
    """An instance with a room whose captions are read."""

    load: LoadProcess
    url: str
    pid: int
    code: str

    def audience(self, plan: AudiencePlan) -> AbstractAsyncContextManager[ReadingProcess]:
        """Start the readers of this instance."""
        return reading(self.url, self.code, plan.readers, plan.consoles)


class ReadingProcess:
    """The process of the readers; without one nothing was read."""

    def __init__(self, process: asyncio.subprocess.Process | None) -> None:
        self._process = process

    async def tally(self) -> Tally:
        """Ask what it has done."""
        if self._process is None:
            return Tally(0, 0.0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"how much?\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), ORDER_EXTRA_S)
        return msgspec.json.decode(line, type=Tally)


async def measure(plan: AudiencePlan) -> list[Slice]:
    """Measure all cases, round by round."""
    slices: list[Slice] = []
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(_host())
        other = await stack.enter_async_context(_host())
        # One reader stays on each, so that the room's speech is translated in every case.
        for host in (here, other):
            await stack.enter_async_context(reading(host.url, host.code, 1, 0))
        order = Paced(sessions=plan.sessions, seconds=plan.seconds, final_every=FINAL_EVERY)
        await here.load.follow(order, order.seconds + ORDER_EXTRA_S)
        for case, times in groupby(ROUND * plan.rounds):
            async with _audience(case, here, other, plan) as readers:
                await asyncio.sleep(CALM_S)
                slices += [await _slice(case, here, readers, order) for _ in times]
    return slices


@asynccontextmanager
async def _host() -> AsyncIterator[Host]:
    async with running_system() as load:
        url = load.metrics_url.removesuffix("/metrics")
        speaker = RawRoomMember()
        await speaker.open(f"{url.replace('http', 'ws', 1)}/ws/session", SOURCE, TARGET)
        code = await speaker.create()
        speaking = asyncio.create_task(_speak(speaker))
        try:
            yield Host(load, url, _newest_scheduler(), code)
        finally:
            speaking.cancel()
            speaker.socket.abort()


@asynccontextmanager
async def _audience(
    case: Case, here: Host, other: Host, plan: AudiencePlan
) -> AsyncIterator[ReadingProcess]:
    if case == "nobody":
        yield ReadingProcess(None)
        return
    async with (here if case == "here" else other).audience(plan) as readers:
        yield readers


@asynccontextmanager
async def reading(
    url: str, code: str, readers: int, consoles: int
) -> AsyncIterator[ReadingProcess]:
    """Run a process that reads captions and the stream of the console."""
    words = (READERS, url, f"/captions/{code}?lang={TARGET}", str(readers), str(consoles))
    async with started("lingua_bench.audience", *words) as (process, _):
        yield ReadingProcess(process)


async def _slice(case: Case, here: Host, readers: ReadingProcess, order: Paced) -> Slice:
    # The readers are asked at the edges of the order, which takes longer than its window.
    began, before = monotonic(), await readers.tally()
    found = await here.load.follow(order, order.seconds + ORDER_EXTRA_S)
    whole_s, after = monotonic() - began, await readers.tally()
    return Slice(
        case=case,
        p50_ms=found.p50_ms,
        p99_ms=found.p99_ms,
        timeline_p99_ms=found.timeline_p99_ms,
        late_p99_ms=found.late_p99_ms,
        scheduler_cpu=found.scheduler_cpu_s / found.seconds,
        readers_cpu=(after.cpu_s - before.cpu_s) / whole_s,
        scheduler_mb=usage_of(here.pid).rss_kb / 1024,
        events_per_s=(after.events - before.events) / whole_s,
    )


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


# What was found


class Ratio(msgspec.Struct, frozen=True):
    """A ratio of neighbours: the middle one, and the values between which half of them lie."""

    median: float
    low: float
    high: float
    pairs: int


def ratios(slices: Sequence[Slice], case: Case, base: Case, field: str) -> Ratio:
    """Compare a case with another one, each slice with the nearest ones of the other case."""
    found = []
    for at, one in enumerate(slices):
        if one.case != case:
            continue
        near = [
            (abs(at - other), getattr(slices[other], field))
            for other in range(len(slices))
            if slices[other].case == base
        ]
        least = min(away for away, _ in near)
        closest = [value for away, value in near if away == least]
        found.append(getattr(one, field) / max(0.001, statistics.fmean(closest)))
    low, median, high = statistics.quantiles(found, n=4, method="inclusive")
    return Ratio(round(median, 3), round(low, 3), round(high, 3), len(found))


def middle(slices: Sequence[Slice], case: Case) -> dict[str, float]:
    """Return the median of every number of a case."""
    chosen = [asdict(one) for one in slices if one.case == case]
    names = [name for name in chosen[0] if name != "case"]
    return {name: round(statistics.median(one[name] for one in chosen), 3) for name in names}


def report(slices: Sequence[Slice]) -> dict[str, object]:
    """Return what each case costs, and how speakers' latencies compare."""
    cases: tuple[Case, ...] = ("nobody", "here", "elsewhere")
    return {
        "slices": len(slices),
        **{case: middle(slices, case) for case in cases},
        "p50_here_to_nobody": ratios(slices, "here", "nobody", "p50_ms"),
        "p99_here_to_nobody": ratios(slices, "here", "nobody", "p99_ms"),
        "p99_here_to_elsewhere": ratios(slices, "here", "elsewhere", "p99_ms"),
        "p99_elsewhere_to_nobody": ratios(slices, "elsewhere", "nobody", "p99_ms"),
    }


# The process of the readers


class EventCounter(asyncio.Protocol):
    """One reader: asks, and counts the events of what it gets."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.events = 0
        # Set by the first event or beginning of a stream.
        self.begun = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count."""
        if not self.begun.done():
            if not data.startswith(b"HTTP/1.1 200"):
                self.begun.set_exception(ConnectionError(data[:200].decode()))
                return
            self.begun.set_result(None)
        self.events += data.count(b"\nevent: ")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell that a stream ended: none may during the measurement."""
        if not self.begun.done():
            self.begun.set_exception(exc or ConnectionError("closed before it began"))
        print("a stream ended", exc, file=sys.stderr)  # noqa: T201 the person who measures reads it


async def read_along(url: str, captions: str, readers: int, consoles: int) -> None:
    """Read with so many; each line on the input is answered with what they did."""
    allow_many_sockets()
    # Real readers are on other machines: these use what the others leave of this one.
    os.nice(NICE)
    name, _, port = url.removeprefix("http://").rpartition(":")
    loop = asyncio.get_running_loop()
    counters: list[EventCounter] = []

    async def open_one(path: str) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode()
        _, counter = await loop.create_connection(lambda: EventCounter(request), name, int(port))
        counters.append(counter)
        async with asyncio.timeout(OPEN_S):
            await counter.begun

    paths = [captions] * readers + ["/api/v1/events"] * consoles
    for at in range(0, len(paths), AT_ONCE):
        await asyncio.gather(*map(open_one, paths[at : at + AT_ONCE]))
    print("reading", flush=True)  # noqa: T201 the parent reads it
    while await asyncio.to_thread(sys.stdin.readline):
        done = Tally(sum(counter.events for counter in counters), process_time())
        print(msgspec.json.encode(done).decode(), flush=True)  # noqa: T201 the parent reads it


def main(words: Sequence[str]) -> None:
    """Measure, or be the process of the readers."""
    if words[:1] == [READERS]:
        uvloop.run(read_along(words[1], words[2], int(words[3]), int(words[4])))
        return
    plan = AudiencePlan()
    parser = argparse.ArgumentParser(prog="python -m lingua_bench.audience")
    for name, default in asdict(plan).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    slices = asyncio.run(measure(AudiencePlan(**vars(parser.parse_args(words)))))
    for one in slices:
        print(msgspec.json.encode(one).decode())  # noqa: T201 the result
    print(msgspec.json.encode(report(slices)).decode())  # noqa: T201 the result


if __name__ == "__main__":
    main(sys.argv[1:])
