"""`lingua bench placement`: how fast jobs are placed and settled, and how far from the ceiling.

On a private server without persistence, as task queues are usually measured, every fleet is
registered, then measured in turns of changing order, so that a slow moment of the machine meets
all of them:

* slices: pairs of job_submit and job_settle in a closed loop, 64 and 256 calls in flight, taking
  turns with the ceiling (`bench/ceiling.py`). Each call is sent alone and has a task, so that the
  cost of one is measured; other slices make the same pairs as an instance does, in steps, whose
  calls may go together. Reported are medians over the slices;
* batches: 64 submits and nothing else, then 64 settles: script time and commands by the server's
  own statistics. Reported are the lower quartile, because a stall of the machine only ever adds,
  and the minimum over the batches.

One fleet, the focus, gets more slices and is also measured on a second server as `local` mode runs
it, with the append-only file and an fsync every second. Every answer is checked, and at the end
every slot must be free and every outbox complete. Uses the store as any instance does;
`cli/bench.py` shows what comes out.
"""

from __future__ import annotations

import math
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from lingua_bench.ceiling import CeilingLoad
from lingua_bench.fleet import WORKERS, FleetShape, RealLoad, RegisteredFleet
from lingua_bench.load import require
from lingua_bench.report import FleetRow, PlacementReport, summary
from lingua_scheduler.config import RedisSettings, Settings
from lingua_scheduler.state.opening import open_connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from lingua_bench.load import Batch, LoadSample
    from lingua_scheduler.state.connection import Connection

    # Receives what is being done, and how much of all measuring is done.
    Tell = Callable[[str, float], None]

Item = TypeVar("Item")

NARROW, WIDE = 64, WORKERS
FOCUS = FleetShape(1_000, 20)
# The share of the time for slices; the rest is for batches.
SLICES_SHARE = 0.65
SHORTEST_SLICE_S = 0.02
# The focus is measured in every round; with the file, and other fleets, in every so many.
WITH_AOF_EVERY, OTHERS_EVERY = 2, 4
BATCH_ROUNDS_MIN, BATCH_ROUNDS_MAX = 3, 400
# Longer than a loaded machine may stall: a benchmark is not about timeouts.
CALL_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """What to measure, and for how long."""

    shapes: Sequence[FleetShape]
    # Measuring time, and how often the focus is measured in it.
    seconds: float
    rounds: int
    # Setting up included: if that took long, less is left for measuring.
    limit_s: float = math.inf

    @property
    def focus(self) -> FleetShape:
        """Return the fleet that is measured most often."""
        return FOCUS if FOCUS in self.shapes else self.shapes[-1]


async def measure(plan: PlacementPlan, tell: Tell) -> PlacementReport:
    """Run the whole benchmark."""
    limit = perf_counter() + plan.limit_s
    async with private_store() as durable, private_store() as volatile:
        await volatile.every_master("CONFIG", "SET", "appendonly", "no")
        subjects = []
        for shape in plan.shapes:
            tell(f"registering {shape}", 0.0)
            subjects.append(await Subject.set_up(volatile, shape, aof=False))
        with_aof = await Subject.set_up(durable, plan.focus, aof=True)
        began_at = perf_counter()
        end = min(began_at + plan.seconds, limit)
        slices_end = began_at + SLICES_SHARE * (end - began_at)
        await run_slices(schedule(plan, subjects, with_aof), slices_end, tell)
        await run_batches([*subjects, with_aof], end, tell)
        tell("checking that every slot is free", 1.0)
        for subject in (*subjects, with_aof):
            await subject.require_clean()
    rows = [subject.row() for subject in (*subjects, with_aof)]
    return PlacementReport(rows, summary(rows, FOCUS), with_aof.commands())


@asynccontextmanager
async def private_store() -> AsyncIterator[Connection]:
    """Start a server as `local` mode does, on a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="lingua-bench-") as directory:
        redis = RedisSettings(call_timeout_ms=CALL_TIMEOUT_MS)
        async with open_connection(Settings(data_dir=Path(directory), redis=redis)) as connection:
            yield connection


class Subject:
    """One fleet under measurement."""

    def __init__(
        self, fleet: RegisteredFleet, real: RealLoad, ceiling: CeilingLoad, *, aof: bool
    ) -> None:
        self.fleet = fleet
        self.real = real
        # The same sessions, with calls that go together.
        self.usual = RealLoad(fleet, real.speakers, fleet.usual_store)
        self.ceiling = ceiling
        self.aof = aof
        # The results so far; the ceiling runs at 256 in flight only.
        self.narrow: list[LoadSample] = []
        self.wide: list[LoadSample] = []
        self.stepwise: list[LoadSample] = []
        self.ceiling_wide: list[LoadSample] = []
        self.batches: list[tuple[Batch, Batch]] = []
        self.ceiling_batches: list[tuple[Batch, Batch]] = []

    @classmethod
    async def set_up(cls, connection: Connection, shape: FleetShape, *, aof: bool) -> Subject:
        """Register the fleet, open its sessions and warm up."""
        fleet = RegisteredFleet(connection, shape)
        await fleet.register()
        real = RealLoad(fleet, await fleet.open_sessions("real"), fleet.store)
        ceiling = await CeilingLoad.on(fleet, await fleet.open_sessions("bare"))
        await real.warm_up()
        await ceiling.warm_up()
        return cls(fleet, real, ceiling, aof=aof)

    def steps(self) -> list[SlicePlan]:
        """Return the slices of one round."""
        steps = [
            SlicePlan(self, self.real.run, WIDE, self.wide),
            SlicePlan(self, self.usual.run_in_steps, WIDE, self.stepwise),
            SlicePlan(self, self.ceiling.run, WIDE, self.ceiling_wide),
        ]
        narrow = SlicePlan(self, self.real.run, NARROW, self.narrow)
        return [narrow, *steps] if not self.aof else steps

    async def batch(self) -> None:
        """Let the server count one batch of each, which must make the same commands."""
        real, ceiling = await self.real.batch(), await self.ceiling.batch()
        for ours, bare in zip(real, ceiling, strict=True):
            made = f"the scripts made {ours.commands}, the ceiling {bare.commands}"
            require(ours.commands == bare.commands, f"{self.fleet.shape}: {made}")
        self.batches.append(real)
        self.ceiling_batches.append(ceiling)

    async def require_clean(self) -> None:
        """Raise unless everything is as it was before the load, and nothing is missing."""
        await self.fleet.require_idle()
        await self.real.require_complete()

    def commands(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the commands of one pair: ours, and the ceiling's."""
        ours, bare = (
            {name: submit.commands.get(name, 0) + settle.commands.get(name, 0) for name in names}
            for submit, settle in (self.batches[0], self.ceiling_batches[0])
            for names in [sorted({*submit.commands, *settle.commands})]
        )
        return ours, bare

    def row(self) -> FleetRow:
        """Return the results."""
        ours, bare = self.commands()
        submits, settles = ([pair[n].us_per_call for pair in self.batches] for n in (0, 1))
        bare_submits, bare_settles = (
            [pair[n].us_per_call for pair in self.ceiling_batches] for n in (0, 1)
        )
        rate, ceiling_rate = pairs_per_s(self.wide), pairs_per_s(self.ceiling_wide)
        return FleetRow(
            nodes=self.fleet.shape.nodes,
            signatures=self.fleet.shape.signatures,
            aof=self.aof,
            pairs_per_s_64=pairs_per_s(self.narrow) if self.narrow else None,
            pairs_per_s_256=rate,
            ceiling_pairs_per_s_256=ceiling_rate,
            ratio_to_ceiling=rate / ceiling_rate,
            submit_server_us=lower_quartile(submits),
            submit_server_us_min=min(submits),
            settle_server_us=lower_quartile(settles),
            settle_server_us_min=min(settles),
            ceiling_submit_server_us=lower_quartile(bare_submits),
            ceiling_settle_server_us=lower_quartile(bare_settles),
            client_us_per_call=client_us(self.wide),
            client_us_per_call_in_steps=client_us(self.stepwise),
            ceiling_client_us_per_call=client_us(self.ceiling_wide),
            commands_per_pair=sum(ours.values()),
            ceiling_commands_per_pair=sum(bare.values()),
            slices=len(self.wide),
            batches=len(self.batches),
            pairs_checked=self.real.pairs_made,
        )


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """One slice to run, and where its result goes."""

    subject: Subject
    run: Callable[[int, float], Awaitable[LoadSample]]
    width: int
    results: list[LoadSample]


def schedule(
    plan: PlacementPlan, subjects: Sequence[Subject], with_aof: Subject
) -> list[SlicePlan]:
    """Return all slices in order: the focus in every round, the others now and then."""
    steps: list[SlicePlan] = []
    chance = Random(1)
    for number in range(plan.rounds):
        looked_at = [
            subject
            for subject in subjects
            if subject.fleet.shape == plan.focus or number % OTHERS_EVERY == 0
        ]
        looked_at += [with_aof] if number % WITH_AOF_EVERY == 0 else []
        for subject in shuffled(looked_at, chance):
            steps += shuffled(subject.steps(), chance)
    return steps


def lower_quartile(values: Sequence[float]) -> float:
    """Return the lower quartile: stalls of the machine affect it little."""
    return sorted(values)[len(values) // 4]


async def run_slices(steps: Sequence[SlicePlan], end: float, tell: Tell) -> None:
    """Run the slices, each as long as the time that is left allows."""
    for number, step in enumerate(steps):
        tell(f"pairs: {step.subject.fleet.shape}", SLICES_SHARE * number / len(steps))
        seconds = max(SHORTEST_SLICE_S, (end - perf_counter()) / (len(steps) - number))
        step.results.append(await step.run(step.width, seconds))


async def run_batches(subjects: Sequence[Subject], end: float, tell: Tell) -> None:
    """Run batches of all fleets in turns until the time is over."""
    began_at, chance = perf_counter(), Random(1)
    for number in range(BATCH_ROUNDS_MAX):
        done = min(1.0, (perf_counter() - began_at) / max(end - began_at, 1e-9))
        if number >= BATCH_ROUNDS_MIN and done >= 1.0:
            return
        tell("server time per script", SLICES_SHARE + (1 - SLICES_SHARE) * done)
        for subject in shuffled(subjects, chance):
            await subject.batch()


def shuffled(items: Sequence[Item], chance: Random) -> list[Item]:
    """Return the items in another order: one that always came first would meet an idle server."""
    return chance.sample(items, len(items))


def pairs_per_s(slices: Sequence[LoadSample]) -> float:
    """Return the median rate of some slices."""
    return median(part.pairs / part.seconds for part in slices)


def client_us(slices: Sequence[LoadSample]) -> float:
    """Return the median CPU time of this process per script call."""
    return median(part.client_cpu_s / part.calls * 1e6 for part in slices)
