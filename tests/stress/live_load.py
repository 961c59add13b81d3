"""The live path under load and faults: real processes, recorded histories, an offline checker.

    scheduler, nodes, clients   `live_cast.py`
    Nemesis                     kills nodes and starts them again, freezes them and lets them go on
    the checker                 `live_history.py`

`python tests/stress/live_load.py --full` plays the whole load and prints the figures (`--quick`: a
small one); `test_live_nodes.py` plays the small one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).parents[1]))  # a script does not have it
import servers
from stress.live_cast import (
    BOUND_S,
    Cradle,
    Load,
    NodeKind,
    Scheduler,
    child,
    cradle,
    role,
    said_by,
    scheduler,
)
from stress.live_history import Fault, Figures, check, percentile, problems

# How long late and repeated outcomes have to show up, when all is quiet.
AFTERMATH_S = 1.0
# A node is frozen when it has so many jobs, if that comes soon.
CATCH_MIN, LOOKS_MAX = 3, 200

FULL = Load(
    sessions=100, utterances=50, nodes=10, max_jobs=32, window=4, pause_s=0.6,
    kill_every_s=0.06, freeze_every_s=2.0, frozen_max=3, well_min=3,
)  # fmt: skip
QUICK = Load(
    sessions=40, utterances=20, nodes=8, max_jobs=16, window=4, pause_s=0.4,
    kill_every_s=0.08, freeze_every_s=1.0, frozen_max=3, well_min=2,
)  # fmt: skip


class Nemesis:
    """Kills and freezes nodes, never too many at a time."""

    def __init__(self, server: Scheduler, cradle: Cradle, load: Load) -> None:
        self.faults: list[Fault] = []
        self._cradle = cradle
        self._load = load
        self._server = server
        self._chance = Random(load.seed)
        # Node -> its process; those that something is being done to.
        self._pids: dict[str, int] = {}
        self._faulty: set[str] = set()
        self._frozen_count = 0
        # Set when there has been enough harm.
        self.calm = asyncio.Event()

    async def start_nodes(self) -> None:
        for number in range(self._load.nodes):
            name = f"node-{number}"
            self._pids[name] = await self._cradle.start(name)

    async def rage(self) -> None:
        """Do harm until told to stop; then every node is well again."""
        load = self._load
        async with asyncio.TaskGroup() as group:
            group.create_task(self._again_and_again(load.freeze_every_s, self._freeze))
            group.create_task(self._again_and_again(load.kill_every_s, self._kill))

    async def _again_and_again(self, every_s: float, harm: Callable[[str], Any]) -> None:
        async with asyncio.TaskGroup() as group:
            while not self.calm.is_set():
                await self._nap(self._chance.expovariate(1 / every_s))
                well = sorted(self._pids.keys() - self._faulty)
                enough = harm == self._freeze and self._frozen_count >= self._load.frozen_max
                if len(well) > self._load.well_min and not enough:
                    name = self._chance.choice(well)
                    self._faulty.add(name)
                    group.create_task(self._one(harm, name))

    async def _one(self, harm: Callable[[str], Any], name: str) -> None:
        before = self._server.ready_socket(name)
        await harm(name)
        # It is well when it may be given work again, on a new socket.
        for _ in range(LOOKS_MAX):
            await self._nap(0.01)
            if self._server.ready_socket(name) not in (b"", before):
                break
        self._faulty.discard(name)

    async def _kill(self, name: str) -> None:
        """Kill it, half of the times when it is stopped and what came last is still unread."""
        pid, since = self._pids[name], monotonic()
        if self._chance.random() < 0.5:
            os.kill(pid, signal.SIGSTOP)
            await self._nap(self._chance.uniform(0.02, 0.3))
        at = monotonic()
        os.kill(pid, signal.SIGKILL)
        self.faults.append(Fault("kill", pid, at, (since, at)))
        self._pids[name] = await self._cradle.start(name)

    async def _freeze(self, name: str) -> None:
        """Stop it for longer than anyone waits, and let it come back with its old results."""
        self._frozen_count += 1
        for _ in range(LOOKS_MAX):
            if self._server.leases(name) >= CATCH_MIN:
                break
            await self._nap(0.005)
        pid, at = self._pids[name], monotonic()
        os.kill(pid, signal.SIGSTOP)
        await self._nap(self._chance.uniform(6.8, 8.0))
        os.kill(pid, signal.SIGCONT)
        self.faults.append(Fault("freeze", pid, at, (at, monotonic())))
        self._frozen_count -= 1

    async def _nap(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.calm.wait(), seconds)


async def run(load: Load, say: Callable[[str], None] = print) -> Figures:
    """Play a load with its faults and check what was recorded."""
    began, cpu = monotonic(), cpu_s()
    with tempfile.TemporaryDirectory(prefix="live-") as directory:
        place = Path(directory)
        attempts = {"LINGUA_JOBS__ATTEMPTS_MAX": str(load.attempts_max)}
        async with scheduler(place, **attempts) as server:
            kind = NodeKind(load.max_jobs)
            async with cradle(server.ws("/ws/node"), place, kind) as nodes:
                figures = await play(load, place, server, Nemesis(server, nodes, load), say)
            figures.exit_code = await server.stop()
        cores = [
            (now - then) / (monotonic() - began) for now, then in zip(cpu_s(), cpu, strict=True)
        ]
        figures.cores_ours, figures.cores_others = cores[0], cores[1] - cores[0]
        return figures


def cpu_s() -> tuple[float, float]:
    """Return the CPU time of this process with its ended children, and of the whole machine."""
    ours = sum(os.times()[:4])
    ticks = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    idle_and_waiting = int(ticks[3]) + int(ticks[4])
    return ours, (sum(map(int, ticks)) - idle_and_waiting) / os.sysconf("SC_CLK_TCK")


def lag_of(metrics: dict[str, float]) -> str:
    """Return within what the event loop ran its timers: half of them, and 99 of 100."""
    name = "scheduler_loop_lag_seconds"
    buckets = [
        (float(key.partition('le="')[2].partition('"')[0]), count)
        for key, count in metrics.items()
        if key.startswith(f"{name}_bucket{{")
    ]
    found = []
    for part in (0.5, 0.99):
        wanted = part * metrics[f"{name}_count"]
        found.append(min(limit for limit, count in buckets if count >= wanted) * 1000)
    return f"p50 <= {found[0]:.0f}, p99 <= {found[1]:.0f}"


async def play(
    load: Load, place: Path, server: Scheduler, nemesis: Nemesis, say: Callable[[str], None]
) -> Figures:
    async def all_ready() -> None:
        await servers.until(lambda: server.ready_nodes() == load.nodes, BOUND_S, "nodes are ready")

    began = monotonic()
    await nemesis.start_nodes()
    await all_ready()
    described = msgspec.json.encode(load).decode()
    async with child(role("clients", server.ws("/ws/session"), place, described)) as clients:
        raging = asyncio.create_task(nemesis.rage())
        say(await said_by(clients, load.bound_s + BOUND_S))
        nemesis.calm.set()
        await raging
        quiet = monotonic()
        await servers.until(lambda: not server.leases(), 10, "every lease is free")
        freed_s = monotonic() - quiet
        await all_ready()
        await asyncio.sleep(AFTERMATH_S)
        left, metrics = server.leases(), await server.metrics()
        assert clients.stdin is not None
        clients.stdin.write(b"close\n")
        assert await said_by(clients) == "closed"
    figures = check(load, place, nemesis.faults)
    figures.leases_left, figures.leases_free_s = left, freed_s
    figures.stale = int(metrics["scheduler_results_stale_total"])
    figures.internal_errors = int(metrics["scheduler_internal_errors_total"])
    figures.delivered_by_metric = int(metrics["scheduler_jobs_total"])
    figures.loop_lag_ms = lag_of(metrics)
    figures.wall_s = monotonic() - began
    return figures


def main(arguments: list[str]) -> int:
    """Play a load and print the figures; 1 if one of them must not be."""
    load = QUICK if "--quick" in arguments else FULL
    figures = asyncio.run(run(load))
    found = problems(figures, load)
    for name, values, limit in (
        ("re-dispatch after a kill, p99", figures.after_kill_ms, 300),
        ("re-dispatch after a freeze, max", figures.after_freeze_ms, 6500),
    ):
        if values and percentile(values, 0.99 if "p99" in name else 1) > limit:
            found.append(f"{name} is above {limit} ms")
    print(figures.table(), *(f"PROBLEM: {problem}" for problem in found), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
