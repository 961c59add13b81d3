"""The procedures of `docs/resharding.md` for moving a cell to another master, on a real cluster.

Moved atomically (CLUSTER MIGRATESLOTS), a cell under load loses nothing. Moved key by key (SETSLOT
and MIGRATE), a script could stop half-way or miss keys that were not moved yet. Therefore every
call of the store also names a key that never exists, and the server refuses the call before it
runs, as long as the slot is divided.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from jobs.deployment import deployed
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import Claim
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script import Script
from servers import Cluster, Server, start_cluster, until
from state.moving_load import BOUND_S, SPEAKERS, Load

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from jobs.deployment import Speaker
    from lingua_scheduler.state.records import Placement

    Move = Callable[[Load], Awaitable[None]]
    HoldUp = Callable[[], Awaitable[None]]

pytestmark = pytest.mark.cluster

BATCH = 5
# How long a call is tried while its slot is divided: every such test waits for it.
CALL_MS = 1500
# Short times: what an error leaves behind must come to rest within the test.
QUICK = FleetPolicy(attempt_ms=3000, lease_grace_ms=500, reserve_ms=500, outbox_max=100_000)
# What a caller may meet while its cell is moved; both say that it may try again.
NOT_NOW = {"StoreUnavailable", "OutcomeUnknown"}


@pytest.fixture(name="shared", scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(name="cluster")
def emptied_cluster(shared: Cluster) -> Cluster:
    for master in shared.masters:
        master.ask("FLUSHALL")
        # What a failed test may have left open.
        master.ask("CLUSTER", "SETSLOT", key_slot("{c0}"), "STABLE")
    return shared


# Moving a slot.


def ends_of_move(cluster: Cluster, slot: int) -> tuple[Server, Server]:
    """Return the slot's master, and another one to move it to."""
    source = cluster.owner(slot)
    return source, next(master for master in cluster.masters if master is not source)


def migration_state(source: Server) -> str:
    """Return the state of the newest atomic move of a master."""
    row = source.ask("CLUSTER", "GETSLOTMIGRATIONS")[0]
    state: bytes = dict(zip(row[::2], row[1::2], strict=True))[b"state"]
    return state.decode()


def start_atomic_move(slot: int, source: Server, target_id: str) -> None:
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target_id)


async def move_atomically(cluster: Cluster, slot: int) -> None:
    source, target = ends_of_move(cluster, slot)
    start_atomic_move(slot, source, cluster.node_id(target))
    await until(lambda: migration_state(source) == "success", BOUND_S, "the slot is moved")


async def nothing() -> None:
    """Do not hold a move up."""


async def move_key_by_key(cluster: Cluster, slot: int, hold_up: HoldUp = nothing) -> None:
    """Move the keys, then the slot; held up before the first key and after the last one."""
    source, target = ends_of_move(cluster, slot)
    cluster.begin_migration(slot, source, target)
    await hold_up()
    while keys := keys_in(source, slot, BATCH):
        # In a thread, so that the load goes on meanwhile.
        await asyncio.to_thread(send_keys, source, target, keys)
    await hold_up()
    cluster.move_slot(slot, target)


def keys_in(master: Server, slot: int, limit: int = 1000) -> list[bytes]:
    keys: list[bytes] = master.ask("CLUSTER", "GETKEYSINSLOT", slot, limit)
    return keys


def send_keys(source: Server, target: Server, keys: Sequence[bytes]) -> None:
    """Move keys; one that is at the target already is an error (BUSYKEY), never overwritten."""
    if keys:
        source.ask("MIGRATE", "127.0.0.1", target.port or 0, "", 0, 5000, "KEYS", *keys)


def redirects(source: Server) -> int:
    """Return how often a master has said that a call belongs elsewhere, or is not possible yet."""
    return sum(source.errors_sent(code) for code in ("MOVED", "ASK", "TRYAGAIN"))


def end_migration(slot: int, source: Server, target: Server) -> None:
    """Give up a key-by-key move; the slot stays where it was."""
    for node in (source, target):
        node.ask("CLUSTER", "SETSLOT", slot, "STABLE")


async def with_load(cluster: Cluster, move: Move) -> Load:
    """Move the home of the load's sessions while it runs; its jobs go to two cells."""
    async with deployed(*cluster.addresses, policy=QUICK, call_timeout_ms=CALL_MS) as d:
        d.store.runner.now_ms = 0
        home, other, _ = d.cells.all
        await d.ready_node(home, slots=4)
        await d.ready_node(other, slots=SPEAKERS)
        load = Load(d, home)
        source, target = ends_of_move(cluster, home.slot)
        redirected = redirects(source)
        async with asyncio.timeout(2 * BOUND_S):
            await load.during(lambda: move(load))
        assert redirects(source) > redirected, "the load did not meet the move"
        assert cluster.owner(home.slot) is target
        assert keys_in(source, home.slot) == []
        assert set(load.cells) == {home.name, other.name}
    return load


# The preferred way, and a cell at rest.


def test_a_cell_moved_atomically_under_load_loses_nothing(cluster: Cluster) -> None:
    def move(load: Load) -> Awaitable[None]:
        return move_atomically(cluster, load.home.slot)

    load = asyncio.run(with_load(cluster, move))
    # A pause beyond the call's patience may show as unavailable on a slow machine; nothing else.
    assert set(load.troubles) <= NOT_NOW, load.troubles


def test_an_atomic_move_that_is_called_off_changes_nothing(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1, call_timeout_ms=CALL_MS) as d:
            (home,) = d.cells.all
            await d.ready_node(home)
            speaker = await d.speaker(home)
            placement = await speaker.placed(0)
            source, target = ends_of_move(cluster, home.slot)
            target_id = cluster.node_id(target)
            target.pause()  # so that it cannot be over before it is called off
            try:
                start_atomic_move(home.slot, source, target_id)
                source.ask("CLUSTER", "CANCELSLOTMIGRATIONS")
            finally:
                target.resume()
            assert migration_state(source) == "cancelled"
            settled, _ = await speaker.settle(placement)
            assert settled.reply is Reply.SETTLED
            assert cluster.owner(home.slot) is source
            await d.settle_down()

    asyncio.run(scenario())


def test_a_cell_moved_key_by_key_while_nobody_calls_loses_nothing(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=2) as d:
            home, other = d.cells.all
            await d.ready_node(home)
            await d.ready_node(other)
            speaker = await d.speaker(home)
            placements = [await speaker.placed(index) for index in (0, 1)]
            await speaker.submit(2)
            await move_key_by_key(cluster, home.slot)
            # The same connection finds the new master by itself.
            for placement in placements:
                _, work = await speaker.settle(placement)
                for last in work.push:
                    await speaker.settle(last)
            assert [kind for _, kind, _ in await speaker.told()] == ["completed"] * 3
            await d.settle_down()

    asyncio.run(scenario())


# Why every call names a key that never exists.

TWO_WRITES = Script.of(
    "two_writes",
    "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[1] .. '2', ARGV[1])",
)


def test_in_a_divided_slot_a_script_stops_half_way_unless_it_declares_an_absent_key(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1, call_timeout_ms=CALL_MS) as d:
            (cell,) = d.cells.all
            key = cell.key("half")
            source, target = ends_of_move(cluster, cell.slot)
            source.ask("SET", key, "old")
            cluster.begin_migration(cell.slot, source, target)
            with pytest.raises(StoreUnavailable, match="TRYAGAIN"):
                await d.connection.run(TWO_WRITES, cell.slot, (key, cell.key("absent")), ("new",))
            assert source.ask("GET", key) == b"old"
            with pytest.raises(StoreRejected, match="non local key"):
                await d.connection.run(TWO_WRITES, cell.slot, (key,), ("new",))
            # The first write stays; the second key, which never existed, was taken for moved.
            assert source.ask("GET", key) == b"new"
            end_migration(cell.slot, source, target)
            assert source.ask("EXISTS", f"{key}2") == 0

    asyncio.run(scenario())


# The store's own calls while a slot is divided.

# What is at the target already, by the names of keys within the cell.
DIVISIONS: dict[str, Callable[[str], bool]] = {
    "nothing": lambda _: False,
    # The scripts' declared key alone: the target would deny sessions and jobs that exist.
    "due": lambda name: name == "due",
    "all but due": lambda name: name != "due",
    # An outcome written at the target would meet the older half of its outbox.
    "all but the outbox": lambda name: not name.startswith("outbox:"),
    "everything": lambda _: True,
}


def contents(master: Server, slot: int) -> dict[bytes, list[bytes]]:
    """Return every key of a slot with all it holds."""
    return {key: value_of(master, key) for key in keys_in(master, slot)}


def value_of(master: Server, key: bytes) -> list[bytes]:
    kind = master.ask("TYPE", key)
    if kind == b"hash":
        # A move changes the order of a hash, and nothing reads it in order.
        fields = iter(master.ask("HGETALL", key))
        return [part for pair in sorted(zip(fields, fields, strict=True)) for part in pair]
    if kind == b"string":
        return [master.ask("GET", key)]
    read = {b"zset": ("ZRANGE", "WITHSCORES"), b"list": ("LRANGE",)}[kind]
    value: list[bytes] = master.ask(read[0], key, 0, -1, *read[1:])
    return value


def calls_of_all_kinds(speaker: Speaker, held: Placement) -> list[Coroutine[Any, Any, object]]:
    """Return calls that all would change the cell of the session, or tell what is in it."""
    d, home = speaker.deployment, speaker.home
    return [
        speaker.submit(4),
        speaker.settle(held),
        d.dispatcher.cancel(home, held.job, "client"),
        d.dispatcher.close_session(home, speaker.session, "client"),
        d.dispatcher.node_lost(held.node, "conn-b1"),
        d.store.sessions.open(home, "another", "i1"),
        d.store.sessions.note(home, speaker.session, 1, {"about": "it"}),
        d.store.sessions.resume(
            home, speaker.session, "i2", tenant="", lease_ms=1000, claim=Claim("t", "", 0)
        ),
        d.store.jobs.fetch(home, held.job, held.attempt, held.node),
        d.store.outbox.read(home, speaker.session),
        d.beat(held.node),
        d.sweep(),
    ]


@pytest.mark.parametrize("moved", DIVISIONS)
def test_calls_in_a_divided_slot_are_refused_change_nothing_and_work_after_the_move(
    cluster: Cluster, moved: str
) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1, call_timeout_ms=CALL_MS) as d:
            (home,) = d.cells.all
            await d.ready_node(home, slots=2)
            speaker = await d.speaker(home)
            # An outbox, two leases and one who waits: each made scripts stop at another step.
            await speaker.settle(await speaker.placed(0))
            held, last = await speaker.placed(1), await speaker.placed(2)
            assert (await speaker.submit(3))[0].reply is Reply.QUEUED
            source, target = ends_of_move(cluster, home.slot)
            before = contents(source, home.slot)

            cluster.begin_migration(home.slot, source, target)
            names = {key: key.decode().removeprefix(home.base) for key in before}
            send_keys(source, target, [key for key in before if DIVISIONS[moved](names[key])])
            refuser = source if home.due in keys_in(source, home.slot) else target
            refused = refuser.errors_sent("TRYAGAIN")
            calls = calls_of_all_kinds(speaker, held)
            answers = await asyncio.gather(*calls, return_exceptions=True)
            # Exactly this error: it says that nothing ran.
            assert [type(answer) for answer in answers] == [StoreUnavailable] * len(calls)
            assert refuser.errors_sent("TRYAGAIN") >= refused + len(calls)

            # No BUSYKEY: the target has made nothing of its own.
            send_keys(source, target, keys_in(source, home.slot))
            cluster.move_slot(home.slot, target)
            assert contents(target, home.slot) == before
            assert (await speaker.submit(4))[0].reply is Reply.QUEUED
            settled, work = await speaker.settle(held)
            assert settled.reply is Reply.SETTLED
            assert [row.utterance for row in work.deliver[0].released] == [1]
            for placement in (last, *work.push):
                await speaker.settle(placement)
            await d.settle_down()

    asyncio.run(scenario())


def test_a_call_that_meets_a_divided_slot_waits_and_runs_when_the_move_is_called_off(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1, call_timeout_ms=CALL_MS) as d:
            (home,) = d.cells.all
            await d.ready_node(home)
            speaker = await d.speaker(home)
            placement = await speaker.placed(0)
            source, target = ends_of_move(cluster, home.slot)
            refused = source.errors_sent("TRYAGAIN")
            cluster.begin_migration(home.slot, source, target)
            async with asyncio.TaskGroup() as group:
                settling = group.create_task(speaker.settle(placement))
                await until(
                    lambda: source.errors_sent("TRYAGAIN") > refused, BOUND_S, "the call is refused"
                )
                assert source.ask("ZCARD", home.key("leases", placement.node)) == 1
                end_migration(home.slot, source, target)
            assert settling.result()[0].reply is Reply.SETTLED
            # The node's slot is free at once, without a heartbeat that puts things right.
            await speaker.settle(await speaker.placed(1))
            await d.settle_down()

    asyncio.run(scenario())


def test_a_cell_moved_key_by_key_under_load_loses_nothing(cluster: Cluster) -> None:
    async def move(load: Load) -> None:
        async def until_refused() -> None:
            goal = load.troubles["StoreUnavailable"] + SPEAKERS
            await until(
                lambda: (
                    load.troubles["StoreUnavailable"] >= goal or not load.troubles.keys() <= NOT_NOW
                ),
                BOUND_S,
                "calls are refused",
            )

        # Long enough that calls are not only delayed, at any step of a placement over two cells.
        await move_key_by_key(cluster, load.home.slot, until_refused)

    load = asyncio.run(with_load(cluster, move))
    # None is rejected half-way, and none gets a wrong answer.
    assert set(load.troubles) <= NOT_NOW, load.troubles
