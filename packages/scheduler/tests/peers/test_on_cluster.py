"""The same scenarios on a cluster, where instances and the directory are on different masters."""

from __future__ import annotations

import asyncio

import pytest

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.state.cluster import ClusterConnection
from lingua_scheduler.state.connection import Connection
from lingua_scheduler.state.keys import Cell, InstanceKeys
from lingua_scheduler.state.link import LinkOptions
from peers import test_adoption, test_deadletters, test_inbox, test_presence
from peers.scenario import BOUND_S, PREFIX, Notes, Scenario, inbox_of, letter, reading
from servers import Cluster

pytestmark = pytest.mark.cluster

SCENARIOS = [
    *test_inbox.SCENARIOS,
    test_inbox.dead_letters_are_reached_although_entries_are_claimed_again,
    *test_presence.SCENARIOS,
    test_presence.started_at_is_written_once,
    *test_adoption.SCENARIOS,
    test_adoption.what_a_dead_instance_left_is_applied_once_in_order,
    *test_deadletters.SCENARIOS,
]


def play(cluster: Cluster, scenario: Scenario) -> None:
    async def whole() -> None:
        connection = await ClusterConnection.open(
            cluster.addresses, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await scenario(connection)
        finally:
            await connection.close()

    asyncio.run(whole())


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_on_a_cluster(replicated_cluster: Cluster, scenario: Scenario) -> None:
    play(replicated_cluster, scenario)


def test_the_keys_of_these_tests_are_on_several_masters(replicated_cluster: Cluster) -> None:
    slots = [InstanceKeys(PREFIX, name).slot for name in ("a", "b", "dead-1", "newer", "orphan")]
    slots.append(Cell(PREFIX, 0).slot)
    assert len({replicated_cluster.owner(slot).port for slot in slots}) > 1


def test_letters_arrive_again_after_the_inbox_has_another_master(
    replicated_cluster: Cluster,
) -> None:
    async def scenario(connection: Connection) -> None:
        notes = Notes()
        async with reading(inbox_of(connection, "b", notes)):
            assert await PeerSender(connection, PREFIX, "a").send("b", letter(0))
            await notes.reach(1)
            slot = InstanceKeys(PREFIX, "b").slot
            old = replicated_cluster.kill_master(slot)
            await asyncio.to_thread(replicated_cluster.wait_promoted, slot, old)
            await send_when_possible(connection, 1)
            await notes.reach(2)
        assert set(notes.numbers) == {0, 1}

    play(replicated_cluster, scenario)


async def send_when_possible(connection: Connection, number: int) -> None:
    post = PeerSender(connection, PREFIX, "a")
    for _ in range(int(BOUND_S / 0.01)):
        try:
            if await post.send("b", letter(number)):
                return
        except StoreUnavailable:
            pass
        await asyncio.sleep(0.01)
    raise AssertionError("no letter could be sent")
