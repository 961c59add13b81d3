"""A small deployment for tests: nodes, sessions, dispatcher and sweeper over cells of one store.

Everything is the product's own code on a real server or cluster; time is in the test's hands
(`advance`), or the server's when `store.runner.now_ms` is 0. `TracedStore` records which script
ran in which cell and can do something, or end the caller, right before one: that is how races and
crashes happen at a chosen step. `settle_down` lets time pass until nothing is left to do and then
asserts what must hold: no slot is held, and every admitted utterance has one outcome, in order.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from clocks import Lived
from lingua_scheduler.jobs.dispatcher import Dispatcher, Work
from lingua_scheduler.jobs.fleet import FleetSnapshot
from lingua_scheduler.jobs.relay import OutcomeRelay
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.jobs.sweeper import Sweeper
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.cluster import ClusterConnection
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, NodeAbout, NodeBeat, job_id_of
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script_runner import ScriptRunner
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    from lingua_scheduler.nodes.capability import Capability
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.link import Address
    from lingua_scheduler.state.records import NodeReply, Placement, Released, Settled, Submitted
    from lingua_scheduler.state.script import Word

    Play = Callable[["Deployment"], Coroutine[Any, Any, None]]
    Test = Callable[[list[Address]], None]

START_MS = 1_700_000_000_000
AN_HOUR_MS = 3_600_000
# More steps than any scenario needs to come to rest.
STEPS_MAX = 300
ADMITTED = (Reply.PLACED, Reply.QUEUED, Reply.PARKED, Reply.SETTLED, Reply.HELD)

SERVICES: dict[str, tuple[str, ...]] = {"asr": (), "nmt": (), "tts": ()}
SPANISH = capability(Declared(services=SERVICES, pairs=(("en", "es"),)))
FRENCH = capability(Declared(services=SERVICES, pairs=(("en", "fr"),)))
BOTH = capability(Declared(services=SERVICES, pairs=(("en", "es"), ("en", "fr"))))
TO_SPANISH = demand(Languages("en", "es"), PipelineStages()).text
TO_FRENCH = demand(Languages("en", "fr"), PipelineStages()).text

# Distinct keys for every deployment on a shared server.
_numbers = itertools.count(1)


class Crashed(Exception):
    """The instance that made a call is no more."""


class TracedRunner(ScriptRunner):
    """Runs scripts, with a record of the calls and a way to step in right before one."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        # Time stands still until it is advanced; 0 would ask the server.
        self.now_ms = START_MS
        # (script, cell) of every call, in order.
        self.calls: list[tuple[str, str]] = []
        # What to do, once, right before the next run of a script.
        self.before: dict[str, Callable[[], Awaitable[object]]] = {}

    def run(self, name: str, cell: Cell, args: tuple[Word, ...] = ()) -> Awaitable[list[Any]]:
        return self.traced(name, cell, args)

    async def ask(
        self,
        name: str,
        cell: Cell,
        policy: bytes,
        args: tuple[Word, ...],
        *,
        read: Callable[[Any], Any],
        size: int,
    ) -> Any:
        del size  # every call goes alone
        return read(await self.traced(name, cell, (policy, *args)))

    async def traced(self, name: str, cell: Cell, args: tuple[Word, ...]) -> list[Any]:
        """Take the chosen step, record the call and make it."""
        step = self.before.pop(name, None)
        if step is not None:
            await step()
        self.calls.append((name, cell.name))
        return await super().run(name, cell, args)


class TracedStore(Store):
    """The store, with a record of its calls and a way to step in right before one."""

    def __init__(
        self, connection: Connection, policy: FleetPolicy, traced: TracedRunner | None = None
    ) -> None:
        self.traced = traced or TracedRunner(connection)
        super().__init__(connection, policy, runner=self.traced)
        self.connection = connection

    def before(self, script: str, step: Callable[[], Awaitable[object]]) -> None:
        """Do something once, right before the next run of a script."""
        self.traced.before[script] = step

    def crash_before(self, script: str) -> None:
        """Let the next call of a script raise: neither it nor what follows it is made."""
        self.before(script, self._crash)

    def called(self) -> list[tuple[str, str]]:
        """Return the calls since the last time this was asked."""
        calls, self.traced.calls = self.traced.calls, []
        return calls

    async def _crash(self) -> None:
        raise Crashed


class Instance(NamedTuple):
    """What one process of the product has of its own."""

    fleet: FleetSnapshot
    dispatcher: Dispatcher
    sweeper: Sweeper


class Deployment:
    """Cells, their nodes and sessions, and one instance that works on them."""

    def __init__(self, store: TracedStore, cells: int, policy: FleetPolicy) -> None:
        self.connection = store.connection
        self.cells = Cells(f"deployment{next(_numbers)}", cells)
        self.policy = policy
        self.store = store
        self.fleet, self.dispatcher, self.sweeper = self.instance()
        # Every session that was opened here.
        self.speakers: list[Speaker] = []
        self._names = itertools.count(1)

    @property
    def now_ms(self) -> int:
        """The time all scripts are told."""
        return self.store.runner.now_ms

    def instance(self) -> Instance:
        """Return one more instance: same store, its own view of the fleet."""
        fleet = FleetSnapshot(self.store, self.cells)
        dispatcher = Dispatcher(self.store, self.cells, fleet, self.policy)
        return Instance(
            fleet, dispatcher, Sweeper(self.store, dispatcher, OutcomeRelay(self.store, self.cells))
        )

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.store.runner.now_ms += ms

    # Nodes

    def node_name(self, cell: Cell) -> str:
        """Return a new name whose node lives in that cell."""
        names = (f"node-{number}" for number in self._names)
        return next(name for name in names if self.cells.of_node(name) is cell)

    async def register(
        self,
        node: str,
        *,
        slots: int = 1,
        can: Capability = SPANISH,
        boot: str = "b1",
        acks: bool = False,
        silence_ms: int = AN_HOUR_MS,
        instance: str = "i1",
        streams: int = 0,
    ) -> NodeReply:
        """Register a node; its socket is called `conn-<boot>`."""
        about = NodeAbout(
            instance=instance, max=slots, silence_ms=silence_ms, acks=acks, streams=streams
        )
        cell = self.cells.of_node(node)
        return await self.store.nodes.register(
            cell, node, boot, conn=f"conn-{boot}", can=can.packed(), about=about
        )

    async def beat(self, node: str, boot: str = "b1") -> NodeReply:
        """Let a node report that it is well."""
        return await self.store.nodes.beat(self.cells.of_node(node), node, boot, NodeBeat())

    async def ready_node(self, cell: Cell, **about: Any) -> str:
        """Register a node in a cell, make it ready, and let this instance know of its pool."""
        node = self.node_name(cell)
        await self.register(node, **about)
        await self.beat(node, about.get("boot", "b1"))
        await self.fleet.refresh()
        return node

    # Sessions

    async def speaker(self, home: Cell, session: str = "") -> Speaker:
        """Open a session whose home is that cell."""
        name = session or f"session-{next(self._names)}"
        await self.store.sessions.open(home, name, "i1", lease_ms=AN_HOUR_MS)
        speaker = Speaker(self, home, name)
        self.speakers.append(speaker)
        return speaker

    # What the server holds

    async def keys(self, cell: Cell, pattern: str) -> list[str]:
        """Return the names of a cell's keys, without the cell's base."""
        found = await self.connection.command(cell.slot, "KEYS", cell.base + pattern)
        return sorted(key.decode().removeprefix(cell.base) for key in found)

    async def leases(self, cell: Cell) -> dict[str, dict[str, int]]:
        """Return node -> lease -> expiry of a cell, nodes without leases left out."""
        found = {}
        for name in await self.keys(cell, "leases:*"):
            members = await self._scores(cell, name)
            found[name.removeprefix("leases:")] = members
        return found

    async def leased(self) -> set[tuple[str, str]]:
        """Return (node, lease) of every slot that is held anywhere."""
        rows = [await self.leases(cell) for cell in self.cells.all]
        return {(node, lease) for row in rows for node, leases in row.items() for lease in leases}

    async def timers(self, kinds: str = "jglr") -> dict[tuple[str, str], int]:
        """Return (cell, timer) -> ms of the timers of these kinds."""
        found = {}
        for cell in self.cells.all:
            for timer, at in (await self._scores(cell, "due")).items():
                if timer[0] in kinds:
                    found[cell.name, timer] = at
        return found

    async def _scores(self, cell: Cell, name: str) -> dict[str, int]:
        key = cell.base + name
        raw = await self.connection.command(cell.slot, "ZRANGE", key, 0, -1, "WITHSCORES")
        return {raw[i].decode(): int(float(raw[i + 1])) for i in range(0, len(raw), 2)}

    # Time passing

    async def sweep(self, sweeper: Sweeper | None = None) -> Work:
        """Sweep every cell once."""
        total = Work()
        for cell in self.cells.all:
            total.merge(await (sweeper or self.sweeper).sweep(cell))
        return total

    async def settle_down(self) -> None:
        """Let time pass and sweep until nothing is left to do, then assert that all is well."""
        for _ in range(STEPS_MAX):
            timers = await self.timers()
            if not timers:
                break
            self.advance(max(0, min(timers.values()) - self.now_ms))
            await self.sweep()
        await self.assert_quiet()

    async def assert_quiet(self) -> None:
        """Assert that nothing is held, waits or is owed, and that all outcomes are there."""
        assert await self.timers() == {}
        assert await self.leased() == set()
        for cell in self.cells.all:
            for family in ("reserved", "pending", "waiting", "queue:*", "audio:*"):
                assert await self.keys(cell, family) == [], family
        for speaker in self.speakers:
            await speaker.assert_in_order()


class Speaker:
    """One session: what it submits, and what comes out."""

    def __init__(self, deployment: Deployment, home: Cell, session: str) -> None:
        self.deployment = deployment
        self.home = home
        self.session = session
        # Lane -> index -> job of everything that was admitted.
        self.admitted: dict[str, dict[int, str]] = {}

    def job(self, index: int, lane: str = "es") -> str:
        """Return the id of the job of an utterance in a language."""
        return job_id_of(self.session, f"{index}/{lane}")

    def spec(self, index: int, lane: str = "es", **more: Any) -> JobSpec:
        """Return what the store must know of an utterance."""
        wanted = more.pop("wanted", TO_SPANISH)
        return JobSpec(session=self.session, index=index, lane=lane, demand=wanted, **more)

    async def submit(
        self, index: int, lane: str = "es", *, via: Dispatcher | None = None, **more: Any
    ) -> tuple[Submitted, Work]:
        """Submit an utterance; it counts as admitted even if the instance dies on the way."""
        dispatcher = via or self.deployment.dispatcher
        job = self.job(index, lane)
        try:
            answer, work = await dispatcher.submit(
                self.home, job, self.spec(index, lane, **more), b""
            )
        except Crashed:
            self.admit(index, lane)
            raise
        if answer.reply in ADMITTED:
            self.admit(index, lane)
        return answer, work

    async def placed(self, index: int, lane: str = "es", **more: Any) -> Placement:
        """Submit an utterance that must find a node."""
        answer, work = await self.submit(index, lane, **more)
        assert answer.placement is not None, answer
        assert work.push == [answer.placement]
        return answer.placement

    def admit(self, index: int, lane: str = "es") -> None:
        """Expect an outcome of an utterance."""
        self.admitted.setdefault(lane, {})[index] = self.job(index, lane)

    async def settle(
        self, placement: Placement, kind: str = "completed", via: Dispatcher | None = None
    ) -> tuple[Settled, Work]:
        """Let a placement's node report how it ended."""
        dispatcher = via or self.deployment.dispatcher
        return await dispatcher.settle(
            self.home, placement.job, placement.attempt, placement.node, kind=kind
        )

    async def outcomes(self) -> tuple[Released, ...]:
        """Return everything in the outbox."""
        page = await self.deployment.store.outbox.read(self.home, self.session, limit=100_000)
        assert page.reply is Reply.OK
        return page.entries

    async def told(self) -> list[tuple[int, str, str]]:
        """Return index, kind and reason of every outcome, in order."""
        return [(row.utterance, row.kind, row.reason) for row in await self.outcomes()]

    async def assert_in_order(self) -> None:
        """Assert one outcome for each admitted utterance, by index, numbered without a hole."""
        rows = await self.outcomes()
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        for lane in {row.lane for row in rows} | self.admitted.keys():
            expected = sorted(self.admitted.get(lane, {}).items())
            found = [(row.utterance, row.job) for row in rows if row.lane == lane]
            assert found == expected, f"{self.session} {lane}"


@asynccontextmanager
async def deployed(
    *addresses: Address,
    cells: int = 3,
    policy: FleetPolicy | None = None,
    kind: type[TracedStore] = TracedStore,
    call_timeout_ms: int = 10_000,
) -> AsyncIterator[Deployment]:
    """Open a deployment on a server, or on the cluster that several addresses name."""
    rules = policy or FleetPolicy()
    options = LinkOptions(call_timeout_ms=call_timeout_ms)
    connection: Connection
    if len(addresses) == 1:
        connection = await SingleConnection.open(addresses[0], options)
    else:
        connection = await ClusterConnection.open(addresses, options)
    try:
        yield Deployment(kind(cast("Connection", Lived(connection)), rules), cells, rules)
    finally:
        await connection.close()


def scenario(cells: int = 3, **policy: Any) -> Callable[[Play], Test]:
    """Make a test of a scenario: it runs on any server or cluster and must end in quiet."""

    def make(play: Play) -> Test:
        def test(addresses: list[Address]) -> None:
            asyncio.run(run(addresses))

        async def run(addresses: list[Address]) -> None:
            rules = FleetPolicy(**policy)
            async with deployed(*addresses, cells=cells, policy=rules) as deployment:
                await play(deployment)
                await deployment.settle_down()

        test.__name__ = play.__name__
        return test

    return make
