"""The processes of a run: schedulers, nodes, clients, the store, and proxies between them.

All are real processes on 127.0.0.1 that can be killed by their pid and started again on their port.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_bench.chaos.deliveries import Deliveries, receiving_deliveries
from lingua_bench.chaos.marked_audio import RoomPlan, SpeechPlan
from lingua_bench.chaos.process import HarnessFailed, Process, until
from lingua_bench.chaos.proxy import ProxiedLink, Proxy, open_proxy
from lingua_bench.chaos.recording_node import NodePlan
from lingua_bench.chaos.scheduler_process import START_S, SchedulerProcess
from lingua_bench.chaos.store import (
    ChaosCluster,
    ChaosStore,
    private_store,
    running_cluster,
    running_store,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from lingua_bench.chaos.scenarios import Scenario

# The machine is meant to be busy.
SETTINGS: Final = {
    "LINGUA_DEPLOYMENT_MODE": "cross_instance",
    "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
}
# Only the client cuts, so that the utterances are known.
MARKED_AUDIO_SETTINGS: Final = {
    "LINGUA_SEGMENTATION__HANGOVER_MANUAL_MS": "0",
    "LINGUA_SEGMENTATION__PAUSE_MS": "0",
    "LINGUA_SEGMENTATION__VOICE_DETECTOR": "off",
}


class NodeProcesses:
    """The nodes by name; each has one process after another."""

    def __init__(self, plan: NodePlan, log: Path) -> None:
        described = msgspec.json.encode(plan).decode()
        module = "lingua_bench.chaos.recording_node"
        self._fork_server = Process([sys.executable, "-m", module, described], log)
        self._lock = asyncio.Lock()
        self.pids: dict[str, int] = {}

    async def open(self) -> None:
        """Start the fork server."""
        await self._fork_server.start()

    async def start(self, name: str) -> None:
        """Start a node's process."""
        async with self._lock:
            self._fork_server.write_line(name)
            self.pids[name] = int(await self._fork_server.read_line())

    async def close(self) -> None:
        """End all nodes."""
        await self._fork_server.kill()


class ClientProcess:
    """The process of the clients, controlled by lines: speakers, or participants of rooms."""

    def __init__(self, plan: SpeechPlan | RoomPlan, log: Path) -> None:
        described = msgspec.json.encode(plan).decode()
        role = "participants" if isinstance(plan, RoomPlan) else "speaking_clients"
        module = f"lingua_bench.chaos.{role}"
        self._process = Process([sys.executable, "-m", module, described], log)
        # As last reported: utterances sent, moves made.
        self.sent = self.moved = 0

    async def start(self, bound_s: float = START_S) -> None:
        """Start it and wait until every session is open."""
        await self._process.start()
        await self._until("ready", bound_s)

    async def follow(self) -> None:
        """Read one line of progress."""
        self._take(await self._process.read_line(), "progress")

    def go(self) -> None:
        """Let the clients speak."""
        self._process.write_line("go")

    async def hush(self, bound_s: float = START_S) -> None:
        """Let the clients pause, and wait until everything has its outcome."""
        self._process.write_line("hush")
        await self._until("hushed", bound_s)

    async def stop(self, bound_s: float) -> None:
        """Stop the clients, and wait until everything has its outcome or the time is over."""
        self._process.write_line("stop")
        await self._until("quiet", bound_s)

    async def close(self, bound_s: float = START_S) -> None:
        """Let the clients close their sessions."""
        self._process.write_line("close")
        await self._until("closed", bound_s)

    async def kill(self) -> None:
        """End the process."""
        await self._process.kill()

    async def _until(self, word: str, bound_s: float) -> None:
        async with asyncio.timeout(bound_s):
            while (line := await self._process.read_line(bound_s)) != word:
                self._take(line, word)

    def _take(self, line: str, wanted: str) -> None:
        word, *numbers = line.split()
        if word != "progress":
            raise HarnessFailed(f"the clients wrote {line!r} and not {wanted!r}")
        self.sent, self.moved = map(int, numbers)


class Deployment:
    """All processes of a run but the clients."""

    def __init__(self, place: Path, scenario: Scenario, store: ChaosStore) -> None:
        self.place = place
        self.scenario = scenario
        self.store = store
        self.instances: list[SchedulerProcess] = []
        self.nodes: NodeProcesses
        # Link -> the proxies on it, in the order of the instances; the store has one.
        self.proxies: dict[ProxiedLink, list[Proxy]] = {}
        # Where nodes report results for rooms, if there are rooms.
        self.deliveries: Deliveries | None = None

    @property
    def cluster(self) -> ChaosCluster:
        """Return the store if it is a cluster."""
        assert isinstance(self.store, ChaosCluster)
        return self.store

    async def counts(self) -> Counter[str]:
        """Return the counts of all processes of all instances."""
        await asyncio.gather(*(instance.count() for instance in self.instances))
        return sum((instance.counts for instance in self.instances), Counter())

    async def nodes_are_ready(self) -> bool:
        """Tell whether every node may be given work."""
        return await self.store.ready_nodes() == self.scenario.nodes


@asynccontextmanager
async def running_deployment(place: Path, scenario: Scenario) -> AsyncIterator[Deployment]:
    """Start everything but the clients; all nodes are ready, except those of real speech.

    The nodes of real engines are started by `speech/chaos_nodes.py`.
    """
    async with AsyncExitStack() as stack:
        make = running_cluster if scenario.is_cluster else running_store
        make = private_store if scenario.is_private else make
        deployment = Deployment(
            place, scenario, await stack.enter_async_context(make(place / "store"))
        )
        await _open_proxies(deployment, stack)
        await _open_instances(deployment, stack)
        if not scenario.is_real_speech:
            await _open_nodes(deployment, stack)
        yield deployment


async def _open_proxies(deployment: Deployment, stack: AsyncExitStack) -> None:
    cuts = {} if deployment.scenario.is_real_speech else MARKED_AUDIO_SETTINGS
    settings = SETTINGS | cuts | deployment.scenario.settings
    settings["LINGUA_CELLS"] = str(deployment.scenario.cells)
    links = deployment.scenario.links
    if "store" in links:
        proxy = await stack.enter_async_context(open_proxy(deployment.store.server.port))
        deployment.proxies["store"] = [proxy]
        settings |= deployment.store.settings(proxy.port)
    else:
        settings |= deployment.store.settings()
    for number in range(deployment.scenario.instances):
        instance = SchedulerProcess(number, deployment.place, settings, deployment.scenario.planted)
        deployment.instances.append(instance)
        for link in ("client", "node"):
            if link in links:
                proxy = await stack.enter_async_context(open_proxy(instance.port, number))
                deployment.proxies.setdefault(link, []).append(proxy)
                setattr(instance, f"{link}_port", proxy.port)


async def _open_instances(deployment: Deployment, stack: AsyncExitStack) -> None:
    for instance in deployment.instances:
        stack.push_async_callback(instance.kill)
    await asyncio.gather(*(instance.start() for instance in deployment.instances))


async def _open_nodes(deployment: Deployment, stack: AsyncExitStack) -> None:
    scenario = deployment.scenario
    hosts = deployment.instances[:1] if scenario.nodes_on_first else deployment.instances
    if scenario.rooms:
        hearing = receiving_deliveries(deployment.place, deployment.instances)
        deployment.deliveries = stack.enter_context(hearing)
    plan = NodePlan(
        deliveries=deployment.deliveries.name if deployment.deliveries is not None else "",
        urls=tuple(instance.node_url() for instance in hosts),
        place=str(deployment.place),
        max_jobs=scenario.max_jobs,
        max_streams=scenario.max_streams if scenario.rooms else 0,
        least_ms=scenario.least_ms,
        most_ms=scenario.most_ms,
        seed=scenario.seed,
    )
    deployment.nodes = NodeProcesses(plan, deployment.place / "nodes.log")
    await deployment.nodes.open()
    stack.push_async_callback(deployment.nodes.close)
    for number in range(scenario.nodes):
        await deployment.nodes.start(f"node-{number}")
    await until(deployment.nodes_are_ready, START_S, "all nodes are ready")


def speakers_of(
    deployment: Deployment, hosts: Sequence[int] | None = None, first: int = 0
) -> ClientProcess:
    """Return the speakers of a scenario, on all instances or some."""
    scenario = deployment.scenario
    chosen = (
        deployment.instances if hosts is None else [deployment.instances[host] for host in hosts]
    )
    plan = SpeechPlan(
        urls=tuple(instance.client_url() for instance in chosen),
        place=str(deployment.place),
        sessions=scenario.sessions,
        first=first,
        window=scenario.window,
        pause_s=scenario.pause_s,
        moves=scenario.moves,
        seed=scenario.seed,
    )
    return ClientProcess(plan, deployment.place / f"speakers-{first}.log")


def participants_of(deployment: Deployment) -> ClientProcess:
    """Return the participants of the rooms of a scenario."""
    scenario = deployment.scenario
    plan = RoomPlan(
        urls=tuple(instance.client_url() for instance in deployment.instances),
        place=str(deployment.place),
        rooms=scenario.rooms,
        size=scenario.room_size,
        pause_s=scenario.room_pause_s,
        acts=scenario.room_acts,
        silence_s=scenario.room_silence_s,
        slow=scenario.room_slow,
        seed=scenario.seed,
    )
    return ClientProcess(plan, deployment.place / "people.log")
