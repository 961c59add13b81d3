"""The load process of `lingua bench live`: all clients, one order at a time.

Reads orders from stdin and writes results to stdout (`live_orders.py`). It measures at the edges of
its own window: what it sent and received, what every process used meanwhile, and how late it was
itself. A load that cannot keep up reports it, and its result is then no limit of the scheduler.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING, Final

import msgspec
import uvloop

from lingua_bench.live_nodes import read_stamp
from lingua_bench.live_orders import (
    ClosedLoop,
    MemoryOrder,
    OpenLoop,
    Order,
    OrderResult,
    Paced,
    SpreadLoop,
    Watched,
    decode_order,
    encode,
)
from lingua_bench.live_relay import CLIENT_PATH, BareClient, connect_bare
from lingua_bench.live_speaker import BenchmarkSession, SpeakerMessage, Tally, open_speakers
from lingua_bench.live_speech import FRAME_MS, speech_frames
from lingua_bench.live_usage import ProcessUsage, usage_of, usage_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

AUDIO: Final = bytes(2048)
# The sessions are spread evenly over so many moments of each 100 ms.
SLOTS: Final = 50
# An utterance is cut this long after its final frame (`segmentation.hangover_manual_ms`).
HANGOVER_MS: Final = 200
SETTLE_S: Final = 15.0
QUIET_S: Final = 0.4
OPEN_LOOP_SESSIONS: Final = 16
FINISHED_AT_ONCE: Final = 5


@dataclass(frozen=True, slots=True)
class WindowEdge:
    """One edge of a window."""

    at: float
    own_cpu_s: float
    schedulers: ProcessUsage
    store: ProcessUsage
    nodes: ProcessUsage
    relay: ProcessUsage

    @classmethod
    def now(cls, watched: Watched) -> WindowEdge:
        """Read the clock and the usage of every process."""
        return cls(
            at=monotonic(),
            own_cpu_s=process_time(),
            schedulers=usage_of_all(watched.schedulers),
            store=usage_of(watched.store),
            nodes=usage_of(watched.nodes),
            relay=usage_of(watched.relay),
        )


class Window:
    """What is counted between two edges."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self.is_open = False
        self.round_trips_s: list[float] = []
        self.timelines_ms: list[int] = []
        self.lateness_s: list[float] = []
        self.frames = 0
        self._opened: WindowEdge

    def open(self) -> None:
        """Start counting."""
        self._opened = WindowEdge.now(self._watched)
        self.is_open = True

    def close(self) -> OrderResult:
        """Stop counting, and return the result."""
        self.is_open = False
        begun, ended = self._opened, WindowEdge.now(self._watched)
        return OrderResult(
            seconds=ended.at - begun.at,
            utterances=len(self.round_trips_s),
            frames=self.frames,
            p50_ms=percentile(self.round_trips_s, 0.50) * 1000,
            p99_ms=percentile(self.round_trips_s, 0.99) * 1000,
            timeline_p99_ms=percentile(self.timelines_ms, 0.99),
            late_p99_ms=percentile(self.lateness_s, 0.99) * 1000,
            scheduler_cpu_s=ended.schedulers.cpu_s - begun.schedulers.cpu_s,
            store_cpu_s=ended.store.cpu_s - begun.store.cpu_s,
            rewrites_cpu_s=ended.store.children_cpu_s - begun.store.children_cpu_s,
            nodes_cpu_s=ended.nodes.cpu_s - begun.nodes.cpu_s,
            relay_cpu_s=ended.relay.cpu_s - begun.relay.cpu_s,
            clients_cpu_s=ended.own_cpu_s - begun.own_cpu_s,
        )


class Clients:
    """All sessions of this process and the orders that it can follow."""

    def __init__(self, url: str, relay_url: str, watched: Watched) -> None:
        self._url = url
        self._relay_url = relay_url
        self._watched = watched
        self._tally = Tally()
        self._frames = speech_frames()

    async def follow(self, order: Order) -> OrderResult:
        """Follow an order, then wait until every utterance has had its outcome."""
        if isinstance(order, ClosedLoop):
            found = await (self._relayed if order.kind == "relayed" else self._closed)(order)
        elif isinstance(order, OpenLoop):
            found = await self._open(order)
        elif isinstance(order, SpreadLoop):
            found = await self._spread(order)
        elif isinstance(order, MemoryOrder):
            found = await self._memory(order)
        else:
            found = await self._paced(order)
        tally = self._tally
        found.lost, found.duplicates, found.inversions = (
            tally.lost,
            tally.duplicates,
            tally.inversions,
        )
        found.missing = tally.outcomes["missing_result"]
        found.partials = tally.partials
        found.errors = dict(tally.errors)
        return found

    # Whole utterances

    async def _closed(self, order: ClosedLoop) -> OrderResult:
        window = Window(self._watched)
        is_stopped = False

        def again(speaker: BenchmarkSession, sent_at: float, heard: SpeakerMessage) -> None:
            if window.is_open:
                window.round_trips_s.append(monotonic() - sent_at)
                window.timelines_ms.append(overhead_of(heard))
            if not is_stopped:
                speaker.say(AUDIO)

        speakers = await open_speakers(self._url, order.sessions, self._tally, again)
        for speaker in speakers:
            for _ in range(order.each):
                speaker.say(AUDIO)
        found = await self._measure(window, order.warm_s, order.seconds)
        is_stopped = True
        await self._part(speakers)
        return found

    async def _open(self, order: OpenLoop) -> OrderResult:
        window = Window(self._watched)
        dues: dict[tuple[str, int], float] = {}

        def take(speaker: BenchmarkSession, sent_at: float, heard: SpeakerMessage) -> None:
            # From the planned moment, or a stall would hide the wait that it causes.
            due = dues.pop((speaker.session_id, heard.utterance_index), sent_at)
            window.round_trips_s.append(monotonic() - due)
            window.timelines_ms.append(overhead_of(heard))

        speakers = await open_speakers(self._url, OPEN_LOOP_SESSIONS, self._tally, take)
        window.open()
        began = monotonic()
        for number in range(int(order.rate * order.seconds)):
            due = began + number / order.rate
            await asyncio.sleep(max(0.0, due - monotonic()))
            window.lateness_s.append(monotonic() - due)
            speaker = speakers[number % len(speakers)]
            dues[speaker.session_id, speaker.say(AUDIO)] = due
        await self._settle()
        found = window.close()
        await self._part(speakers)
        return found

    async def _spread(self, order: SpreadLoop) -> OrderResult:
        window = Window(self._watched)
        is_stopped = False
        turns: Iterator[BenchmarkSession] = iter(())

        def next_one(_: BenchmarkSession, sent_at: float, heard: SpeakerMessage) -> None:
            if window.is_open:
                window.round_trips_s.append(monotonic() - sent_at)
                window.timelines_ms.append(overhead_of(heard))
            if not is_stopped:
                next(turns).say(AUDIO)

        speakers = await open_speakers(self._url, order.sessions, self._tally, next_one)
        turns = cycle(speakers)
        for _ in range(order.in_flight):
            next(turns).say(AUDIO)
        found = await self._measure(window, order.warm_s, order.seconds)
        is_stopped = True
        await self._part(speakers)
        return found

    async def _relayed(self, order: ClosedLoop) -> OrderResult:
        window = Window(self._watched)

        def take(round_trip_s: float) -> None:
            if window.is_open:
                window.round_trips_s.append(round_trip_s)

        clients = [BareClient(order.each, take) for _ in range(order.sessions)]
        url = f"{self._relay_url}{CLIENT_PATH}"
        transports = await asyncio.gather(*(connect_bare(client, url) for client in clients))
        found = await self._measure(window, order.warm_s, order.seconds)
        for client, transport in zip(clients, transports, strict=True):
            client.is_stopped = True
            transport.disconnect(graceful=False)
        return found

    # Streams

    async def _paced(self, order: Paced) -> OrderResult:
        window = Window(self._watched)
        samples: list[tuple[float, float]] = []

        def take(_: BenchmarkSession, sent_at: float, heard: SpeakerMessage) -> None:
            if window.is_open:
                came_at, went_at = read_stamp(heard.text_asr)
                on_node_s = went_at - came_at
                now = monotonic()
                added_s = now - sent_at - HANGOVER_MS / 1000 - on_node_s
                window.round_trips_s.append(added_s)
                if order.samples:
                    samples.append((now, added_s * 1000))
                window.timelines_ms.append(overhead_of(heard))

        speakers = await open_speakers(
            self._url, order.sessions, self._tally, take, wants_partials=order.streamed
        )
        pacer = asyncio.create_task(self._pace(speakers, order, window))
        try:
            found = await self._measure(window, order.warm_s, order.seconds)
        finally:
            pacer.cancel()
            await asyncio.wait([pacer])
        if not pacer.cancelled():
            pacer.result()
        if order.samples:
            data = msgspec.json.encode(samples)
            await asyncio.to_thread(Path(order.samples).write_bytes, data)
        await self._finish(speakers)
        await self._part(speakers)
        return found

    async def _finish(self, speakers: Sequence[BenchmarkSession]) -> None:
        """End the open utterances one after the other: all at once would be an extra load."""
        for number, speaker in enumerate(speakers):
            speaker.stream(self._frames[0], is_final=True)
            if number % FINISHED_AT_ONCE == 0:
                await asyncio.sleep(FINISHED_AT_ONCE / 1000)

    async def _pace(
        self, speakers: Sequence[BenchmarkSession], order: Paced, window: Window
    ) -> None:
        """Send each session one frame every 100 ms, the sessions spread over that time."""
        every, frames = order.final_every, self._frames
        slots = [list(enumerate(speakers))[slot::SLOTS] for slot in range(SLOTS)]
        slot_s = FRAME_MS / 1000 / SLOTS
        began = monotonic()
        for tick in range(int((order.warm_s + order.seconds + SETTLE_S) / slot_s)):
            due = began + tick * slot_s
            if (left := due - monotonic()) > 0:
                await asyncio.sleep(left)
            elif tick % SLOTS == 0:
                await asyncio.sleep(0)  # late: still let results be read
            turn, slot = tick // SLOTS, slots[tick % SLOTS]
            for number, speaker in slot:
                # Utterances end at different times, too.
                at = turn + number
                is_final = every > 0 and at % every == every - 1
                speaker.stream(frames[at % len(frames)], is_final=is_final)
            if window.is_open:
                window.frames += len(slot)
                window.lateness_s.append(monotonic() - due)

    async def _memory(self, order: MemoryOrder) -> OrderResult:
        before = await self._quiet_rss_kb()
        speakers = await open_speakers(self._url, order.idle, self._tally)
        idle = await self._quiet_rss_kb()
        speaking = speakers[: order.speaking]
        for number in range(order.frames):
            for speaker in speaking:
                speaker.stream(self._frames[number % len(self._frames)], is_final=False)
            await asyncio.sleep(FRAME_MS / 1000)
        spoken = await self._quiet_rss_kb()
        idle_kb = (idle - before) / order.idle
        await self._finish(speaking)
        await self._part(speakers)
        return OrderResult(idle_kb=idle_kb, speaking_kb=idle_kb + (spoken - idle) / order.speaking)

    async def _quiet_rss_kb(self) -> int:
        await asyncio.sleep(QUIET_S)
        return usage_of_all(self._watched.schedulers).rss_kb

    # What orders share

    async def _measure(self, window: Window, warm_s: float, seconds: float) -> OrderResult:
        await asyncio.sleep(warm_s)
        window.open()
        await asyncio.sleep(seconds)
        return window.close()

    async def _part(self, speakers: Sequence[BenchmarkSession]) -> None:
        await self._settle()
        await asyncio.gather(*(speaker.leave() for speaker in speakers))

    async def _settle(self) -> None:
        """Wait until every utterance has had its outcome, but not for ever."""
        until = monotonic() + SETTLE_S
        while self._tally.lost and monotonic() < until:  # noqa: ASYNC110 no one event tells it
            await asyncio.sleep(0.02)


def overhead_of(heard: SpeakerMessage) -> int:
    """Return accept to assign plus result to deliver, by the timeline of a result."""
    parts = heard.timeline
    if parts is None:
        return 0
    return parts.place_ms + parts.queue_ms + parts.push_ms + parts.settle_ms


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all values stays below; 0 without values."""
    if not values:
        return 0.0
    return float(sorted(values)[min(len(values) - 1, int(len(values) * share))])


async def serve(clients: Clients, say: Callable[[bytes], None]) -> None:
    """Follow orders from stdin until there are no more."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        say(encode(await clients.follow(decode_order(line))) + b"\n")


async def main(url: str, relay_url: str, watched: Watched) -> None:
    """Run the load process."""

    def say(line: bytes) -> None:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()

    clients = Clients(url, relay_url, watched)
    say(b"ready\n")
    await serve(clients, say)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], msgspec.json.decode(sys.argv[3], type=Watched)))
