"""Ranks and timers in a batch: read once and written together, as exact as one call at a time.

The model has few nodes; here a pool has more than a batch reads of it, so that it must read again.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import servers
from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.nodes.capability import Declared, capability
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import (
    JobSpec,
    NodeAbout,
    NodeBeat,
    Settled,
    Submitted,
    job_id_of,
)
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

pytestmark = pytest.mark.store

CELL = Cells("ranks", 1).all[0]
DEMAND = demand(Languages("en", "es"), PipelineStages()).text
CAN = capability(
    Declared(services={"asr": (), "nmt": (), "tts": ()}, pairs=(("en", "es"),))
).packed()
TIES = 1_048_576
# `includes/job_timers.lua`
TIMERS_AT_ONCE = 512
POLICY = FleetPolicy(in_flight_max=1000, outbox_max=100_000)
# More nodes than are read at a time, of different sizes so that their order changes in steps.
SLOTS = {f"n{number:02}": 2 + number % 5 for number in range(20)}


@pytest.fixture
def server(tmp_path) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path) as started:
        yield started


class Fleet:
    """A pool of nodes in the store, and what it should contain."""

    def __init__(self, connection: SingleConnection, slots: dict[str, int], host: str) -> None:
        self.connection = connection
        self.store = Store(connection, POLICY)
        self.slots = slots
        # The instance of the nodes; that of the session is i1.
        self.host = host
        # The jobs of each node, and its rank.
        self.held: dict[str, list[str]] = {node: [] for node in slots}
        self.ranks = dict.fromkeys(slots, 0)
        self.said = 0

    async def register(self) -> None:
        for node, slots in self.slots.items():
            about = NodeAbout(instance=self.host, max=slots, silence_ms=3_600_000)
            await self.store.nodes.register(CELL, node, "b1", conn="c1", can=CAN, about=about)
            await self.store.nodes.beat(CELL, node, "b1", NodeBeat())
        await self.store.sessions.open(CELL, "s1", "i1", lease_ms=3_600_000)

    def rank(self, node: str, job: str) -> None:
        used, slots = len(self.held[node]), self.slots[node]
        full = 2_000_000_000
        tie = int(job[4:9], 16)
        self.ranks[node] = full if used >= slots else 1000 * used // slots * TIES + tie

    def next_job(self) -> tuple[str, JobSpec]:
        job = job_id_of("s1", str(self.said))
        spec = JobSpec(session="s1", index=self.said, lane="es", demand=DEMAND)
        self.said += 1
        return job, spec

    def submit(self, job: str, spec: JobSpec) -> Awaitable[list[Submitted]]:
        return self.store.jobs.submit_all(CELL, ((job, spec, b"body", 0),))

    def settle(self, job: str, node: str) -> Awaitable[Settled]:
        return self.store.jobs.settle(CELL, job, 1, node, kind="completed")

    def taken(self, job: str) -> str:
        """The node that must take a job; it has it then. '' if all are full."""
        rank, node = min((rank, node) for node, rank in self.ranks.items())
        if rank >= 2_000_000_000:
            return ""
        self.held[node].append(job)
        self.rank(node, job)
        return node

    async def scores(self) -> dict[str, int]:
        (pool,) = await self.connection.command(CELL.slot, "KEYS", CELL.key("pool", "*"))
        found = await self.connection.command(CELL.slot, "ZRANGE", pool, 0, -1, "WITHSCORES")
        return {found[i].decode(): int(found[i + 1]) for i in range(0, len(found), 2)}

    async def timers(self) -> set[str]:
        due = await self.connection.command(CELL.slot, "ZRANGE", CELL.key("due"), 0, -1)
        return {timer.decode()[2:] for timer in due if timer.startswith(b"j|")}

    async def commands(self) -> dict[str, int]:
        """How often the server ran some commands so far."""
        text = (await self.connection.command(CELL.slot, "INFO", "commandstats")).decode()
        counts = dict.fromkeys(("zrange", "zadd", "fcall"), 0)
        for line in text.splitlines():
            name, found, rest = line.removeprefix("cmdstat_").partition(":calls=")
            if found and name in counts:
                counts[name] = int(rest.split(",")[0])
        return counts


@pytest.fixture
def run(server):
    """Runs a scenario with a fleet of some nodes."""

    def play(scenario, slots: dict[str, int] = SLOTS, host: str = "i1") -> None:
        async def whole() -> None:
            async with fleet_on(server, slots, host) as fleet:
                await scenario(fleet)

        asyncio.run(whole())

    return play


@asynccontextmanager
async def fleet_on(
    server: servers.Server, slots: dict[str, int], host: str
) -> AsyncIterator[Fleet]:
    options = LinkOptions(call_timeout_ms=10_000)
    connection = await SingleConnection.open(server.address, options)
    try:
        fleet = Fleet(connection, slots, host)
        await fleet.register()
        yield fleet
    finally:
        await connection.close()


async def at_once(fleet: Fleet, calls: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """The answers to calls that leave as one, in this order; errors are among them."""
    first = fleet.connection.command(CELL.slot, "PING")  # it may leave alone
    answers = await asyncio.gather(*[call() for call in calls], return_exceptions=True)
    await first
    return [answer[0] if isinstance(answer, list) else answer for answer in answers]


def test_every_call_of_a_batch_gets_the_node_that_is_least_loaded_then(run) -> None:
    async def scenario(fleet: Fleet) -> None:
        chance = random.Random(7)
        for _ in range(30):
            calls, expected = [], []
            for _ in range(chance.randint(2, 30)):
                busy = [(node, job) for node, jobs in fleet.held.items() for job in jobs]
                if busy and chance.random() < 0.5:
                    node, job = chance.choice(busy)
                    fleet.held[node].remove(job)
                    fleet.rank(node, job)
                    calls.append(partial(fleet.settle, job, node))
                    expected.append("")
                elif len(busy) < sum(SLOTS.values()):
                    job, spec = fleet.next_job()
                    calls.append(partial(fleet.submit, job, spec))
                    expected.append(fleet.taken(job))
            answers = await at_once(fleet, calls)
            placed = [answer.placement.node for answer in answers if isinstance(answer, Submitted)]
            assert placed == [node for node in expected if node]
            settled = [answer for answer in answers if isinstance(answer, Settled)]
            assert [answer.reply for answer in settled] == [Reply.SETTLED] * expected.count("")
            assert await fleet.scores() == fleet.ranks
            assert await fleet.timers() == {job for jobs in fleet.held.values() for job in jobs}

    run(scenario)


def test_a_batch_reads_a_pool_in_parts_and_writes_it_together(run) -> None:
    async def scenario(fleet: Fleet) -> None:
        jobs = [fleet.next_job() for _ in range(30)]
        before = await fleet.commands()
        calls = [partial(fleet.submit, job, spec) for job, spec in jobs]
        answers = await at_once(fleet, calls)
        after = await fleet.commands()
        made = {name: after[name] - before[name] for name in after}
        assert [answer.placement.node for answer in answers] == [
            fleet.taken(job) for job, _ in jobs
        ]
        assert made["fcall"] == 1
        # The first node, then eight at a time: 20 nodes got one job each before any got two.
        assert 4 <= made["zrange"] <= 8
        # 30 leases; the ranks before each further reading and at the end; all timers at once.
        assert made["zadd"] <= 30 + made["zrange"] + 1

    run(scenario)


@pytest.mark.parametrize("host", ["i1", "i2"])
def test_what_waits_in_a_batch_is_told_why(run, host: str) -> None:
    """The reason is counted by the server, which must know what the batch has changed."""

    async def scenario(fleet: Fleet) -> None:
        jobs = [fleet.next_job() for _ in range(3)]
        calls = [partial(fleet.submit, job, spec) for job, spec in jobs]
        placed, *waiting = await at_once(fleet, calls)
        assert placed.reply is Reply.PLACED
        assert [(answer.reply, answer.label) for answer in waiting] == [
            (Reply.QUEUED, "capacity_exceeded")
        ] * 2
        assert await fleet.timers() == {job for job, _ in jobs}

    # Of nodes of another instance, the first job finds all that the pool has.
    run(scenario, {"n1": 1}, host)


def test_an_error_of_one_call_loses_nothing_of_those_before_and_after(run) -> None:
    async def scenario(fleet: Fleet) -> None:
        await fleet.connection.command(CELL.slot, "SET", CELL.key("job", "broken"), "no hash")
        (one, spec), (two, other) = fleet.next_job(), fleet.next_job()
        answers = await at_once(
            fleet,
            [
                partial(fleet.submit, one, spec),
                partial(fleet.settle, "broken", "n00"),
                partial(fleet.submit, two, other),
            ],
        )
        assert isinstance(answers[1], StoreRejected)
        assert [answers[0].placement.node, answers[2].placement.node] == [
            fleet.taken(one),
            fleet.taken(two),
        ]
        assert await fleet.scores() == fleet.ranks
        assert await fleet.timers() == {one, two}

    run(scenario)


def test_of_a_timer_that_changes_twice_the_last_change_is_written(run) -> None:
    """One job ends and its named request, which has no answer, is made again; another is short."""

    async def scenario(fleet: Fleet) -> None:
        (again, spec), (short, later) = fleet.next_job(), fleet.next_job()
        spec, once_more = (
            msgspec.structs.replace(spec, index=index, sound="none") for index in (0, 2)
        )
        await fleet.submit(again, spec)
        node = fleet.taken(again)
        refused = {"kind": "failed", "reason": "queue_full"}
        ended, begun, *_ = await at_once(
            fleet,
            [
                partial(fleet.store.jobs.settle, CELL, again, 1, node, **refused),
                partial(fleet.submit, again, once_more),
                partial(fleet.submit, short, later),
                partial(fleet.settle, short, "n01"),
            ],
        )
        assert (ended.reply, begun.reply) == (Reply.SETTLED, Reply.PLACED)
        assert await fleet.timers() == {again}

    run(scenario, {"n01": 4})


def test_a_batch_with_more_timers_than_one_command_takes_sets_all_of_them(run) -> None:
    """Utterances in very many languages: some timers are written before the end of the batch."""

    async def scenario(fleet: Fleet) -> None:
        calls, jobs = [], set()
        for index in range(2):
            languages = []
            for number in range(TIMERS_AT_ONCE // 2 + 50):
                job = job_id_of("s1", f"{index} {number}")
                spec = JobSpec(session="s1", index=index, lane=f"l{number}", demand=DEMAND)
                languages.append((job, spec, b"body", 0))
                jobs.add(job)
            calls.append(partial(fleet.store.jobs.submit_all, CELL, languages))
        before = await fleet.commands()
        await at_once(fleet, calls)
        after = await fleet.commands()
        assert after["fcall"] - before["fcall"] == 1
        assert await fleet.timers() == jobs

    run(scenario, {"n1": 2000})
