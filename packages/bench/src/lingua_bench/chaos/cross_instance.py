"""The cost of a speaker on another instance than the node's: one run, both cases by turns.

All nodes are on the first instance. Speakers of the first and of the second instance take turns, so
that a slow moment of the machine affects both. Nodes answer after a fixed time, which is not
counted. CPU is that of both schedulers together, and of the store.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos.checker import check, percentile
from lingua_bench.chaos.deployment import running_deployment, speakers_of
from lingua_bench.chaos.history import CLIENTS, OutcomeReceived, UtteranceSent, read_lines
from lingua_bench.chaos.report import CrossInstanceCost, Run
from lingua_bench.live_usage import usage_of

if TYPE_CHECKING:
    from pathlib import Path

    from lingua_bench.chaos.deployment import ClientProcess, Deployment
    from lingua_bench.chaos.report import Tell
    from lingua_bench.chaos.scenarios import Scenario, Size

TURN_S: Final = 3.0
# Of both sides together.
TURNS: Final[dict[Size, int]] = {"ci": 2, "quick": 4, "full": 16}
QUIET_S: Final = 30.0


@dataclass(slots=True)
class MeasuredSide:
    """The speakers of one instance and the CPU time used while they spoke."""

    first: int
    speakers: ClientProcess
    utterances: int = 0
    schedulers_s: float = 0.0
    store_s: float = 0.0
    waits_ms: list[float] = field(default_factory=list)

    def part_ms(self, part: float) -> float:
        """Return the time within which this part of the outcomes arrived."""
        return percentile(self.waits_ms, part)


async def play_cross_instance(place: Path, scenario: Scenario, tell: Tell) -> Run:
    """Measure both cases by turns."""
    began = monotonic()
    async with AsyncExitStack() as stack:
        tell("starting store, schedulers, nodes, speakers", 0.0)
        deployment = await stack.enter_async_context(running_deployment(place, scenario))
        sides = [await _side(deployment, host, stack) for host in (0, 1)]
        turns = TURNS[scenario.size]
        for turn in range(turns):
            tell("taking turns", turn / turns)
            await _take_turn(deployment, sides[turn % 2])
        for side in sides:
            await side.speakers.stop(QUIET_S)
            await side.speakers.close()
    findings = check(place)
    findings.wall_s = monotonic() - began
    for side in sides:
        side.waits_ms = _waits_ms(place, side.first, scenario.least_ms)
    return Run(scenario, findings, _cost(*sides))


async def _side(deployment: Deployment, host: int, stack: AsyncExitStack) -> MeasuredSide:
    first = host * deployment.scenario.sessions
    side = MeasuredSide(first, speakers_of(deployment, [host], first))
    stack.push_async_callback(side.speakers.kill)
    await side.speakers.start()
    return side


async def _take_turn(deployment: Deployment, side: MeasuredSide) -> None:
    """Let one side speak for a while and measure the CPU time."""
    loop = asyncio.get_running_loop()
    before, sent, until = _spent(deployment), side.speakers.sent, loop.time() + TURN_S
    side.speakers.go()
    while loop.time() < until:
        await side.speakers.follow()
    await side.speakers.hush()
    after = _spent(deployment)
    side.utterances += side.speakers.sent - sent
    side.schedulers_s += after[0] - before[0]
    side.store_s += after[1] - before[1]


def _spent(deployment: Deployment) -> tuple[float, float]:
    schedulers = sum(usage_of(instance.pid).cpu_s for instance in deployment.instances)
    return schedulers, usage_of(deployment.store.server.pid).cpu_s


def _waits_ms(place: Path, first: int, node_ms: float) -> list[float]:
    """Return how long outcomes took after the end of their utterance, without the node's time."""
    lines = list(read_lines(place / CLIENTS.replace("*", str(first))))
    ends = {
        (line.speaker, line.number): line.at for line in lines if isinstance(line, UtteranceSent)
    }
    return [
        (line.at - ends[line.speaker, line.index]) * 1000 - node_ms
        for line in lines
        if isinstance(line, OutcomeReceived)
    ]


def _cost(same: MeasuredSide, cross: MeasuredSide) -> CrossInstanceCost:
    return CrossInstanceCost(
        same_p50_ms=same.part_ms(0.5),
        same_p99_ms=same.part_ms(0.99),
        cross_p50_ms=cross.part_ms(0.5),
        cross_p99_ms=cross.part_ms(0.99),
        same_cpu_us=1e6 * same.schedulers_s / same.utterances,
        cross_cpu_us=1e6 * cross.schedulers_s / cross.utterances,
        same_store_us=1e6 * same.store_s / same.utterances,
        cross_store_us=1e6 * cross.store_s / cross.utterances,
    )
