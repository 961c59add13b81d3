"""Plays a scenario: starts everything, lets clients speak, injects faults, checks the histories."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos import scheduler_process
from lingua_bench.chaos.checker import check
from lingua_bench.chaos.cross_instance import play_cross_instance
from lingua_bench.chaos.deployment import (
    ClientProcess,
    Deployment,
    participants_of,
    running_deployment,
    speakers_of,
)
from lingua_bench.chaos.findings import ChaosFindings
from lingua_bench.chaos.history import RESULT
from lingua_bench.chaos.marked_audio import QUIET_BOUND_S
from lingua_bench.chaos.nemesis import Nemesis
from lingua_bench.chaos.process import HarnessFailed, reason_of, until
from lingua_bench.chaos.report import Run
from lingua_bench.chaos.scenarios import is_counted
from lingua_bench.chaos.scenarios import scenario as scenario_of
from lingua_bench.chaos.stream_leases import StreamLeaseWatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_bench.chaos.report import Tell
    from lingua_bench.chaos.scenarios import Scenario, Selection, Size

# How long late and repeated outcomes have to arrive after everything became quiet.
AFTERMATH_S: Final = 1.0
# How long after its death the inbox entries of an instance are adopted at the latest.
ADOPTION_S: Final = 8.0
EXTRA_S: Final = 15.0
# What is measured while a run goes on, and not found in its histories.
MEASURED: Final = (
    "stale_rejected",
    "adopted",
    "internal_errors",
    "leases_left",
    "leases_free_s",
    "stream_leases_left",
)


async def play_all(
    selection: Selection,
    tell: Tell,
    *,
    seed: int = 1,
    keep: Path | None = None,
    change: Callable[[Scenario], Scenario] | None = None,
) -> list[Run]:
    """Play scenarios one after another; histories and logs are kept if a directory is given."""
    runs: list[Run] = []
    for number, (name, size) in enumerate(selection):
        done = number / len(selection)

        def tell_part(what: str, part: float, name: str = name, done: float = done) -> None:
            tell(f"{name}: {what}", done + part / len(selection))

        runs.append(await play(name, size, tell_part, seed=seed, keep=keep, change=change))
    return runs


async def play(
    name: str,
    size: Size,
    tell: Tell,
    *,
    seed: int = 1,
    keep: Path | None = None,
    change: Callable[[Scenario], Scenario] | None = None,
) -> Run:
    """Play one scenario, as it is or changed by a function."""
    scenario = scenario_of(name, size, seed)
    if change is not None:
        scenario = change(scenario)
    player = play_cross_instance if name == "hop" else run_in
    if keep is not None:
        place = keep / f"{name}-{size}-{seed}"
        place.mkdir(parents=True)
        return await player(place, scenario, tell)
    with tempfile.TemporaryDirectory(prefix="lingua-chaos-") as made:
        return await player(Path(made), scenario, tell)


async def run_in(place: Path, scenario: Scenario, tell: Tell) -> Run:
    """Play a scenario in a directory and check the histories there."""
    began = monotonic()
    measured = ChaosFindings()
    try:
        async with asyncio.timeout(scenario.bound_s):
            await _Play(place, scenario, measured, tell).run()
    except (HarnessFailed, TimeoutError, ExceptionGroup) as error:
        measured.mishaps.append(f"the run broke off: {reason_of(error)}")
    tell("checking the histories", 1.0)
    findings = check(place)
    for name in MEASURED:
        setattr(findings, name, getattr(measured, name))
    if is_counted(scenario):
        findings.metrics = compared(measured.counted, findings)
    findings.mishaps = measured.mishaps
    findings.wall_s = monotonic() - began
    return Run(scenario, findings)


def compared(counted: Counter[str], findings: ChaosFindings) -> dict[str, tuple[int, int]]:
    """Return the counts of the schedulers beside those of the histories."""
    heard = findings.missing + Counter(
        {RESULT: findings.outcomes - findings.missing.total() - findings.duplicates}
    )
    ends = {
        f"jobs {kind}": (counted[scheduler_process.ended(kind)], heard[told])
        for kind, told in scheduler_process.ENDS.items()
    }
    return {"utterances": (counted[scheduler_process.UTTERANCES], findings.utterances)} | ends


class _Play:
    """One run."""

    def __init__(
        self, place: Path, scenario: Scenario, measured: ChaosFindings, tell: Tell
    ) -> None:
        self._place = place
        self._scenario = scenario
        self._measured = measured
        self._tell = tell
        self._planned = sum(scenario.faults.values())
        # The client processes: single speakers, participants of rooms, or both.
        self._speaking: list[ClientProcess] = []

    async def run(self) -> None:
        self._tell("starting store, schedulers, nodes, speakers", 0.0)
        async with AsyncExitStack() as stack:
            deployment = await stack.enter_async_context(
                running_deployment(self._place, self._scenario)
            )
            self._speaking += [speakers_of(deployment)] if self._scenario.sessions else []
            self._speaking += [participants_of(deployment)] if self._scenario.rooms else []
            for group in self._speaking:
                stack.push_async_callback(group.kill)
                await group.start()
            watching = asyncio.create_task(StreamLeaseWatch(self._place, deployment.store).run())
            stack.push_async_callback(_cancel, watching)
            nemesis = Nemesis(deployment, Random(self._scenario.seed))
            stack.callback(nemesis.close)
            await self._harm(nemesis)
            self._tell("waiting for utterances in progress", 0.9)
            await self._each(lambda group: group.stop(QUIET_BOUND_S + EXTRA_S))
            await self._rest(deployment)
            await self._each(ClientProcess.close)
            if self._scenario.ends_by_term:
                await self._end_schedulers(deployment)

    async def _harm(self, nemesis: Nemesis) -> None:
        """Speak and inject faults until there was enough of both."""
        faults, hands = faults_of(self._scenario), self._scenario.hands
        shares = [faults[hand::hands] for hand in range(hands)]
        for group in self._speaking:
            group.go()
        async with asyncio.TaskGroup() as tasks:
            raging = [
                tasks.create_task(nemesis.rage(share, self._scenario.gap_s * hands))
                for share in shares
            ]
            while not (all(task.done() for task in raging) and self._is_enough()):
                for group in self._speaking:
                    await group.follow()
                said = self._sent() / self._scenario.utterances
                done = min(1.0, said, nemesis.done / max(1, self._planned))
                self._tell(f"{nemesis.done} of {self._planned} faults", 0.1 + 0.8 * done)

    async def _each(self, step: Callable[[ClientProcess], Awaitable[None]]) -> None:
        await asyncio.gather(*(step(group) for group in self._speaking))

    def _sent(self) -> int:
        return sum(group.sent for group in self._speaking)

    def _is_enough(self) -> bool:
        wanted_moves = self._scenario.moves * self._scenario.sessions
        moved = sum(group.moved for group in self._speaking)
        return self._sent() >= self._scenario.utterances and moved >= wanted_moves

    async def _rest(self, deployment: Deployment) -> None:
        """Measure when everything is quiet: slots must become free and stay free."""

        async def is_free() -> bool:
            return not await deployment.store.leases()

        limit_s = self._scenario.rules.leases_max_s
        try:
            self._measured.leases_free_s = await until(is_free, limit_s, "every slot is free")
        except HarnessFailed:
            self._measured.leases_free_s = limit_s
        await asyncio.sleep(AFTERMATH_S)
        self._measured.leases_left = await deployment.store.leases()
        self._measured.stream_leases_left = len(await deployment.store.stream_leases())
        with contextlib.suppress(HarnessFailed):  # the run is then void, and reports it
            await until(partial(self._count, deployment), ADOPTION_S, "everything was counted")

    async def _end_schedulers(self, deployment: Deployment) -> None:
        for instance in deployment.instances:
            code = await instance.stop()
            if code:
                self._measured.mishaps.append(f"{instance.name} ended with {code}")

    async def _count(self, deployment: Deployment) -> bool:
        """Read the counts of the schedulers; false while a required count is still missing."""
        counts, measured = await deployment.counts(), self._measured
        measured.counted = counts
        measured.stale_rejected = counts[scheduler_process.STALE]
        measured.adopted = counts[scheduler_process.ADOPTED]
        measured.internal_errors = counts[scheduler_process.INTERNAL]
        needs = self._scenario.rules.needs
        is_adopted = measured.adopted > 0 or "adoption" not in needs
        return is_adopted and (measured.stale_rejected > 0 or "stale" not in needs)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def faults_of(scenario: Scenario) -> list[str]:
    """Return every fault of a scenario, in an order of its seed."""
    faults = list(Counter(scenario.faults).elements())
    Random(scenario.seed).shuffle(faults)
    return faults
