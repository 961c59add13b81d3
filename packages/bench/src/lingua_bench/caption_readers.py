"""What readers of a room's captions cost, and whether speakers notice them.

`python -m lingua_bench.caption_readers` starts what `lingua bench live` starts: a real scheduler
with its store, nodes that answer at once, sessions that speak in real time. Beside them one speaker
in a room, whose captions nobody reads, or two thousand readers, in turns, because the machine is
never the same for long. The readers are a process of their own and read Server-Sent Events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lingua_bench.live_orders import Paced
from lingua_bench.live_processes import allow_many_sockets, running_system, started
from lingua_bench.live_usage import children_of, usage_of
from lingua_bench.slow_readers import TARGET, RawRoomMember

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_bench.live_orders import OrderResult
    from lingua_bench.live_processes import LoadProcess

SOURCE: Final = "zh"
# An utterance of the speaker in the room: how often, and how long.
EVERY_S: Final = 1.0
CHUNKS: Final = 10
AT_ONCE: Final = 50
ORDER_EXTRA_S: Final = 60.0
READERS: Final = "readers"
NICE: Final = 19


@dataclass(frozen=True, slots=True)
class ReaderPlan:
    """The size of the measurement."""

    readers: int = 2_000
    sessions: int = 50
    # How often both cases are measured, and how long each time.
    turns: int = 3
    seconds: float = 6.0


@dataclass(frozen=True, slots=True)
class CaptionTurn:
    """One turn: without or with readers."""

    readers: int
    p50_ms: float
    p99_ms: float
    # By the scheduler's own clock, in whole milliseconds: without what the load itself is late.
    timeline_p99_ms: float
    late_p99_ms: float
    scheduler_cpu: float
    scheduler_mb: float
    # Captions that all readers together got.
    captions: int = 0


async def measure(plan: ReaderPlan) -> list[CaptionTurn]:
    """Measure both cases in turns."""
    turns: list[CaptionTurn] = []
    async with running_system() as load:
        url = load.metrics_url.removesuffix("/metrics")
        scheduler = _scheduler()
        speaker = RawRoomMember()
        await speaker.open(f"{url.replace('http', 'ws', 1)}/ws/session", SOURCE, TARGET)
        code = await speaker.create()
        speaking = asyncio.create_task(_speak(speaker))
        order = Paced(sessions=plan.sessions, seconds=plan.seconds)
        try:
            await load.follow(order, plan.seconds + ORDER_EXTRA_S)
            for _ in range(plan.turns):
                turns.append(_turn(0, await _follow(load, order), scheduler))
                address = f"{url}/captions/{code}?lang={TARGET}"
                async with started(
                    "lingua_bench.caption_readers", READERS, address, str(plan.readers)
                ) as (readers, _):
                    found = _turn(plan.readers, await _follow(load, order), scheduler)
                    assert readers.stdin is not None
                    assert readers.stdout is not None
                    readers.stdin.write(b"how many?\n")
                    captions = int(await asyncio.wait_for(readers.stdout.readline(), ORDER_EXTRA_S))
                turns.append(CaptionTurn(**(asdict(found) | {"captions": captions})))
        finally:
            speaking.cancel()
            speaker.socket.abort()
    return turns


async def _follow(load: LoadProcess, order: Paced) -> OrderResult:
    return await load.follow(order, order.seconds + ORDER_EXTRA_S)


def _turn(readers: int, found: OrderResult, scheduler: int) -> CaptionTurn:
    return CaptionTurn(
        readers=readers,
        p50_ms=found.p50_ms,
        p99_ms=found.p99_ms,
        timeline_p99_ms=found.timeline_p99_ms,
        late_p99_ms=found.late_p99_ms,
        scheduler_cpu=found.scheduler_cpu_s / found.seconds,
        scheduler_mb=usage_of(scheduler).rss_kb / 1024,
    )


async def _speak(speaker: RawRoomMember) -> None:
    while True:
        speaker.say(CHUNKS)
        await asyncio.sleep(EVERY_S)


def _scheduler() -> int:
    """Return the process of `lingua serve`, which this process has started."""
    for pid in children_of(os.getpid()):
        if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("the scheduler runs")


# The process of the readers


class _Readers:
    def __init__(self) -> None:
        self.captions = 0
        self.reading: list[asyncio.Task[None]] = []
        # Kept: a writer that is forgotten closes its connection.
        self.writers: list[asyncio.StreamWriter] = []

    async def open(self, url: str) -> None:
        """Open one feed, and count its captions from then on."""
        host, _, path = url.removeprefix("http://").partition("/")
        name, _, port = host.rpartition(":")
        reader, writer = await asyncio.open_connection(name, int(port), limit=1 << 16)
        self.writers.append(writer)
        writer.write(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        await reader.readuntil(b"retry: 2000\n\n")
        self.reading.append(asyncio.create_task(self._read(reader)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 16):
            self.captions += data.count(b"event: caption\n")


async def read_along(url: str, count: int) -> None:
    """Read with so many readers; a line on the input is answered with what they got."""
    allow_many_sockets()
    # Real readers are on other machines: these use what the others leave of this one.
    os.nice(NICE)
    readers = _Readers()
    for at in range(0, count, AT_ONCE):
        await asyncio.gather(*(readers.open(url) for _ in range(min(AT_ONCE, count - at))))
    print("reading", flush=True)  # noqa: T201 the parent reads it
    await asyncio.to_thread(sys.stdin.readline)
    print(readers.captions, flush=True)  # noqa: T201 the parent reads it


def main(words: Sequence[str]) -> None:
    """Measure, or be the process of the readers."""
    if words[:1] == [READERS]:
        asyncio.run(read_along(words[1], int(words[2])))
        return
    plan = ReaderPlan()
    parser = argparse.ArgumentParser(prog="python -m lingua_bench.caption_readers")
    for name, default in asdict(plan).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    for turn in asyncio.run(measure(ReaderPlan(**vars(parser.parse_args(words))))):
        print(json.dumps(asdict(turn)))  # noqa: T201 the result


if __name__ == "__main__":
    main(sys.argv[1:])
