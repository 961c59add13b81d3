"""A `lingua serve` with its private store for the stress tests, and nodes if they are wanted.

The processes are those of the chaos harness: they are killed at the end if they did not end before.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from lingua_bench.chaos.deployment import NodeProcesses
from lingua_bench.chaos.process import until
from lingua_bench.chaos.recording_node import NodePlan
from lingua_bench.chaos.scheduler_process import SchedulerProcess
from lingua_bench.chaos.store import PrivateStore

BOUND_S = 30.0
NODES = ("node-0", "node-1")
# Nodes report the load of the machine, which they share with everything else here.
NEVER_TOO_BUSY = {"LINGUA_NODES__RESOURCE_PERCENT_MAX": "100"}


def data_dir(place: Path) -> Path:
    return place / "data"


@contextlib.asynccontextmanager
async def serving(
    place: Path, settings: dict[str, str] | None = None, log_level: str = "warning"
) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler that is ready."""
    own = NEVER_TOO_BUSY | PrivateStore(data_dir(place)).settings()
    server = SchedulerProcess(0, place, own | (settings or {}), log_level=log_level)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


@contextlib.asynccontextmanager
async def serving_with_nodes(
    place: Path,
    *,
    work_ms: tuple[float, float],
    speech_bytes: int = 0,
    settings: dict[str, str] | None = None,
) -> AsyncIterator[SchedulerProcess]:
    """Run a scheduler with two nodes that are ready."""
    store = PrivateStore(data_dir(place))

    async def are_ready() -> bool:
        return await store.ready_nodes() == len(NODES)

    async with serving(place, settings) as server:
        plan = NodePlan(
            urls=(server.node_url(),),
            place=str(place),
            max_jobs=64,
            least_ms=work_ms[0],
            most_ms=work_ms[1],
            speech_bytes=speech_bytes,
        )
        nodes = NodeProcesses(plan, place / "nodes.log")
        await nodes.open()
        try:
            for name in NODES:
                await nodes.start(name)
            await until(are_ready, BOUND_S, "the nodes are ready")
            yield server
        finally:
            await nodes.close()


async def metrics_of(server: SchedulerProcess) -> dict[str, int]:
    """Read every metric, with its labels and summed over them."""
    await server.read_metrics()
    return server.counts
