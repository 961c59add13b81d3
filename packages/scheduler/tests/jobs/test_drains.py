"""Drains: by an operator, until an operator resumes the node; or by the node's own process."""

from __future__ import annotations

import pytest

from jobs.deployment import Deployment, scenario
from lingua_scheduler.state.reply import Reply

pytestmark = pytest.mark.store


async def takes_work(d: Deployment, node: str) -> bool:
    """Tell whether a new job would go to the only node."""
    (row,) = [row for cell in d.cells.all for row in await d.store.cells.nodes(cell)]
    assert row.node == node
    assert row.draining or not row.held
    return not row.draining


@scenario(cells=1)
async def test_an_operators_drain_outlives_the_process(d: Deployment) -> None:
    (home,) = d.cells.all
    node = await d.ready_node(home)
    await d.store.nodes.drain(home, node, drain=True, operator=True)
    for boot in ("b2", "b3"):
        await d.register(node, boot=boot)
        await d.beat(node, boot)
        assert not await takes_work(d, node)
    await d.store.nodes.drain(home, node, drain=False, operator=True)
    assert await takes_work(d, node)
    await d.register(node, boot="b4")
    assert await takes_work(d, node)


@scenario(cells=1)
async def test_a_nodes_own_drain_ends_with_it(d: Deployment) -> None:
    (home,) = d.cells.all
    node = await d.ready_node(home)
    await d.store.nodes.drain(home, node, drain=True)
    await d.register(node)
    assert not await takes_work(d, node)
    await d.register(node, boot="b2")
    assert await takes_work(d, node)


@scenario(cells=1)
async def test_a_node_cannot_undo_what_its_operator_said(d: Deployment) -> None:
    (home,) = d.cells.all
    node = await d.ready_node(home)
    await d.store.nodes.drain(home, node, drain=True, operator=True)
    for drain in (True, False):
        await d.store.nodes.drain(home, node, drain=drain)
        assert not await takes_work(d, node)
    await d.store.nodes.drain(home, node, drain=False, operator=True)
    assert await takes_work(d, node)


@scenario(cells=1)
async def test_a_drained_node_that_is_long_gone_is_not_forgotten(d: Deployment) -> None:
    (home,) = d.cells.all
    node = await d.ready_node(home)
    await d.store.nodes.drain(home, node, drain=True, operator=True)
    await d.store.nodes.offline(home, node, "conn-b1")
    for _ in range(3):
        d.advance(d.policy.stale_ms)
        assert (await d.store.nodes.check(home, node)).reply is Reply.OK
    await d.register(node, boot="b2")
    assert not await takes_work(d, node)
    # Resumed, it is a node like any other, and forgotten in its time.
    await d.store.nodes.offline(home, node, "conn-b2")
    await d.store.nodes.drain(home, node, drain=False, operator=True)
    d.advance(d.policy.stale_ms)
    assert (await d.store.nodes.check(home, node)).reply is Reply.GONE
