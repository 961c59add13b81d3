"""Real speech under faults: engines, nodes and schedulers are killed while clients speak.

    running_deployment (store, 2 schedulers)    chaos_client (RecordingClient) ──> ClientHistory
    chaos_nodes (2 nodes of real engines)                                              │
        ▲                                                              chaos_report.check
    chaos_nemesis (faults in the order of a seed)

A scenario of the chaos harness with real nodes. The first round is without faults: its texts are
the reference. The second round is under faults, and the clients speak until all faults are done. No
process that was started is left behind.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_bench.chaos.deployment import running_deployment
from lingua_bench.chaos.process import HarnessFailed, reason_of
from lingua_bench.chaos.scenarios import Scenario
from lingua_bench.chaos.store import StoreFailed
from lingua_bench.speech.chaos_client import RecordingClient, recordings_of
from lingua_bench.speech.chaos_nemesis import SpeechChaosPlan, SpeechNemesis
from lingua_bench.speech.chaos_nodes import open_speech_nodes
from lingua_bench.speech.chaos_report import ChaosReport, check, reference_of
from lingua_bench.speech.process_registry import ProcessRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from lingua_bench.chaos.deployment import Deployment
    from lingua_bench.speech.chaos_nodes import SpeechNode
    from lingua_bench.speech.chaos_report import ClientHistory

# Errors that end a run, or its faults, and are reported: the harness or the store does not answer.
BROKEN: Final = (HarnessFailed, StoreFailed, OSError, TimeoutError)
SCENARIO: Final = Scenario(
    "speech",
    "real engines, nodes and schedulers killed while clients speak",
    instances=2,
    nodes=2,
    max_jobs=2,
    is_real_speech=True,
)
KILLS: Final = ("kill_asr", "kill_nmt", "kill_tts", "kill_node", "kill_scheduler")
QUICK: Final = SpeechChaosPlan(2, 3, (*KILLS, "stop_tts"), gap_s=1.0, bound_s=150.0)
FULL: Final = SpeechChaosPlan(
    4, 8, (*KILLS, "stop_tts", *KILLS, "stop_asr", *KILLS, "stop_nmt"), gap_s=3.0, bound_s=420.0
)


async def play(plan: SpeechChaosPlan, tell: Callable[[str], None]) -> ChaosReport:
    """Speak without faults and under faults; return the report."""
    report, registry, began = ChaosReport(), ProcessRegistry(os.getpid()), monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="lingua-chaos-speech-") as place:
            async with asyncio.timeout(plan.bound_s):
                await _Play(Path(place), plan, report, tell).run(registry)
    except (*BROKEN, ExceptionGroup) as error:
        report.mishaps.append(f"the run broke off: {reason_of(error)}")
    finally:
        report.left_over = await registry.end()
    report.wall_s = monotonic() - began
    return report


class _Play:
    """One run."""

    def __init__(
        self, place: Path, plan: SpeechChaosPlan, report: ChaosReport, tell: Callable[[str], None]
    ) -> None:
        self._place = place
        self._plan = plan
        self._report = report
        self._tell = tell
        self._recordings = recordings_of(plan.sessions, plan.recordings)

    async def run(self, registry: ProcessRegistry) -> None:
        """Start everything, play both rounds, and stop everything."""
        report = self._report
        self._tell("starting a store, two schedulers and two nodes of real engines")
        async with AsyncExitStack() as stack:
            watching = asyncio.create_task(registry.watch())
            stack.callback(watching.cancel)
            running = running_deployment(self._place, SCENARIO)
            deployment = await stack.enter_async_context(running)
            nodes = await open_speech_nodes(deployment, stack)
            self._tell("speaking without faults, in real time")
            undisturbed = await self._round(deployment)
            reference = reference_of(undisturbed)
            report.undisturbed = check(undisturbed, reference=reference)
            self._tell("speaking under fire")
            nemesis = SpeechNemesis(deployment, nodes, self._plan)
            stack.callback(nemesis.close)
            under_fire = await self._round(deployment, self._rage(nemesis))
            report.faults = nemesis.faults
            report.under_fire = check(under_fire, nemesis.faults, reference)
            registry.note()
            report.mishaps += await _stop(deployment, nodes)
            report.restarts = sum(node.restarts for node in nodes)

    async def _rage(self, nemesis: SpeechNemesis) -> None:
        try:
            await nemesis.rage(self._tell)
        except BROKEN as error:
            # Everything spoken until then still gets its outcomes, and is checked.
            self._report.mishaps.append(f"it did not heal: {reason_of(error)}")

    async def _round(
        self, deployment: Deployment, raging: Coroutine[Any, Any, None] | None = None
    ) -> list[ClientHistory]:
        """Let all clients speak until everything was spoken once and all faults are done."""
        urls = [instance.client_url() for instance in deployment.instances]
        clients = [
            RecordingClient(number, recordings, urls)
            for number, recordings in enumerate(self._recordings)
        ]
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for client in clients:
                group.create_task(client.run(enough))
            if raging is not None:
                await raging
            enough.set()
        return [client.history for client in clients]


async def _stop(deployment: Deployment, nodes: Sequence[SpeechNode]) -> list[str]:
    """Ask all processes to end, nodes first; return what went wrong."""
    await asyncio.gather(*(node.stop() for node in nodes))
    codes = await asyncio.gather(*(instance.stop() for instance in deployment.instances))
    return [f"a scheduler ended with {code}" for code in codes if code]
