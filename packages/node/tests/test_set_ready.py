"""`Node.set_ready`: what works on a node is reported at once and with every registration."""

from __future__ import annotations

import asyncio

import pytest

from lingua_node import Node
from lingua_node.machine import MachineUsage
from lingua_wire.errors import ConfigError
from lingua_wire.from_node import NodeHeartbeat, NodeRegister
from lingua_wire.shared import CapabilityByType, InstalledService
from node_peer import Connection, node_for, register_ack, run, scripted_scheduler, serving

pytestmark = pytest.mark.unit

# So rarely that any heartbeat was sent because of a change.
SELDOM_MS = 60_000


def ready(said: tuple[CapabilityByType, ...]) -> dict[str, bool]:
    return {entry.type: entry.ready for entry in said}


async def news(connection: Connection) -> tuple[CapabilityByType, ...]:
    """Return the capabilities of the next heartbeat that has any."""
    while (told := (await connection.expect(NodeHeartbeat)).capability_by_type) is None:
        pass
    return told


def test_a_change_is_reported_at_once_with_its_reason_and_only_once() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = register_ack(heartbeat_ms=SELDOM_MS)
            node = node_for(scheduler)
            async with serving(node):
                connection = await scheduler.node()
                node.set_ready("nmt", ready=False, reason="its worker died")
                told = await news(connection)
                assert ready(told) == {"asr": True, "nmt": False, "tts": True}
                assert told[1].reason == "its worker died"
                assert told[1].ready_impl_ids is None
                node.set_ready("nmt", ready=False, reason="its worker died")
                node.set_ready("nmt", ready=True)
                assert ready(await news(connection)) == dict.fromkeys(("asr", "nmt", "tts"), True)
        beats = connection.of(NodeHeartbeat)
        assert len([beat for beat in beats if beat.capability_by_type is not None]) == 2

    run(scenario())


def test_what_does_not_work_before_it_serves_is_in_the_registration() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            node.set_ready("tts", ready=False, reason="no voice yet")
            async with serving(node):
                connection = await scheduler.node()
        said = connection.of(NodeRegister)[0].capability_by_type
        assert ready(said) == {"asr": True, "nmt": True, "tts": False}

    run(scenario())


def test_it_is_reported_again_after_a_reconnect() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            async with serving(node):
                first = await scheduler.node()
                first.cut()
                await asyncio.wait_for(first.lost.wait(), 10)
                # Also without a connection.
                node.set_ready("asr", ready=False, reason="away")
                second = await scheduler.node()
        assert ready(second.of(NodeRegister)[0].capability_by_type)["asr"] is False

    run(scenario())


def test_a_change_while_the_registration_is_not_yet_acknowledged_is_not_lost() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = None
            node = node_for(scheduler)
            async with serving(node):
                connection = await scheduler.connection()
                register = await connection.expect(NodeRegister)
                node.set_ready("asr", ready=False, reason="too late for the registration")
                connection.send(register_ack()(register))
                assert ready(await news(connection))["asr"] is False

    run(scenario())


def test_services_can_be_declared_in_detail_several_of_one_type_too() -> None:
    voices = [InstalledService(service_id=name, type="tts", engine=name) for name in ("a", "b")]
    node = Node(services=["asr", *voices])
    said = node.registration
    assert [service.service_id for service in said.installed_services or ()] == ["asr", "a", "b"]
    assert [(can.type, can.ready_impl_ids) for can in said.capability_by_type] == [
        ("asr", ("asr",)),
        ("tts", ("a", "b")),
    ]
    node.set_ready("tts", ready=False)
    assert ready(node.registration.capability_by_type) == {"asr": True, "tts": False}


def test_a_service_the_node_does_not_have_is_an_error() -> None:
    with pytest.raises(ConfigError):
        Node(services=["asr"]).set_ready("tts", ready=True)


def test_a_node_with_measured_slots_does_not_report_its_cpu() -> None:
    usage = MachineUsage(with_cpu=False).now(3)
    assert (usage.cpu_percent, usage.running_jobs) == (0.0, 3)
    assert usage.mem_percent > 0
