"""Everyone in a run: the schedulers, the nodes, the speakers, the store, and proxies between.

All are real processes on 127.0.0.1 that can be killed by their number and started again on their
port. What the schedulers count is read before each of their ends and summed over all their lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, Literal

import aiohttp
import msgspec

from lingua_scheduler.bench.chaos import speech
from lingua_scheduler.bench.chaos.deliveries import Deliveries, hearing_deliveries
from lingua_scheduler.bench.chaos.history import RESULT
from lingua_scheduler.bench.chaos.process import HarnessFailed, Process, free_port, until
from lingua_scheduler.bench.chaos.proxy import Proxy, open_proxy
from lingua_scheduler.bench.chaos.speech import RoomPlan, SpeechPlan
from lingua_scheduler.bench.chaos.store import Cluster, Store, running_cluster, running_store
from lingua_scheduler.bench.chaos.worker import NodePlan
from lingua_scheduler.messages.codec import JSON_PROTOCOL
from lingua_scheduler.messages.from_client import SessionInit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from lingua_scheduler.bench.chaos.scenarios import Scenario

Hop = Literal["client", "node", "store"]
START_S: Final = 30.0
ASK_S: Final = 2.0
DRAIN_S: Final = 40.0
OK: Final = 200
# Cuts are where the client says, so that utterances are known; the machine is meant to be busy.
SETTINGS: Final = {
    "LINGUA_DEPLOYMENT_MODE": "cross_instance",
    "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
    "LINGUA_SEGMENTATION__HANGOVER_MANUAL_MS": "0",
    "LINGUA_SEGMENTATION__PAUSE_MS": "0",
    "LINGUA_SEGMENTATION__VOICE_DETECTOR": "off",
}
# Names of our own metrics.
STALE: Final = "scheduler_results_stale_total"
ADOPTED: Final = "scheduler_letters_adopted_total"
INTERNAL: Final = "scheduler_internal_errors_total"
UTTERANCES: Final = "scheduler_utterances_total"
# How a scheduler calls the end of a job, and how a client is told of it.
ENDS: Final = {
    "completed": RESULT, "completed_no_text": "silence_detected", "failed": "failed",
    "expired": "expired", "cancelled": "cancelled", "missing": "gap_timeout",
}  # fmt: skip


def ended(kind: str) -> str:
    """Return the name of a metric: jobs that ended like this."""
    return f'scheduler_jobs_total{{outcome="{kind}"}}'


class Instance:
    """One scheduler: a port that stays, and one process after another."""

    def __init__(
        self, number: int, place: Path, settings: dict[str, str], planted: str = ""
    ) -> None:
        self.name = f"instance-{number}"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # How it is reached by clients and by nodes; a proxy may stand there.
        self.client_port = self.node_port = self.port
        # Under which name it is known, and how many names it had.
        self._names = 0
        self._counted: Counter[str] = Counter()
        # Of the running process, as last read.
        self._counts: Counter[str] = Counter()
        module = (
            ["lingua_scheduler.bench.chaos.planted", planted] if planted else ["lingua_scheduler"]
        )
        serve = ["serve", "--port", str(self.port), "--log-level", "warning"]
        command = [sys.executable, "-m", *module, *serve]
        self._process = Process(command, place / f"{self.name}.log", settings)

    @property
    def pid(self) -> int:
        """Return its process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it has a process."""
        return self._process.is_running

    @property
    def last_words(self) -> str:
        """Return the end of its log."""
        return self._process.last_words()

    def client_url(self) -> str:
        """Return where clients connect."""
        return f"ws://127.0.0.1:{self.client_port}/ws/session"

    def node_url(self) -> str:
        """Return where nodes connect."""
        return f"ws://127.0.0.1:{self.node_port}/ws/node"

    async def start(self, *, renamed: bool = False) -> None:
        """Start a process, as the instance it was or as a new one, and wait until it is ready."""
        self._names += renamed or not self._names
        self._process.changes["LINGUA_INSTANCE_ID"] = f"{self.name}.{self._names}"
        await self._process.start()
        await self._process.hear(START_S)
        await until(self.is_ready, START_S, f"{self.name} is ready")

    async def is_ready(self) -> bool:
        """Tell whether it serves."""
        return await self.status("/readyz") == OK

    async def status(self, path: str) -> int:
        """Return how it answers a page, 0 if not at all."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with _http() as http, http.get(f"{self.url}{path}") as answer:
                return answer.status
        return 0

    async def refusal(self) -> str:
        """Ask for a session and return the code of the error that answers, if one does."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            url = f"{self.url.replace('http', 'ws', 1)}/ws/session"
            async with _http() as http, http.ws_connect(url, protocols=(JSON_PROTOCOL,)) as socket:
                init = SessionInit(src_lang=speech.SOURCE, tgt_lang=speech.TARGETS[0])
                await socket.send_bytes(msgspec.json.encode(init))
                answer = await socket.receive(timeout=ASK_S)
                if answer.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                    return str(msgspec.json.decode(answer.data).get("code", ""))
        return ""

    async def count(self) -> None:
        """Read what it counts; without an answer what was read before stands."""
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with _http() as http, http.get(f"{self.url}/metrics") as answer:
                page = await answer.text()
                self._counts = summed(page) + labelled(page)

    @property
    def counts(self) -> Counter[str]:
        """Return what all its processes counted, as far as it was read."""
        return self._counted + self._counts

    async def kill(self) -> None:
        """End it by kill -9."""
        await self._process.kill()
        self._end_life()

    async def stop(self) -> int:
        """Ask it to end and return its exit code."""
        self._process.signal(signal.SIGTERM)
        try:
            code = await self._process.wait(DRAIN_S)
        except TimeoutError:
            await self._process.kill()
            raise HarnessFailed(f"{self.name} did not end within {DRAIN_S:g} s") from None
        finally:
            self._end_life()
        return code

    def freeze(self) -> None:
        """Stop it: its sockets stay open, nothing is answered."""
        self._process.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._process.signal(signal.SIGCONT)

    def _end_life(self) -> None:
        self._counted += self._counts
        self._counts = Counter()


def _http() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_S))


def summed(page: str) -> Counter[str]:
    """Return every metric of a page, summed over its labels."""
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name.partition("{")[0]] += int(float(value))
    return found


def labelled(page: str) -> Counter[str]:
    """Return every metric of a page that has labels, with them."""
    found: Counter[str] = Counter()
    for line in page.splitlines():
        if "{" in line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] += int(float(value))
    return found


class Nodes:
    """The nodes, by name; each is one process after another."""

    def __init__(self, plan: NodePlan, log: Path) -> None:
        described = msgspec.json.encode(plan).decode()
        module = "lingua_scheduler.bench.chaos.worker"
        self._cradle = Process([sys.executable, "-m", module, described], log)
        self._lock = asyncio.Lock()
        self.pids: dict[str, int] = {}

    async def open(self) -> None:
        """Start the cradle."""
        await self._cradle.start()

    async def start(self, name: str) -> None:
        """Start a node's process."""
        async with self._lock:
            self._cradle.tell(name)
            self.pids[name] = int(await self._cradle.hear())

    async def close(self) -> None:
        """End all of them."""
        await self._cradle.kill()


class Speakers:
    """The process of the clients, which is talked to in lines: speakers, or people in rooms."""

    def __init__(self, plan: SpeechPlan | RoomPlan, log: Path) -> None:
        described = msgspec.json.encode(plan).decode()
        role = "people" if isinstance(plan, RoomPlan) else "speaker"
        module = f"lingua_scheduler.bench.chaos.{role}"
        self._process = Process([sys.executable, "-m", module, described], log)
        # As last told: utterances sent, moves made.
        self.sent = self.moved = 0

    async def start(self, bound_s: float = START_S) -> None:
        """Start it and wait until every session is open."""
        await self._process.start()
        await self._until("ready", bound_s)

    async def follow(self) -> None:
        """Take one line of progress."""
        self._take(await self._process.hear(), "progress")

    def go(self) -> None:
        """Let them speak."""
        self._process.tell("go")

    async def hush(self, bound_s: float = START_S) -> None:
        """Have them stop for a while, and wait until everything has its outcome."""
        self._process.tell("hush")
        await self._until("hushed", bound_s)

    async def stop(self, bound_s: float) -> None:
        """Have them stop, and wait until everything has its outcome or that takes too long."""
        self._process.tell("stop")
        await self._until("quiet", bound_s)

    async def close(self, bound_s: float = START_S) -> None:
        """Have them close their sessions."""
        self._process.tell("close")
        await self._until("closed", bound_s)

    async def kill(self) -> None:
        """End the process."""
        await self._process.kill()

    async def _until(self, word: str, bound_s: float) -> None:
        async with asyncio.timeout(bound_s):
            while (line := await self._process.hear(bound_s)) != word:
                self._take(line, word)

    def _take(self, line: str, wanted: str) -> None:
        word, *numbers = line.split()
        if word != "progress":
            raise HarnessFailed(f"the speakers said {line!r} and not {wanted!r}")
        self.sent, self.moved = map(int, numbers)


class Cast:
    """Everyone but the speakers."""

    def __init__(self, place: Path, scenario: Scenario, store: Store) -> None:
        self.place = place
        self.scenario = scenario
        self.store = store
        self.instances: list[Instance] = []
        self.nodes: Nodes
        # Hop -> the proxies on it, in the order of the instances; the store has one.
        self.proxies: dict[Hop, list[Proxy]] = {}
        # Where nodes tell of results for rooms, if there are any.
        self.deliveries: Deliveries | None = None

    @property
    def cluster(self) -> Cluster:
        """Return the store if it is a cluster."""
        assert isinstance(self.store, Cluster)
        return self.store

    async def counts(self) -> Counter[str]:
        """Return what all instances counted in all their lives."""
        await asyncio.gather(*(instance.count() for instance in self.instances))
        return sum((instance.counts for instance in self.instances), Counter())

    async def nodes_are_ready(self) -> bool:
        """Tell whether every node may be given work."""
        return await self.store.ready_nodes() == self.scenario.nodes


@asynccontextmanager
async def running_cast(place: Path, scenario: Scenario) -> AsyncIterator[Cast]:
    """Start everyone but the speakers; all nodes are ready."""
    async with AsyncExitStack() as stack:
        make = running_cluster if scenario.is_cluster else running_store
        cast = Cast(place, scenario, await stack.enter_async_context(make(place / "store")))
        await _open_proxies(cast, stack)
        await _open_instances(cast, stack)
        await _open_nodes(cast, stack)
        yield cast


async def _open_proxies(cast: Cast, stack: AsyncExitStack) -> None:
    settings = dict(SETTINGS) | cast.scenario.settings
    settings["LINGUA_CELLS"] = str(cast.scenario.cells)
    hops = cast.scenario.hops
    if "store" in hops:
        proxy = await stack.enter_async_context(open_proxy(cast.store.server.port))
        cast.proxies["store"] = [proxy]
        settings |= cast.store.settings(proxy.port)
    else:
        settings |= cast.store.settings()
    for number in range(cast.scenario.instances):
        instance = Instance(number, cast.place, settings, cast.scenario.planted)
        cast.instances.append(instance)
        for hop in ("client", "node"):
            if hop in hops:
                proxy = await stack.enter_async_context(open_proxy(instance.port, number))
                cast.proxies.setdefault(hop, []).append(proxy)
                setattr(instance, f"{hop}_port", proxy.port)


async def _open_instances(cast: Cast, stack: AsyncExitStack) -> None:
    for instance in cast.instances:
        stack.push_async_callback(instance.kill)
    await asyncio.gather(*(instance.start() for instance in cast.instances))


async def _open_nodes(cast: Cast, stack: AsyncExitStack) -> None:
    scenario = cast.scenario
    hosts = cast.instances[:1] if scenario.nodes_on_first else cast.instances
    if scenario.rooms:
        hearing = hearing_deliveries(cast.place, cast.instances)
        cast.deliveries = stack.enter_context(hearing)
    plan = NodePlan(
        deliveries=cast.deliveries.name if cast.deliveries is not None else "",
        urls=tuple(instance.node_url() for instance in hosts),
        place=str(cast.place),
        max_jobs=scenario.max_jobs,
        least_ms=scenario.least_ms,
        most_ms=scenario.most_ms,
        seed=scenario.seed,
    )
    cast.nodes = Nodes(plan, cast.place / "nodes.log")
    await cast.nodes.open()
    stack.push_async_callback(cast.nodes.close)
    for number in range(scenario.nodes):
        await cast.nodes.start(f"node-{number}")
    await until(cast.nodes_are_ready, START_S, "all nodes are ready")


def speakers_of(cast: Cast, hosts: Sequence[int] | None = None, first: int = 0) -> Speakers:
    """Return the speakers of a scenario, on all instances or some."""
    scenario = cast.scenario
    chosen = cast.instances if hosts is None else [cast.instances[host] for host in hosts]
    plan = SpeechPlan(
        urls=tuple(instance.client_url() for instance in chosen),
        place=str(cast.place),
        sessions=scenario.sessions,
        first=first,
        window=scenario.window,
        pause_s=scenario.pause_s,
        moves=scenario.moves,
        seed=scenario.seed,
    )
    return Speakers(plan, cast.place / f"speakers-{first}.log")


def people_of(cast: Cast) -> Speakers:
    """Return the people of a scenario who are in rooms."""
    scenario = cast.scenario
    plan = RoomPlan(
        urls=tuple(instance.client_url() for instance in cast.instances),
        place=str(cast.place),
        rooms=scenario.rooms,
        size=scenario.room_size,
        pause_s=scenario.room_pause_s,
        acts=scenario.room_acts,
        silence_s=scenario.room_silence_s,
        seed=scenario.seed,
    )
    return Speakers(plan, cast.place / "people.log")
