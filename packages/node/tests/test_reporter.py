"""The heartbeats of a node: their beginning and their interval."""

from __future__ import annotations

import pytest

from lingua_wire.from_node import NodeHeartbeat
from node_peer import (
    node_for,
    register_ack,
    run,
    scripted_scheduler,
    serving,
)

pytestmark = pytest.mark.unit


def test_heartbeats_begin_at_once_and_come_as_often_as_the_scheduler_says() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = register_ack(heartbeat_ms=50)
            async with serving(node_for(scheduler, heartbeat_ms=3_600_000)):
                connection = await scheduler.connection()
                beats = [await connection.expect(NodeHeartbeat) for _ in range(4)]
        assert isinstance(connection.received[1], NodeHeartbeat)
        assert {beat.node_id for beat in beats} == {"n1"}
        assert beats[0].timestamp < beats[3].timestamp
        assert 0 < beats[0].resource_usage.mem_percent < 100

    run(scenario())


def test_without_word_from_the_scheduler_the_nodes_own_interval_holds() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(node_for(scheduler, heartbeat_ms=60)):
            connection = await scheduler.connection()
            for _ in range(3):
                await connection.expect(NodeHeartbeat)

    run(scenario())
