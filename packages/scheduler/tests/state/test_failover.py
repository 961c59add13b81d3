"""The connection to a cluster of 3 masters and 3 replicas whose masters die under a steady load.

Every reply must belong to its own call, and every failure must be reported with the correct error.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import hiredis
import pytest

from lingua_scheduler.errors import OutcomeUnknown, StoreUnavailable
from lingua_scheduler.state.cluster import ClusterConnection, key_slot
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.script import Script
from servers import Cluster

pytestmark = pytest.mark.cluster

ADD_AND_TELL = Script.of("add_and_tell", "return {KEYS[1], ARGV[1], redis.call('INCR', KEYS[1])}")

KILLS = 5
WORKERS_PER_MASTER = 4
# Far more than the timeouts of a call allow: a call that takes this long hangs.
HANG_S = 8.0
RECOVERY_S = 10.0
BOUND_S = 40.0


class Worker:
    """One caller with one key, which calls all the time and checks what it gets."""

    def __init__(self, connection: ClusterConnection, key: str) -> None:
        self.key = key
        self.slot = key_slot(key)
        # Calls that were answered, that may have run, and that did not run.
        self.answered = self.unknown = self.refused = 0
        # Of the last success: when its call was made, and the generation when it was answered.
        self.succeeded_at = 0.0
        self.generation = -1
        self._connection = connection
        self._nonces = itertools.count()

    async def work(self) -> None:
        while True:
            began_at = time.monotonic()
            try:
                # Not `wait_for`, which may swallow the cancellation that ends this.
                async with asyncio.timeout(HANG_S):
                    await self._call()
            except OutcomeUnknown:
                self.unknown += 1
            except StoreUnavailable:
                self.refused += 1
            else:
                self.answered += 1
                self.succeeded_at, self.generation = began_at, self._connection.generation
            await asyncio.sleep(0.005)

    async def _call(self) -> None:
        nonce = b"%d" % next(self._nonces)
        reply = await self._connection.run(ADD_AND_TELL, self.slot, (self.key,), (nonce,))
        assert reply[:2] == [self.key.encode(), nonce], "a reply to another call"


class Load:
    """Workers on every master, and the connection that they share."""

    def __init__(self, connection: ClusterConnection, workers: list[Worker]) -> None:
        self.connection = connection
        self.workers = workers
        self.tasks = [asyncio.create_task(worker.work()) for worker in workers]

    async def until_all_succeed(self, workers: list[Worker], bound_s: float = BOUND_S) -> None:
        """Wait until each has had a success with a call made from now on."""
        now = time.monotonic()
        await self.until(lambda: all(w.succeeded_at > now for w in workers), bound_s)

    async def until(self, condition: Callable[[], bool], bound_s: float = BOUND_S) -> None:
        """Wait for a condition; a worker that failed fails this."""
        deadline = time.monotonic() + bound_s
        while not condition():
            for task in self.tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < deadline, f"not within {bound_s} s"
            await asyncio.sleep(0.02)

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.wait(self.tasks)


@asynccontextmanager
async def load_on(cluster: Cluster) -> AsyncIterator[Load]:
    """Run a load on all masters that works when it is handed out."""
    owners = {cluster.owner(slot) for slot in (0, 8000, 16000)}
    keys = [cluster.new_key(node) for node in owners for _ in range(WORKERS_PER_MASTER)]
    before = asyncio.all_tasks()
    connection = await ClusterConnection.open(cluster.addresses, LinkOptions())
    load = Load(connection, [Worker(connection, key) for key in keys])
    try:
        await load.until_all_succeed(load.workers)
        yield load
    finally:
        await load.end()
        await connection.close()
    assert asyncio.all_tasks() == before


def test_a_master_killed_five_times_under_load_costs_honest_errors_and_works_again(
    replicated_cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with load_on(cluster) as load:
            for n in range(KILLS):
                victim = load.workers[n * WORKERS_PER_MASTER % len(load.workers)]
                generation = load.connection.generation
                old = cluster.kill_master(victim.slot)
                await load.until_all_succeed(load.workers, RECOVERY_S)
                assert victim.generation > generation, "a success before the generation grew"
                old.launch()
                await load.until(partial(is_whole, cluster))
            failures = sum(worker.refused + worker.unknown for worker in load.workers)
            assert failures > 0, "no call met a dead master: nothing was tried"

    cluster = replicated_cluster
    asyncio.run(scenario())


def test_planned_failovers_under_load_lose_and_repeat_nothing_that_was_answered(
    replicated_cluster: Cluster,
) -> None:
    async def scenario() -> None:
        async with load_on(cluster) as load:
            for worker in load.workers[::WORKERS_PER_MASTER]:
                generation = load.connection.generation
                old = cluster.owner(worker.slot)
                cluster.replica_of(old).ask("CLUSTER", "FAILOVER")
                await load.until(partial(cluster._has_left, worker.slot, old))
                await load.until_all_succeed(load.workers)
                assert load.connection.generation > generation
                await load.until(partial(is_whole, cluster))
            await load.end()
            for worker in load.workers:
                stored = int(await load.connection.command(worker.slot, "GET", worker.key))
                # The last call of each worker was cancelled: it may have run.
                assert worker.answered <= stored <= worker.answered + worker.unknown + 1

    cluster = replicated_cluster
    asyncio.run(scenario())


def test_the_generation_stays_while_nothing_is_lost(replicated_cluster: Cluster) -> None:
    async def scenario() -> None:
        async with load_on(replicated_cluster) as load:
            for _ in range(3):
                load.connection._refresh_wanted.set()
                await load.until(lambda: not load.connection._refresh_wanted.is_set())
                await load.until_all_succeed(load.workers)
            assert load.connection.generation == 0

    asyncio.run(scenario())


def test_a_slot_that_is_moved_is_a_new_generation(replicated_cluster: Cluster) -> None:
    async def scenario() -> None:
        connection = await ClusterConnection.open(cluster.addresses, LinkOptions())
        assert await connection.command(slot, "GET", key) is None
        assert connection.generation == 0
        cluster.move_slot(slot, target, masters)
        assert await connection.command(slot, "GET", key) is None
        assert connection.generation > 0
        await connection.close()
        cluster.move_slot(slot, source, masters)

    cluster = replicated_cluster
    masters = [cluster.owner(slot) for slot in (0, 8000, 16000)]
    source, target, _ = masters
    key = cluster.new_key(source)
    slot = key_slot(key)
    asyncio.run(scenario())


def is_whole(cluster: Cluster) -> bool:
    """Whether every node answers and each master has its replica."""
    try:
        return cluster._is_whole()
    except (OSError, hiredis.ReplyError):
        return False  # one does not listen yet, or is loading
