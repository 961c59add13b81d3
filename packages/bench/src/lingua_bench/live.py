"""`lingua bench live`: the whole live path over real sockets, as clients and nodes see it.

A real `lingua serve` with its private store, nodes that answer at once and clients that check every
outcome, each in a process of their own (`live_processes.py`). In this order, because memory that
was freed once hides what a session costs:

* memory: RSS growth per idle session, and per one that speaks;
* round trips with one utterance under way, and at 100 per second from the planned instant;
* closed loops of 64 and 256 utterances (2 KB, whole messages), in turns with the bare relay
  (`live_relay.py`), whose ratio to the scheduler outlives a slow moment of the machine;
* frames: sessions that speak without an end, so that nothing but frames costs;
* paced: sessions that speak in real time, an utterance every 3 s; the most whose p99 overhead
  (accept to assign plus result to deliver) is within 20 ms, by doubling, then halving the rest. A
  machine that is too busy for the first number gets half of it, and so on, until a load fits;
* if asked for, streamed frames in turns with plain ones: each is also sent to a node, which reports
  words that the session receives;
* if asked for, growth: the same 256 utterances in turn over few and over many open sessions.

CPU is that of all processes of the scheduler together; the store's stands beside it, and the sum of
both. `commands/bench_live.py` shows what comes out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_bench.live_metrics import peer_traffic
from lingua_bench.live_orders import ClosedLoop, MemoryOrder, OpenLoop, Paced, SpreadLoop
from lingua_bench.live_processes import running_system
from lingua_bench.live_report import (
    LiveReport,
    LiveSummary,
    PacedRow,
    best_of,
    closed_row,
    paced_row,
)
from lingua_bench.live_speaker import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_bench.live_orders import Order, OrderResult
    from lingua_bench.live_processes import LoadProcess
    from lingua_bench.live_report import ClosedRow

    # Receives what is being done, and how much of all measuring is done.
    Tell = Callable[[str, float], None]

NARROW: Final = ClosedLoop(sessions=16, each=4, seconds=0)
WIDE: Final = ClosedLoop(sessions=64, each=4, seconds=0)
# Who say one utterance at a time, in turn: a session may send 1,000 a second, and one would.
SINGLE_SESSIONS: Final = 8
FRAME_SESSIONS: Final = 500
GROWTH: Final = (100, 1_000, 5_000)
# A session may have 8 utterances in progress, and the fewest sessions must carry all of them.
GROWTH_WIDTH: Final = 256
# Longer than any order takes: opening, settling and closing come on top of the measured time.
ORDER_EXTRA_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class LivePlan:
    """What to measure, and for how long."""

    slice_s: float
    slices: int
    single_s: float
    frames_s: float
    memory: MemoryOrder
    # The first number of sessions, the most, how long each try lasts and how many there are.
    paced_first: int
    paced_most: int
    paced_s: float
    paced_tries: int
    # How often a number of sessions may fail before it counts as too many.
    paced_chances: int
    # No further paced try is started after so long, once some number of sessions has fitted.
    limit_s: float
    # The fewest sessions that are tried on a machine where nothing fits.
    paced_least: int = 25
    # The numbers of open sessions over which the growth of the cost is measured.
    growth: tuple[int, ...] = ()
    # Processes of the scheduler that share the work.
    workers: int = 1
    # Frames are also measured with nodes that listen.
    streaming: bool = False


QUICK = LivePlan(
    slice_s=1.6,
    slices=2,
    single_s=2.0,
    frames_s=2.5,
    memory=MemoryOrder(idle=1000, speaking=200, frames=8),
    paced_first=1000,
    paced_most=4000,
    paced_s=3.2,
    paced_tries=3,
    paced_chances=1,
    limit_s=32.0,
)
FULL = LivePlan(
    slice_s=4.0,
    slices=5,
    single_s=8.0,
    frames_s=8.0,
    memory=MemoryOrder(idle=2000, speaking=500, frames=15),
    paced_first=500,
    paced_most=8000,
    paced_s=9.0,
    paced_tries=12,
    paced_chances=2,
    limit_s=400.0,
)


async def measure_live(plan: LivePlan, tell: Tell) -> LiveReport:
    """Run the whole benchmark."""
    tell("starting scheduler, nodes, clients", 0.0)
    async with running_system(plan.workers) as load:
        return await LiveBench(plan, load, tell).run()


class LiveBench:
    """One run: gives the orders and keeps their results."""

    def __init__(self, plan: LivePlan, load: LoadProcess, tell: Tell) -> None:
        self._plan = plan
        self._load = load
        self._tell = tell
        self._until = perf_counter() + plan.limit_s
        # The last one holds the counts of the whole run.
        self._found: list[OrderResult] = []

    async def run(self) -> LiveReport:
        """Measure everything."""
        plan = self._plan
        memory = await self._do("memory per session", 0.05, plan.memory)
        single = await self._do(
            "one utterance at a time",
            0.15,
            SpreadLoop(sessions=SINGLE_SESSIONS, in_flight=1, seconds=plan.single_s),
        )
        steady = await self._do("100 per second", 0.2, OpenLoop(rate=100, seconds=plan.single_s))
        before = await peer_traffic(self._load.metrics_url)
        narrow, wide, bare = await self._closed()
        after = await peer_traffic(self._load.metrics_url)
        growth = await self._growth()
        frames, streamed = await self._frames()
        paced = await self._paced()
        rows = [
            closed_row("1 in flight", [single]),
            closed_row("100 per second", [steady]),
            closed_row("64 in flight", narrow),
            closed_row("256 in flight", wide),
            closed_row("256 through the bare relay", bare, relayed=True),
        ]
        last = self._found[-1]
        return LiveReport(
            closed=rows,
            paced=sorted(paced, key=lambda row: row.sessions),
            growth=growth,
            relay_ratio=rows[3].scheduler_cpu_us / rows[4].scheduler_cpu_us,
            rss_kb_per_speaking_session=memory.speaking_kb,
            missing=last.missing,
            errors=last.errors,
            summary=self._summary(
                rows, paced, (frames, streamed), memory, letters=after.per_outcome_since(before)
            ),
        )

    def _summary(
        self,
        rows: Sequence[ClosedRow],
        paced: Sequence[PacedRow],
        frames: tuple[float, float | None],
        memory: OrderResult,
        *,
        letters: float,
    ) -> LiveSummary:
        single, _, narrow, wide, _ = rows
        best, last = best_of(paced), self._found[-1]
        return LiveSummary(
            utterances_per_s_64=narrow.per_s,
            utterances_per_s_256=wide.per_s,
            round_trip_p50_ms=single.p50_ms,
            round_trip_p99_ms=single.p99_ms,
            cpu_us_per_utterance=wide.scheduler_cpu_us,
            cpu_us_per_frame=frames[0],
            paced_sessions=best.sessions if best else None,
            paced_p99_ms=(best or min(paced, key=lambda row: row.sessions)).timeline_p99_ms,
            rss_kb_per_session=memory.idle_kb,
            lost=last.lost,
            duplicates=last.duplicates,
            inversions=last.inversions,
            cpu_us_all=wide.all_cpu_us,
            cpu_us_store=wide.store_cpu_us + wide.rewrites_cpu_us,
            workers=self._plan.workers,
            letters_per_outcome=letters,
            frame_us_streamed=frames[1],
            frame_streamed_ratio=frames[1] / frames[0] if frames[1] is not None else None,
        )

    async def _frames(self) -> tuple[float, float | None]:
        """Return the CPU of a frame, and that of a streamed one if it is asked for, in turns."""
        seconds = self._plan.frames_s
        plain = [await self._do("frames", 0.5, speech_without_end(seconds))]
        if not self._plan.streaming:
            return frame_us(plain), None
        streamed = []
        for _ in range(self._plan.slices):
            order = speech_without_end(seconds, streamed=True)
            before = self._found[-1].partials
            streamed.append(await self._do("streamed frames", 0.52, order))
            if streamed[-1].partials == before:
                raise LoadFailed("no node listened: nothing was streamed")
            plain.append(await self._do("frames", 0.52, speech_without_end(seconds)))
        return frame_us(plain), frame_us(streamed)

    async def _closed(self) -> tuple[list[OrderResult], list[OrderResult], list[OrderResult]]:
        """Take turns, so that a slow moment of the machine affects all cases."""
        narrow: list[OrderResult] = []
        wide: list[OrderResult] = []
        bare: list[OrderResult] = []
        seconds = self._plan.slice_s
        for number in range(self._plan.slices):
            done = 0.25 + 0.25 * number / self._plan.slices
            narrow.append(await self._do("64 in flight", done, loop(NARROW, seconds)))
            wide.append(await self._do("256 in flight", done, loop(WIDE, seconds)))
            relayed = loop(WIDE, seconds / 2, relayed=True)
            bare.append(await self._do("the bare relay", done, relayed))
        return narrow, wide, bare

    async def _growth(self) -> list[ClosedRow]:
        """Measure the same load over few and over many sessions, in turns."""
        counts, seconds = self._plan.growth, self._plan.slice_s
        found: dict[int, list[OrderResult]] = {sessions: [] for sessions in counts}
        for _ in range(self._plan.slices):
            for sessions, slices in found.items():
                order = SpreadLoop(sessions=sessions, in_flight=GROWTH_WIDTH, seconds=seconds)
                slices.append(await self._do(f"{sessions} open sessions", 0.5, order))
        return [closed_row(f"{sessions} sessions", slices) for sessions, slices in found.items()]

    async def _paced(self) -> list[PacedRow]:
        """Find the highest number of sessions that is served as promised."""
        plan, rows = self._plan, list[PacedRow]()
        while (sessions := next_try(rows, plan)) is not None:
            is_enough = len(rows) >= plan.paced_tries or perf_counter() > self._until
            # Until a number has fitted there is no result: it goes on, down to the fewest.
            if is_enough and best_of(rows):
                break
            done = 0.6 + 0.4 * min(1.0, len(rows) / plan.paced_tries)
            order = Paced(sessions=sessions, seconds=plan.paced_s)
            told = sum(self._found[-1].errors.values())
            found = await self._do(f"paced: {sessions} sessions", done, order)
            rows.append(paced_row(sessions, found, sum(found.errors.values()) - told))
        return rows

    async def _do(self, what: str, done: float, order: Order) -> OrderResult:
        self._tell(what, done)
        seconds = getattr(order, "seconds", 0.0)
        found = await self._load.follow(order, seconds + ORDER_EXTRA_S)
        self._found.append(found)
        return found


def speech_without_end(seconds: float, *, streamed: bool = False) -> Paced:
    """Return sessions that speak and never end an utterance: nothing but frames costs."""
    return Paced(sessions=FRAME_SESSIONS, seconds=seconds, final_every=0, streamed=streamed)


def frame_us(slices: Sequence[OrderResult]) -> float:
    """Return the scheduler's CPU of a frame, the median of some slices, in microseconds."""
    return median(1e6 * one.scheduler_cpu_s / max(1, one.frames) for one in slices)


def loop(shape: ClosedLoop, seconds: float, *, relayed: bool = False) -> ClosedLoop:
    """Return a closed loop of this shape and length."""
    return ClosedLoop(
        sessions=shape.sessions,
        each=shape.each,
        seconds=seconds,
        kind="relayed" if relayed else "whole",
    )


def next_try(rows: Sequence[PacedRow], plan: LivePlan) -> int | None:
    """Return the next number of sessions to try: doubling while it goes well, then in between.

    A number that failed is tried again first, as often as planned: a stall of the machine only
    adds. As long as no number fits it is half of the last one, down to the fewest.
    """
    if not rows:
        return plan.paced_first
    good = max((row.sessions for row in rows if row.is_within), default=0)
    failed = Counter(row.sessions for row in rows if row.sessions > good)
    if not failed:
        return min(2 * good, plan.paced_most) if good < plan.paced_most else None
    bad = min(failed)
    if failed[bad] < plan.paced_chances:
        return bad
    if not good:
        return max(bad // 2, plan.paced_least) if bad > plan.paced_least else None
    middle = (good + bad) // 2
    # Below this distance the machine's noise decides.
    return middle if middle - good > max(10, good // 20) else None
