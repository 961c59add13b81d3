"""One cell's master is unavailable: nothing that was done in other cells is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from jobs.deployment import FRENCH, TO_FRENCH, Crashed, deployed
from lingua_scheduler.state.reply import Reply
from servers import Cluster, start_cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(name="cluster")
def cluster_that_stays_divided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Masters that do not declare each other lost during a test."""
    with start_cluster(tmp_path_factory.mktemp("cluster"), node_timeout_ms=15000) as cluster:
        yield cluster


def test_a_settle_is_told_though_the_foreign_slot_cannot_be_given_back_now(
    cluster: Cluster,
) -> None:
    async def run() -> None:
        async with deployed(*cluster.addresses) as d:
            home, other, _ = d.cells.all
            await d.ready_node(other)
            speaker = await d.speaker(home)
            placement = await speaker.placed(0)
            cluster.owner(other.slot).kill()
            _, work = await speaker.settle(placement)
            assert work.deliver

    asyncio.run(run())


def test_a_job_goes_to_a_third_cell_when_the_second_is_down(cluster: Cluster) -> None:
    async def run() -> None:
        async with deployed(*cluster.addresses) as d:
            home, other, third = d.cells.all
            await d.ready_node(other)
            node = await d.ready_node(third)
            speaker = await d.speaker(home)
            cluster.owner(other.slot).kill()
            assert (await speaker.placed(0)).node == node

    asyncio.run(run())


def test_a_turn_goes_on_elsewhere_when_the_cell_of_its_node_is_down(cluster: Cluster) -> None:
    async def run() -> None:
        async with deployed(*cluster.addresses) as d:
            home, other, third = d.cells.all
            lost = await d.ready_node(other, slots=4)
            speaker = await d.speaker(home)
            assert (await speaker.placed(0, turn="t1")).node == lost
            node = await d.ready_node(third, slots=4)
            cluster.owner(other.slot).kill()
            rest = await asyncio.gather(*(speaker.placed(at, turn="t1") for at in (1, 2, 3)))
            assert [placement.node for placement in rest] == 3 * [node]
            # The context is gone once.
            assert [placement.context_reset for placement in rest] == [True, False, False]

    asyncio.run(run())


def test_a_parked_job_ends_though_another_cell_is_down(cluster: Cluster) -> None:
    async def run() -> None:
        async with deployed(*cluster.addresses) as d:
            home, other, _ = d.cells.all
            await d.ready_node(other)
            speaker = await d.speaker(home)
            cluster.owner(other.slot).kill()
            answer, _ = await speaker.submit(0)
            assert answer.reply is Reply.QUEUED
            d.advance(d.policy.pending_ms)
            await d.sweeper.sweep(home)
            assert [row.kind for row in await speaker.outcomes()] == ["expired"]

    asyncio.run(run())


def test_a_sweep_that_meets_a_dead_cell_still_pushes_what_it_placed(cluster: Cluster) -> None:
    async def run() -> None:
        async with deployed(*cluster.addresses) as d:
            home, other, _ = d.cells.all
            await d.ready_node(home)
            speaker, stuck = await d.speaker(home), await d.speaker(home)
            await speaker.placed(0)
            await d.ready_node(home)
            await d.ready_node(other, can=FRENCH)
            d.store.crash_before("lease_reserve")
            with pytest.raises(Crashed):
                await stuck.submit(0, "fr", wanted=TO_FRENCH)
            cluster.owner(other.slot).kill()
            d.advance(d.policy.attempt_ms)
            work = await d.sweeper.sweep(home)
            assert [p.attempt for p in work.push] == [2]

    asyncio.run(run())
