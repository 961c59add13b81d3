"""The faults of the chaos of real speech: workers, nodes and schedulers are killed or stopped.

One process at a time is harmed, at work if it can be caught there, and the next fault waits until
the last one has healed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from dataclasses import dataclass
from itertools import count
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_bench.chaos.fault_runner import FaultRunner
from lingua_bench.chaos.process import until
from lingua_bench.speech.chaos_nodes import HEAL_S
from lingua_bench.speech.process_registry import process_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_bench.chaos.deployment import Deployment
    from lingua_bench.chaos.history import InjectedFault
    from lingua_bench.speech.chaos_nodes import SpeechNode

CATCH_S: Final = 6.0
CATCH_POLL_S: Final = 0.002


@dataclass(frozen=True, slots=True)
class SpeechChaosPlan:
    """How much is spoken, and which faults are injected."""

    sessions: int
    recordings: int
    # `kill_` or `stop_` and the target, in this order.
    kinds: tuple[str, ...]
    # Mean pause before each fault.
    gap_s: float
    bound_s: float
    seed: int = 1


class PlannedFault(NamedTuple):
    """A fault to inject: not before its time, and not before the last fault has healed."""

    at_s: float
    kind: str
    # Which of the schedulers; of nodes and workers one that has work.
    scheduler: int


def schedule(plan: SpeechChaosPlan) -> list[PlannedFault]:
    """Return the faults with their times, by the seed; schedulers are killed in turn."""
    chance, at_s = Random(plan.seed), 0.0
    turn = count(chance.randrange(2))
    blows = []
    for kind in plan.kinds:
        at_s += chance.uniform(0.5, 1.5) * plan.gap_s
        blows.append(PlannedFault(at_s, kind, next(turn) % 2 if kind == "kill_scheduler" else 0))
    return blows


class SpeechNemesis(FaultRunner):
    """Injects the faults of a plan into a deployment with real engines."""

    def __init__(
        self, deployment: Deployment, nodes: Sequence[SpeechNode], plan: SpeechChaosPlan
    ) -> None:
        super().__init__(deployment.place, Random(plan.seed))
        self._deployment = deployment
        self._nodes = nodes
        self._planned = schedule(plan)
        self._scheduler = 0
        self.faults: list[InjectedFault] = []

    async def rage(self, tell: Callable[[str], None]) -> None:
        """Inject all faults; raises `HarnessFailed` if something does not heal."""
        began = monotonic()
        for planned in self._planned:
            await asyncio.sleep(max(0.0, planned.at_s - (monotonic() - began)))
            self._scheduler = planned.scheduler
            await self.do(planned.kind)
            fault = self.faults[-1]
            tell(f"{fault.kind} of {fault.target}, healed after {fault.until - fault.at:.1f} s")

    async def inject(self, kind: str) -> None:
        """Inject one fault and wait until it has healed."""
        action, _, target = kind.partition("_")
        if target == "scheduler":
            at, name = await self._kill_scheduler(self._scheduler)
        elif target == "node":
            at, name = await self._kill_node()
        else:
            at, name = await self._harm_worker(target, is_killed=action == "kill")
        self.faults.append(self.note(kind, name, at))

    async def _kill_scheduler(self, number: int) -> tuple[float, str]:
        instance = self._deployment.instances[number]
        at = monotonic()
        await instance.kill()
        await instance.start()
        await until(self._deployment.nodes_are_ready, HEAL_S, "both nodes are ready again")
        return at, instance.name

    async def _kill_node(self) -> tuple[float, str]:
        node, _ = await self._catch("asr")
        await node.count()
        at = monotonic()
        await node.kill()
        await node.start()
        await until(self._deployment.nodes_are_ready, HEAL_S, "both nodes are ready again")
        return at, node.name

    async def _harm_worker(self, stage: str, *, is_killed: bool) -> tuple[float, str]:
        """Kill a worker, or stop it until its node has noticed that it hangs."""
        await asyncio.gather(*(node.count() for node in self._nodes))
        before = {node.name: node.restarts for node in self._nodes}
        node, pid = await self._catch(stage)
        at = monotonic()
        with contextlib.suppress(ProcessLookupError):  # it ended without us, and is replaced
            os.kill(pid, signal.SIGKILL if is_killed else signal.SIGSTOP)

        async def has_healed() -> bool:
            return await node.has_healed(before[node.name])

        await until(has_healed, HEAL_S, f"{node.name} has a new {stage} worker")
        return at, f"{node.name} {stage}"

    async def _catch(self, stage: str) -> tuple[SpeechNode, int]:
        """Return a worker of this stage that is working, or any if none is caught at work."""
        found: dict[int, SpeechNode] = {}

        async def are_known() -> bool:
            for node in self._nodes:
                found.update({pid: node for pid, its in node.workers().items() if its == stage})
            return bool(found)

        await until(are_known, HEAL_S, f"there is a {stage} worker")
        deadline = monotonic() + CATCH_S
        while monotonic() < deadline:
            for pid, node in found.items():
                if process_state(pid)[0] == "R":
                    return node, pid
            await asyncio.sleep(CATCH_POLL_S)
        pid = self.chance.choice(sorted(found))
        return found[pid], pid
