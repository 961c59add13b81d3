"""A batch leaves in the store what its calls leave one at a time, whatever is taken, given back,
refused, expired or broken in between.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest

from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, Settled, Submitted
from lingua_scheduler.state.store import Store
from state.test_batch_ranks import CELL, Fleet, at_once, fleet_on, server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from servers import Server

__all__ = ["server"]
pytestmark = pytest.mark.store

START_MS = 1_700_000_000_000
# Leases expire in less time than the cell takes for a step of the server's clock.
QUICK = FleetPolicy(in_flight_max=1000, outbox_max=100_000, attempt_ms=1500, lease_grace_ms=500)
EXPIRED_MS = QUICK.attempt_ms + QUICK.lease_grace_ms
BATCHES, CALLS_MAX = 12, 30
# All slots are taken at times, and jobs wait.
SLOTS = {"n1": 3, "n2": 2, "n3": 4}
READ: dict[str, tuple[str | int, ...]] = {
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "string": ("GET",),
}


class Call(NamedTuple):
    """A call of a batch: the submit of a job, or its settle if it names a node."""

    job: str
    spec: JobSpec
    node: str = ""

    def made(self, fleet: Fleet) -> Callable[[], Awaitable[Any]]:
        """The call, to be made on a fleet."""
        if self.node:
            return partial(fleet.store.jobs.settle, CELL, self.job, 1, self.node, kind="completed")
        rows = ((self.job, self.spec, b"body", 0),)
        return partial(fleet.store.jobs.submit_all, CELL, rows, b"speech" * self.spec.audio)


class Batch(NamedTuple):
    """Calls at one time, and all that the store holds afterwards."""

    at_ms: int
    calls: list[Call]
    answers: list[str]
    held: dict[str, list[bytes]]


async def contents(fleet: Fleet) -> dict[str, list[bytes]]:
    """All keys of the cell with what they hold; not its clock, and not what is no audio."""
    ask, found = partial(fleet.connection.command, CELL.slot), {}
    for key in await ask("KEYS", CELL.base + "*"):
        name = key.decode()
        if name.startswith((CELL.key("audio", "s1"), CELL.key("clock"))):
            continue
        verb, *rest = READ[(await ask("TYPE", name)).decode()]
        held = await ask(verb, name, *rest)
        if verb == "HGETALL":
            held = sorted(zip(held[::2], held[1::2], strict=True))
        found[name.removeprefix(CELL.base)] = held
    return found


async def leases(fleet: Fleet, node: str) -> list[bytes]:
    return await fleet.connection.command(
        CELL.slot, "ZRANGE", CELL.key("leases", node), 0, -1, "WITHSCORES"
    )


def shown(answer: Any) -> str:
    if isinstance(answer, Submitted):
        holder = answer.placement.node if answer.placement is not None else ""
        return f"{answer.reply.name} {holder}"
    if isinstance(answer, Settled):
        placed = [placement.node for placement in answer.effects.placed] if answer.effects else []
        return f"{answer.reply.name} {placed}"
    assert isinstance(answer, StoreRejected)
    return "error"


class Plan:
    """Calls made one at a time, by chance, on a store of their own."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.chance = random.Random(seed)
        self.specs: dict[str, JobSpec] = {}
        self.now_ms = START_MS

    async def holders(self) -> dict[str, str]:
        """Job -> node of everything that holds a slot now."""
        found = {}
        for node in SLOTS:
            for member in (await leases(self.fleet, node))[::2]:
                found[member.decode().partition("|")[0]] = node
        return found

    async def call(self) -> Call:
        """The next call: also of jobs of the same batch, and some that fail in the middle."""
        chance, held = self.chance, await self.holders()
        if held and chance.random() < 0.45:
            job = chance.choice(sorted(held))
            return Call(job, self.specs[job], held[job])
        job, spec = self.fleet.next_job()
        if chance.random() < 0.1:
            # After its lease and its record: its audio has no place (`broken`).
            spec = msgspec.structs.replace(spec, audio=True)
        self.specs[job] = spec
        return Call(job, spec)

    async def batch(self) -> Batch:
        """Make the calls of a batch, each alone."""
        # Sometimes all leases have expired since the last one, of jobs that nobody ends.
        self.now_ms += self.chance.choice((10, 10, 10, EXPIRED_MS))
        self.fleet.store.runner.now_ms = self.now_ms
        calls, answers = [], []
        for _ in range(self.chance.randint(2, CALLS_MAX)):
            call = await self.call()
            calls.append(call)
            answers += [
                shown(answer) for answer in await at_once(self.fleet, [call.made(self.fleet)])
            ]
        return Batch(self.now_ms, calls, answers, await contents(self.fleet))


async def broken(fleet: Fleet) -> None:
    """Where audio would be kept is something else: whoever stores any fails at this point."""
    for index in range(BATCHES * CALLS_MAX):
        key = CELL.key("audio", f"s1|{index}")
        fleet.connection.command(CELL.slot, "SET", key, "no hash")


async def begin(fleet: Fleet) -> None:
    await fleet.connection.every_master("FLUSHALL")
    fleet.store = Store(fleet.connection, QUICK)
    fleet.store.runner.now_ms = START_MS
    await fleet.register()
    await broken(fleet)


@pytest.mark.parametrize("seed", range(4))
def test_a_batch_leaves_what_its_calls_leave_one_at_a_time(server: Server, seed: int) -> None:
    async def scenario() -> None:
        async with fleet_on(server, SLOTS, "i1") as fleet:
            await begin(fleet)
            plan = Plan(fleet, seed)
            batches = [await plan.batch() for _ in range(BATCHES)]
            seen = {answer.partition(" ")[0] for batch in batches for answer in batch.answers}
            assert seen >= {"PLACED", "QUEUED", "SETTLED", "error"}
            await begin(fleet)
            for batch in batches:
                fleet.store.runner.now_ms = batch.at_ms
                before = await fleet.commands()
                answers = await at_once(fleet, [call.made(fleet) for call in batch.calls])
                assert (await fleet.commands())["fcall"] - before["fcall"] == 1
                assert [shown(answer) for answer in answers] == batch.answers
                assert await contents(fleet) == batch.held

    asyncio.run(scenario())


def test_a_slot_that_expired_is_not_counted_when_others_of_its_node_are_given_back(
    server: Server,
) -> None:
    async def scenario() -> None:
        async with fleet_on(server, {"n1": 3}, "i1") as fleet:
            await begin(fleet)
            old, fresh = fleet.next_job(), [fleet.next_job() for _ in range(4)]
            await fleet.submit(*old)
            fleet.store.runner.now_ms += EXPIRED_MS
            one, two, ended, three, four, gone, waits = await at_once(
                fleet,
                [
                    partial(fleet.submit, *fresh[0]),
                    partial(fleet.submit, *fresh[1]),
                    partial(fleet.settle, fresh[0][0], "n1"),
                    partial(fleet.submit, *fresh[2]),
                    partial(fleet.submit, *fresh[3]),
                    partial(fleet.settle, old[0], "n1"),
                    partial(fleet.submit, *fleet.next_job()),
                ],
            )
            placed = [shown(answer) for answer in (one, two, three, four)]
            assert placed == ["PLACED n1"] * 4
            assert [shown(answer) for answer in (ended, gone)] == ["SETTLED []"] * 2
            # The expired one was none of the three.
            assert shown(waits) == "QUEUED "
            expected = sorted(f"{job}|1".encode() for job, _ in fresh[1:])
            assert (await leases(fleet, "n1"))[::2] == expected

    asyncio.run(scenario())
