"""What `docs/resharding.md` says of moving a cell to another master, shown on a real cluster.

Moved atomically (CLUSTER MIGRATESLOTS), a cell under load loses nothing. Moved key by key (SETSLOT
and MIGRATE), a script that declares one key and derives the others can stop half-way, or find keys
missing that are only not there yet. The last tests show that declaring one absent key beside it
makes the server refuse such calls before they run.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import hiredis
import pytest

from jobs.deployment import TracedStore, deployed
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.script import Script
from servers import Cluster, Server, start_cluster, until
from state.moving_load import BOUND_S, SPEAKERS, Load

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Word

    Move = Callable[[Cluster, int], Awaitable[None]]

pytestmark = pytest.mark.cluster

NOT_LOCAL = "non local key"
BATCH = 5
# Short times: what an error leaves behind must come to rest within the test.
QUICK = FleetPolicy(attempt_ms=3000, lease_grace_ms=500, reserve_ms=500, outbox_max=100_000)


class TwoKeyStore(TracedStore):
    """The store, if every call also declared a key of its cell that never exists."""

    async def _traced(self, name: str, cell: Cell, args: tuple[Word, ...]) -> list[Any]:
        keys = (cell.due, cell.key("absent"))
        answer: list[Any] = await self.connection.run(
            self._scripts[name], cell.slot, keys, (self.now_ms, *args)
        )
        return answer


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


async def move_key_by_key(cluster: Cluster, slot: int) -> None:
    source, target = ends_of_move(cluster, slot)
    cluster.begin_migration(slot, source, target)
    while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, BATCH):
        # In a thread, so that the load goes on meanwhile.
        await asyncio.to_thread(send_keys, source, target, keys)
    cluster.move_slot(slot, target)


def send_keys(source: Server, target: Server, keys: Sequence[bytes | str], *how: str) -> None:
    source.ask("MIGRATE", "127.0.0.1", target.port or 0, "", 0, 5000, *how, "KEYS", *keys)


def redirects(source: Server) -> int:
    """Return how often a master has said that a call belongs elsewhere, or is not possible yet."""
    return sum(source.errors_sent(code) for code in ("MOVED", "ASK", "TRYAGAIN"))


def end_migration(slot: int, source: Server, target: Server) -> None:
    """Give up a key-by-key move; the slot stays where it was."""
    for node in (source, target):
        node.ask("CLUSTER", "SETSLOT", slot, "STABLE")


async def with_load(cluster: Cluster, kind: type[TracedStore], move: Move) -> Load:
    """Move the home of the load's sessions while it runs; its jobs go to two cells."""
    async with deployed(*cluster.addresses, policy=QUICK, kind=kind) as d:
        d.store.now_ms = 0
        home, other, _ = d.cells.all
        await d.ready_node(home, slots=4)
        await d.ready_node(other, slots=SPEAKERS)
        load = Load(d, home)
        source, target = ends_of_move(cluster, home.slot)
        redirected = redirects(source)
        async with asyncio.timeout(2 * BOUND_S):
            await load.during(lambda: move(cluster, home.slot))
        assert redirects(source) > redirected, "the load did not meet the move"
        assert cluster.owner(home.slot) is target
        assert source.ask("CLUSTER", "COUNTKEYSINSLOT", home.slot) == 0
        assert set(load.cells) == {home.name, other.name}
    return load


# The safe way.


def test_a_cell_moved_atomically_under_load_loses_nothing(cluster: Cluster) -> None:
    load = asyncio.run(with_load(cluster, TracedStore, move_atomically))
    # A pause beyond the call's patience may show as unavailable on a slow machine; nothing else.
    assert set(load.troubles) <= {"OutcomeUnknown", "StoreUnavailable"}, load.troubles


def test_an_atomic_move_that_is_called_off_changes_nothing(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
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


# What goes wrong when keys move one by one under a running product.

TWO_WRITES = Script.of(
    "two_writes",
    "redis.call('SET', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[1] .. '2', ARGV[1])",
)


def test_a_script_can_stop_half_way_in_a_slot_that_is_moving(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
            (cell,) = d.cells.all
            key = cell.key("half")
            await d.connection.command(cell.slot, "SET", key, "old")
            source, target = ends_of_move(cluster, cell.slot)
            cluster.begin_migration(cell.slot, source, target)
            with pytest.raises(StoreRejected, match=NOT_LOCAL):
                await d.connection.run(TWO_WRITES, cell.slot, (key,), ("new",))
            end_migration(cell.slot, source, target)
            # The first write stays; the second key, which never existed, was taken for moved.
            assert await d.connection.command(cell.slot, "GET", key) == b"new"
            assert await d.connection.command(cell.slot, "EXISTS", f"{key}2") == 0

    asyncio.run(scenario())


def test_settling_in_a_moving_slot_can_lose_the_slot_and_keep_the_job(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
            (home,) = d.cells.all
            node = await d.ready_node(home)
            speaker = await d.speaker(home)
            placement = await speaker.placed(0)
            source, target = ends_of_move(cluster, home.slot)
            cluster.begin_migration(home.slot, source, target)
            with pytest.raises(StoreRejected, match=NOT_LOCAL) as refused:
                await speaker.settle(placement)
            assert refused.value.command == "job_settle"
            end_migration(home.slot, source, target)
            # Half done: the lease is gone, the job still counts as running on its node.
            assert await d.leased() == set()
            assert (await speaker.submit(0))[0].state == "CREATED"
            assert await speaker.outcomes() == ()
            # Trying again after the move ends it, once; the node counts as full until it beats.
            assert (await speaker.settle(placement))[0].reply is Reply.SETTLED
            assert (await speaker.submit(1))[0].reply is Reply.QUEUED
            (waited,) = (await d.beat(node)).placed
            await speaker.settle(waited)
            await d.settle_down()

    asyncio.run(scenario())


def test_settling_in_a_moving_slot_can_end_the_job_and_tell_nobody(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
            (home,) = d.cells.all
            await d.ready_node(home, slots=2)
            speaker = await d.speaker(home)
            # The first makes the outbox, and the last keeps the lease set: both must be there.
            await speaker.settle(await speaker.placed(0))
            placement, last = await speaker.placed(1), await speaker.placed(2)
            source, target = ends_of_move(cluster, home.slot)
            cluster.begin_migration(home.slot, source, target)
            with pytest.raises(StoreRejected, match=NOT_LOCAL):
                await speaker.settle(placement)
            end_migration(home.slot, source, target)
            assert [index for index, _, _ in await speaker.told()] == [0, 1]
            again, work = await speaker.settle(placement)
            assert (again.reply, again.seq, work.deliver) == (Reply.ALREADY, 2, [])
            await speaker.settle(last)
            await d.settle_down()

    asyncio.run(scenario())


def test_submitting_in_a_moving_slot_is_refused_before_anything_is_written(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
            (home,) = d.cells.all
            await d.ready_node(home)
            speaker = await d.speaker(home)
            source, target = ends_of_move(cluster, home.slot)
            before = sorted(source.ask("CLUSTER", "GETKEYSINSLOT", home.slot, 100))
            cluster.begin_migration(home.slot, source, target)
            with pytest.raises(StoreRejected, match=NOT_LOCAL):
                await speaker.submit(0)
            assert sorted(source.ask("CLUSTER", "GETKEYSINSLOT", home.slot, 100)) == before
            end_migration(home.slot, source, target)
            await speaker.settle(await speaker.placed(0))
            await d.settle_down()

    asyncio.run(scenario())


def test_the_importing_master_denies_what_has_not_arrived_yet(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
            (home,) = d.cells.all
            await d.ready_node(home)
            speaker = await d.speaker(home)
            placement = await speaker.placed(0)
            source, target = ends_of_move(cluster, home.slot)
            cluster.begin_migration(home.slot, source, target)
            send_keys(source, target, [home.due])
            # Wrong answers, and no error: the session is open and the job is held.
            assert (await speaker.submit(1))[0].reply is Reply.NO_SESSION
            assert (await speaker.settle(placement))[0].reply is Reply.NO_JOB
            send_keys(source, target, source.ask("CLUSTER", "GETKEYSINSLOT", home.slot, 100))
            cluster.move_slot(home.slot, target)
            assert (await speaker.settle(placement))[0].reply is Reply.SETTLED
            await d.settle_down()

    asyncio.run(scenario())


def test_an_outcome_settled_on_the_importing_side_stops_the_move_or_is_lost(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1) as d:
            (home,) = d.cells.all
            await d.ready_node(home)
            speaker = await d.speaker(home)
            await speaker.settle(await speaker.placed(0))
            placement = await speaker.placed(1)
            source, target = ends_of_move(cluster, home.slot)
            cluster.begin_migration(home.slot, source, target)
            outbox = home.key("outbox", speaker.session)
            keys = source.ask("CLUSTER", "GETKEYSINSLOT", home.slot, 100)
            send_keys(source, target, [key for key in keys if key.decode() != outbox])
            assert (await speaker.settle(placement))[0].reply is Reply.SETTLED
            with pytest.raises(hiredis.ReplyError, match="BUSYKEY"):
                send_keys(source, target, [outbox])
            send_keys(source, target, [outbox], "REPLACE")
            cluster.move_slot(home.slot, target)
            # Settled and numbered 2, but the outbox that replaced its own has only the first.
            page = await d.store.outbox_read(home, speaker.session)
            assert (page.last_seq, [row.utterance for row in page.entries]) == (2, [0])

    asyncio.run(scenario())


# What would make it safe: one more declared key, that never exists.


def test_a_declared_absent_key_stops_a_script_before_it_runs(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with deployed(*cluster.addresses, cells=1, kind=TwoKeyStore) as d:
            (home,) = d.cells.all
            await d.ready_node(home)
            speaker = await d.speaker(home)
            placement = await speaker.placed(0)
            source, target = ends_of_move(cluster, home.slot)
            cluster.begin_migration(home.slot, source, target)
            for moved in ([], [home.due]):
                if moved:
                    send_keys(source, target, moved)
                with pytest.raises(StoreUnavailable):
                    await speaker.settle(placement)
                assert source.ask("ZCARD", home.key("leases", placement.node)) == 1
            send_keys(source, target, source.ask("CLUSTER", "GETKEYSINSLOT", home.slot, 100))
            cluster.move_slot(home.slot, target)
            assert (await speaker.settle(placement))[0].reply is Reply.SETTLED
            await d.settle_down()

    asyncio.run(scenario())


def test_with_a_declared_absent_key_a_move_key_by_key_under_load_loses_nothing(
    cluster: Cluster,
) -> None:
    load = asyncio.run(with_load(cluster, TwoKeyStore, move_key_by_key))
    assert set(load.troubles) <= {"OutcomeUnknown", "StoreUnavailable"}, load.troubles
