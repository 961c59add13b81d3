"""The connection to a real cluster: routing, redirects, losses of masters, and failover."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from lingua_scheduler.errors import OutcomeUnknown, StoreRejected, StoreUnavailable
from lingua_scheduler.state.cluster import ClusterConnection, key_slot
from lingua_scheduler.state.libraries import load_on_masters
from lingua_scheduler.state.link import Address, LinkOptions
from lingua_scheduler.state.script import Script
from lingua_scheduler.state.single import SingleConnection, SteadyLink
from servers import Cluster, Server, free_port, start_cluster, start_server, until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.cluster

Runner = Callable[[Coroutine[Any, Any, None]], None]
runners = pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])

ECHO = Script.of("echo", "return {KEYS[1], ARGV[1]}")
ADD = Script.of("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")

BOUND_S = 30.0


@pytest.fixture(name="cluster", scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with start_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@asynccontextmanager
async def opened(addresses: list[Address], **options: Any) -> AsyncIterator[ClusterConnection]:
    """Open, use, close, and see that nothing is left behind."""
    before = asyncio.all_tasks()
    connection = await ClusterConnection.open(addresses, LinkOptions(**options))
    try:
        yield connection
    finally:
        await connection.close()
    assert asyncio.all_tasks() == before


async def until_it_adds(connection: ClusterConnection, key: str) -> None:
    """Try to add one until it works; every failure on the way must be an honest one."""
    for _ in range(int(BOUND_S / 0.01)):
        try:
            await connection.run(ADD, key_slot(key), (key,), (1,))
        except StoreUnavailable:
            await asyncio.sleep(0.01)
        else:
            return
    raise AssertionError(f"no success within {BOUND_S} s")


def master_of(connection: ClusterConnection, slot: int) -> SteadyLink:
    steady = connection._slots[slot]
    assert steady is not None
    return steady


@runners
def test_calls_reach_the_masters_of_their_slots_without_a_redirect(
    cluster: Cluster, runner: Runner
) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            keys = [f"key{n}" for n in range(300)]
            calls = [connection.run(ECHO, key_slot(key), (key,), ("x",)) for key in keys]
            assert await asyncio.gather(*calls) == [[key.encode(), b"x"] for key in keys]

    before = sum(node.errors_sent("MOVED") for node in cluster.nodes)
    runner(scenario())
    assert sum(node.errors_sent("MOVED") for node in cluster.nodes) == before


def test_slots_are_computed_as_the_server_computes_them(cluster: Cluster) -> None:
    odd = ["", "a", "{}", "{}x", "{a}b", "x{a}b", "{a", "a}", "}a{b}", "{{a}}", "a{b}{c}", "é{ü}"]
    dice = random.Random(5)
    odd += ["".join(dice.choices("ab{}é:", k=dice.randrange(1, 12))) for _ in range(200)]
    for key in odd:
        assert key_slot(key) == cluster.nodes[0].ask("CLUSTER", "KEYSLOT", key), key
        assert key_slot(key.encode()) == key_slot(key)


def test_every_master_answers_once(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            identities = await connection.every_master("CLUSTER", "MYID")
        assert sorted(identities) == sorted(node.ask("CLUSTER", "MYID") for node in cluster.masters)

    asyncio.run(scenario())


def test_each_master_can_be_asked_by_a_slot_of_its_own(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            slots = connection.masters()
            identities = [await connection.command(slot, "CLUSTER", "MYID") for slot in slots]
        assert sorted(identities) == sorted(node.ask("CLUSTER", "MYID") for node in cluster.masters)
        with pytest.raises(StoreUnavailable):
            connection.masters()

    asyncio.run(scenario())


def test_one_reachable_address_of_many_is_enough_to_open(cluster: Cluster) -> None:
    async def scenario() -> None:
        dead = Address("127.0.0.1", free_port())
        async with opened([dead, cluster.addresses[2]]) as connection:
            assert len(await connection.every_master("PING")) == 3
        with pytest.raises(StoreUnavailable, match="refused"):
            await ClusterConnection.open([dead], LinkOptions())
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


def test_a_slot_that_moved_is_followed_once_and_remembered(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            await connection.run(ECHO, slot, (key,), ("before",))
            cluster.move_slot(slot, target)
            before = owner.errors_sent("MOVED")
            calls = [connection.run(ECHO, slot, (key,), (n,)) for n in range(50)]
            assert await asyncio.gather(*calls) == [[key.encode(), b"%d" % n] for n in range(50)]
            assert (first := owner.errors_sent("MOVED")) > before
            await connection.run(ECHO, slot, (key,), ("after",))
            assert owner.errors_sent("MOVED") == first
            await until(lambda: not connection._refresh_wanted.is_set(), BOUND_S, "a new map")
            assert master_of(connection, slot).address == target.address

    key = cluster.new_key(cluster.masters[0])
    slot = key_slot(key)
    owner, target = cluster.masters[0], cluster.masters[1]
    asyncio.run(scenario())


def test_a_slot_moved_to_a_master_not_known_before_is_followed(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        old, new = cluster.masters
        async with opened(cluster.addresses) as connection:
            assert list(connection._links) == [old.address]
            cluster.move_slot(key_slot("k"), new)
            calls = [connection.run(ADD, key_slot("k"), ("k",), (1,)) for _ in range(20)]
            assert sorted(await asyncio.gather(*calls)) == list(range(1, 21))
            assert master_of(connection, key_slot("k")).address == new.address

    with start_cluster(tmp_path, masters=2) as cluster:
        cluster.gather_slots(cluster.masters[0])
        asyncio.run(scenario(cluster))


def test_every_master_gets_the_library_and_one_that_lost_it_gets_it_again(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            await load_on_masters(connection, ADD.library)
            for node in cluster.masters:
                assert node.ask("FUNCTION", "LIST", "LIBRARYNAME", ADD.library.name)
            for _ in range(3):
                for node in cluster.masters:
                    node.ask("FUNCTION", "FLUSH")
                keys = [cluster.new_key(node) for node in cluster.masters]
                calls = [connection.run(ADD, key_slot(k), (k,), (1,)) for k in keys * 10]
                counts = [*range(1, 11)] * len(keys)
                assert sorted(await asyncio.gather(*calls)) == sorted(counts)

    asyncio.run(scenario())


def test_a_slot_in_migration_is_asked_for_at_its_target_and_the_map_stays(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            cluster.begin_migration(slot, source, target)
            target.ask("FUNCTION", "FLUSH")  # so that the target also lacks the function
            before = source.errors_sent("ASK"), target.errors_sent("MOVED")
            calls = [connection.run(ADD, slot, (key,), (1,)) for _ in range(50)]
            others = [connection.run(ECHO, each, (name,), (1,)) for name, each in neighbours]
            assert sorted(await asyncio.gather(*calls)) == list(range(1, 51))
            assert await asyncio.gather(*others) == [[n.encode(), b"1"] for n, _ in neighbours]
            assert source.errors_sent("ASK") >= before[0] + 50
            assert target.errors_sent("MOVED") == before[1], "a call came without ASKING"
            assert master_of(connection, slot).address == source.address
            cluster.move_slot(slot, target)
            assert await connection.run(ADD, slot, (key,), (1,)) == 51

    key = cluster.new_key(cluster.masters[1])
    slot = key_slot(key)
    source, target = cluster.masters[1], cluster.masters[2]
    neighbours = [(name, key_slot(name)) for name in (f"n{n}" for n in range(50))]
    asyncio.run(scenario())


def test_keys_split_by_a_migration_are_retried_until_they_are_together(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses, call_timeout_ms=300) as connection:
            await connection.command(slot, "SET", here, "1")
            cluster.begin_migration(slot, source, target)
            with pytest.raises(StoreUnavailable, match="TRYAGAIN") as caught:
                await connection.command(slot, "MGET", here, there)
            assert not isinstance(caught.value, OutcomeUnknown)
            call = connection.command(slot, "MGET", here, there)
            await until(lambda: bool(connection._waiting), BOUND_S, "the call met TRYAGAIN")
            source.ask("CLUSTER", "SETSLOT", slot, "STABLE")
            target.ask("CLUSTER", "SETSLOT", slot, "STABLE")
            assert await call == [b"1", None]
            await connection.command(slot, "DEL", here)

    tag = cluster.new_key(cluster.masters[0])
    here, there = f"{{{tag}}}here", f"{{{tag}}}there"
    slot = key_slot(tag)
    source, target = cluster.masters[0], cluster.masters[2]
    asyncio.run(scenario())


def test_two_nodes_that_point_at_each_other_do_not_hold_a_call_for_ever(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.node_id(target))
            # The target is not told that it imports: it sends every call back.
            with pytest.raises(StoreUnavailable, match="sent 6 times and still"):
                await connection.run(ECHO, slot, (key,), ("x",))
            source.ask("CLUSTER", "SETSLOT", slot, "STABLE")
            assert await connection.run(ECHO, slot, (key,), ("x",)) == [key.encode(), b"x"]

    key = cluster.new_key(cluster.masters[0])
    slot = key_slot(key)
    source, target = cluster.masters[0], cluster.masters[2]
    asyncio.run(scenario())


def test_a_call_with_a_wrong_slot_is_rejected_and_says_so(cluster: Cluster) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            slot = key_slot(cluster.new_key(cluster.masters[1]))
            with pytest.raises(StoreRejected, match=f"the call was for slot {slot}"):
                await connection.command(slot, "GET", key)

    key = cluster.new_key(cluster.masters[0])
    asyncio.run(scenario())


def test_a_single_connection_to_a_cluster_says_that_it_is_one(cluster: Cluster) -> None:
    async def scenario() -> None:
        connection = await SingleConnection.open(node.address, LinkOptions())
        with pytest.raises(StoreRejected, match="the server is part of a cluster"):
            await connection.run(ECHO, 0, (key,), ("x",))
        await connection.close()

    key = cluster.new_key(cluster.masters[0])
    node = cluster.masters[1]
    asyncio.run(scenario())


def test_a_cluster_connection_to_a_single_server_is_refused(tmp_path: Path) -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(StoreRejected, match="cluster support disabled"):
            await ClusterConnection.open([server.address], LinkOptions())
        assert len(asyncio.all_tasks()) == 1

    with start_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_a_blocked_read_ends_when_its_slot_moves_and_goes_on_at_the_new_master(
    cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses, call_timeout_ms=500) as connection:
            reader = await connection.dedicated(slot)
            read = reader.command("BLPOP", key, 8)
            await until(lambda: source.blocked_clients == 1, BOUND_S, "the read blocks")
            cluster.move_slot(slot, target)
            with pytest.raises(StoreUnavailable, match="MOVED") as caught:
                await read
            assert not isinstance(caught.value, OutcomeUnknown)
            await reader.close()
            reader = await connection.dedicated(slot)
            assert reader.address == target.address
            read = reader.command("BLPOP", key, 8)
            await connection.command(slot, "RPUSH", key, "item")
            assert await read == [key.encode(), b"item"]
            await reader.close()

    key = cluster.new_key(cluster.masters[2])
    slot = key_slot(key)
    source, target = cluster.masters[2], cluster.masters[0]
    asyncio.run(scenario())


@runners
def test_close_leaves_nothing_running_whatever_was_pending(
    cluster: Cluster, runner: Runner
) -> None:
    async def scenario() -> None:
        async with opened(cluster.addresses) as connection:
            pending = connection.command(key_slot("b"), "BLPOP", "b", 10)
            steady = master_of(connection, key_slot("b"))
            await until(lambda: bool(steady.link._pending), BOUND_S, "it is written")
            unsent = connection.command(key_slot("b"), "PING")
            await connection.close()
            assert isinstance(pending.exception(), OutcomeUnknown)
            assert type(unsent.exception()) is StoreUnavailable
            with pytest.raises(StoreUnavailable, match="closed by this process"):
                await connection.run(ECHO, 0, ("k",), ("v",))
            with pytest.raises(StoreUnavailable, match="closed by this process"):
                await connection.dedicated(0)

    runner(scenario())


def test_a_lost_master_fails_its_slots_at_once_and_no_others_and_is_found_after_a_restart(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        for node in cluster.nodes:
            node.ask("CONFIG", "SET", "cluster-require-full-coverage", "no")
        lost, alive = cluster.masters[0], cluster.masters[1]
        lost_key, alive_key = cluster.new_key(lost), cluster.new_key(alive)
        async with opened(cluster.addresses) as connection:
            await until_it_adds(connection, lost_key)
            steady = master_of(connection, key_slot(lost_key))
            lost.kill()
            await steady.link.lost.wait()
            for _ in range(10):
                call = connection.run(ADD, key_slot(lost_key), (lost_key,), (1,))
                assert call.done(), "a call without a reachable master must not wait"
                assert type(call.exception()) is StoreUnavailable
                assert await connection.run(ADD, key_slot(alive_key), (alive_key,), (1,))
            lost.start()
            await until_it_adds(connection, lost_key)
            await until(lambda: steady.link.is_connected, BOUND_S, "the link is back")

    with start_cluster(tmp_path) as cluster:
        asyncio.run(scenario(cluster))


@runners
def test_a_failover_is_followed_and_the_old_master_is_left(tmp_path: Path, runner: Runner) -> None:
    async def scenario(cluster: Cluster) -> None:
        master, replica = cluster.masters[0], cluster.replicas[0]
        key = cluster.new_key(master)
        slot = key_slot(key)
        async with opened([cluster.masters[1].address]) as connection:
            await until_it_adds(connection, key)
            await connection.command(slot, "WAIT", 1, 1000)
            master.kill()
            await until_it_adds(connection, key)
            assert master_of(connection, slot).address == replica.address
            assert await connection.command(slot, "GET", key) == b"2"
            known = connection._links
            await until(lambda: master.address not in known, BOUND_S, "the old link is left")
            assert len(await connection.every_master("PING")) == 3

            # Back as a replica of the new master, it must not attract calls again.
            master.start()
            await until(cluster.is_ok, BOUND_S, "the cluster is whole")
            assert await connection.run(ADD, slot, (key,), (1,)) == 3

    with start_cluster(tmp_path, replicas=1, node_timeout_ms=1000) as cluster:
        runner(scenario(cluster))


def test_a_master_that_hangs_is_replaced_by_its_replica(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        master = cluster.masters[0]
        key = cluster.new_key(master)
        options = {"call_timeout_ms": 300, "connect_timeout_ms": 300}
        async with opened(cluster.addresses, **options) as connection:
            await until_it_adds(connection, key)
            master.pause()
            with pytest.raises(OutcomeUnknown):
                await connection.run(ADD, key_slot(key), (key,), (1,))
            await until_it_adds(connection, key)
            master.resume()
            for _ in range(50):
                await until_it_adds(connection, key)
                await asyncio.sleep(0.01)
            assert cluster.owner(key_slot(key)) is cluster.replicas[0]

    with start_cluster(tmp_path, replicas=1, node_timeout_ms=1000) as cluster:
        asyncio.run(scenario(cluster))


def test_a_planned_failover_under_load_loses_and_repeats_nothing_that_was_answered(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        master, replica = cluster.masters[0], cluster.replicas[0]
        key = cluster.new_key(master)
        answered = unknown = 0
        is_over = False

        async def worker(connection: ClusterConnection) -> None:
            nonlocal answered, unknown
            while not is_over:
                try:
                    await connection.run(ADD, key_slot(key), (key,), (1,))
                    answered += 1
                except OutcomeUnknown:
                    unknown += 1
                except StoreUnavailable:
                    await asyncio.sleep(0.01)

        async with opened(cluster.addresses, call_timeout_ms=3000) as connection:
            workers = [asyncio.create_task(worker(connection)) for _ in range(16)]
            await until(lambda: answered > 200, BOUND_S, "the load runs")
            replica.ask("CLUSTER", "FAILOVER")
            await until(lambda: cluster.owner(key_slot(key)) is replica, BOUND_S, "it took over")
            enough = answered + 200
            await until(lambda: answered > enough, BOUND_S, "the load runs on")
            is_over = True
            await asyncio.gather(*workers)
            total = int(await connection.command(key_slot(key), "GET", key))
        assert answered <= total <= answered + unknown

    with start_cluster(tmp_path, replicas=1) as cluster:
        asyncio.run(scenario(cluster))
