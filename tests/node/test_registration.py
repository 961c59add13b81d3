"""How a node comes in: what it says of itself, what it does when it is refused."""

from __future__ import annotations

import asyncio
import os
import re

import pytest
from picows import WSMsgType

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.messages.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.from_node import JobResult, NodeHeartbeat, NodeRegister
from lingua_scheduler.messages.shared import Gpu, InstalledModel, LanguagePair
from lingua_scheduler.messages.to_node import NodeErrorMessage, NodeStatusMessage, ToNode
from lingua_scheduler.node import Node, NodeRefused
from lingua_scheduler.node.machine import Usage, default_node_id
from node.scripted import (
    Connection,
    as_json,
    connected,
    job,
    node_for,
    register_ack,
    run,
    scripted_scheduler,
    serving,
)

pytestmark = pytest.mark.unit


def test_a_node_says_who_it_is_and_what_it_serves() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(
                scheduler,
                pairs=["en>es", "EN>fr_FR"],
                tts_languages=["es"],
                services=("asr", "nmt"),
                features=["emotion_detection"],
                models=[InstalledModel(model_id="m", kind="nmt")],
                gpus=[Gpu(name="a gpu", memory_gb=24)],
                max_jobs=7,
                token="secret",
            )
            async with serving(node):
                connection = await scheduler.connection()
                said = await connection.expect(NodeRegister)
        assert (said.node_id, said.boot_id, said.max_jobs) == ("n1", node.boot_id, 7)
        assert (said.sends_acks, said.token, said.running) == (True, "secret", ())
        assert said.capability_schema_version == "2.0"
        assert said.language_capabilities is not None
        assert said.language_capabilities.supported_language_pairs == (
            LanguagePair(src="en", tgt="es"),
            LanguagePair(src="en", tgt="fr-fr"),
        )
        assert said.language_capabilities.tts_languages == ("es",)
        assert [service.type for service in said.installed_services or ()] == ["asr", "nmt"]
        assert [(can.type, can.ready) for can in said.capability_by_type] == [
            ("asr", True),
            ("nmt", True),
        ]
        assert said.features_supported is not None
        assert said.features_supported.names() == {"emotion_detection"}
        assert [model.model_id for model in said.installed_models] == ["m"]
        assert said.hardware is not None
        assert said.hardware.cpu_cores == os.cpu_count()
        assert said.hardware.gpus == (Gpu(name="a gpu", memory_gb=24),)

    run(scenario())


def test_a_node_without_languages_declares_none_and_so_takes_any() -> None:
    assert Node().registration.language_capabilities is None


def test_recognised_and_target_languages_can_be_given_instead_of_pairs() -> None:
    said = Node(asr_languages=["en"], target_languages=["es"]).registration.language_capabilities
    assert said is not None
    assert said.asr_languages == ("en",)
    assert said.nmt_capabilities is not None
    assert said.nmt_capabilities[0].tgt_langs == ("es",)


def test_the_default_id_stays_the_same_and_fits_into_a_key() -> None:
    assert Node().node_id == Node().node_id == default_node_id()
    assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", default_node_id())
    assert Node().boot_id != Node().boot_id


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(Node(token="secret"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"pairs": ["enes"]}, "pairs"),
        ({"pairs": ["en>"]}, "pairs"),
        ({"asr_languages": ["?"]}, "asr_languages"),
        ({"services": ["cooking"]}, "services"),
        ({"features": ["cooking"]}, "features"),
        ({"max_jobs": 0}, "max_jobs"),
        ({"max_jobs": 1025}, "max_jobs"),
        ({"heartbeat_ms": 0}, "heartbeat_ms"),
        ({"url": "http://127.0.0.1"}, "url"),
        ({"url": ["ws://127.0.0.1", "http://127.0.0.1"]}, "url"),
        ({"url": []}, "url"),
    ],
)
def test_a_wrong_setting_is_told_where_it_is_written(
    settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Node(**settings)  # type: ignore[arg-type]
    assert raised.value.path == problem


def test_a_node_without_a_handler_or_served_twice_is_an_error() -> None:
    async def scenario() -> None:
        with pytest.raises(ConfigError):
            await Node().serve()
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            async with serving(node):
                await scheduler.connection()
                with pytest.raises(ConfigError):
                    await node.serve()

    run(scenario())


def test_a_handler_must_be_an_async_function() -> None:
    with pytest.raises(TypeError):
        Node().job(lambda job: None)  # type: ignore[arg-type, return-value]


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


def test_usage_is_a_percentage() -> None:
    usage = Usage()
    sum(range(2_000_000))
    now = usage.now(3)
    assert 0 <= now.cpu_percent <= 100
    assert now.running_jobs == 3


@pytest.mark.parametrize(
    ("is_json", "supported", "chosen"),
    [
        (False, (JSON_PROTOCOL, MSGPACK_PROTOCOL), MSGPACK_PROTOCOL),
        (True, (JSON_PROTOCOL, MSGPACK_PROTOCOL), JSON_PROTOCOL),
        (False, (JSON_PROTOCOL,), JSON_PROTOCOL),
        (False, (), None),
    ],
)
def test_both_forms_work_and_a_server_without_subprotocols_gets_json(
    is_json: bool, supported: tuple[str, ...], chosen: str | None
) -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.supported = supported
            async with serving(node_for(scheduler, json_wire=is_json)):
                connection = await scheduler.connection()
                assert connection.chosen == chosen
                await connection.expect(NodeHeartbeat)
                connection.send(job())
                result = await connection.expect(JobResult)
                assert result.text_translated == "hola"
                if chosen != MSGPACK_PROTOCOL:
                    assert as_json(connection.raw[0])["type"] == "node_register"

    run(scenario())


@pytest.mark.parametrize(
    "code", ["INVALID_CAPABILITY_SCHEMA", "NO_GPU_AVAILABLE", "UNAUTHORIZED", "FORBIDDEN"]
)
def test_a_refusal_that_stays_ends_the_node(code: str) -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = lambda _: NodeErrorMessage(code=code, message="because")
            with pytest.raises(NodeRefused) as refused:
                await node_for(scheduler).serve()
            assert (refused.value.code, refused.value.message) == (code, "because")
            assert len(scheduler.all) == 1

    run(scenario())


def test_a_refusal_that_may_pass_is_tried_again() -> None:
    def refuse_twice(register: NodeRegister) -> ToNode:
        refusals.append(register)
        if len(refusals) > 2:
            return register_ack()(register)
        return NodeErrorMessage(code="NODE_ID_CONFLICT", message="taken")

    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = refuse_twice
            node = node_for(scheduler, watch=lambda word, detail: told.append((word, detail)))
            async with serving(node):
                for _ in range(2):
                    await scheduler.connection()
                await scheduler.node()
        assert told.count(("refused", "NODE_ID_CONFLICT: taken")) == 2
        assert told[-1] == ("registered", "as n1")

    refusals: list[NodeRegister] = []
    told: list[tuple[str, str]] = []
    run(scenario())


@pytest.mark.parametrize(("status", "code"), [(401, "UNAUTHORIZED"), (403, "FORBIDDEN")])
def test_an_upgrade_refused_for_its_token_ends_the_node(status: int, code: str) -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.http_status = status
            with pytest.raises(NodeRefused) as refused:
                await node_for(scheduler).serve()
            assert refused.value.code == code

    run(scenario())


def test_a_server_that_is_not_ready_is_tried_again() -> None:
    async def scenario() -> None:
        lost = asyncio.Event()
        async with scripted_scheduler() as scheduler:
            scheduler.http_status = 503
            node = node_for(scheduler, watch=lambda word, _: lost.set() if word == "lost" else None)
            async with serving(node):
                await asyncio.wait_for(lost.wait(), 10)
                scheduler.http_status = 0
                await scheduler.node()

    run(scenario())


@pytest.mark.parametrize("code", list(CloseCode))
def test_a_close_ends_the_node_exactly_when_reconnecting_does_not_help(code: CloseCode) -> None:
    # "not needed" is for who asked to be closed; a node that did not ask comes back.
    helps = code.reconnecting_helps.startswith(("yes", "not needed"))

    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            serve = asyncio.create_task(node_for(scheduler).serve())
            connection = await scheduler.node()
            connection.close(code)
            if helps:
                await scheduler.node()
                serve.cancel()
                await asyncio.wait({serve})
            else:
                with pytest.raises(NodeRefused) as refused:
                    await serve
                assert refused.value.code == code.name
                assert len(scheduler.all) == 1

    run(scenario())


def test_an_error_during_work_is_no_refusal_but_being_unknown_is_a_reason_to_come_back() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(node_for(scheduler)):
            first = await scheduler.node()
            first.send(NodeErrorMessage(code="UNAUTHORIZED", message="for something else"))
            first.send(job())
            await first.expect(JobResult)
            first.send(NodeErrorMessage(code="NODE_NOT_REGISTERED", message="who?"))
            again = await scheduler.connection()
            await again.expect(NodeRegister)

    run(scenario())


def test_what_a_node_does_not_know_is_skipped() -> None:
    async def scenario() -> None:
        async with connected(json_wire=True) as connection:
            for text in (b'{"type":"node_dance"}', b"no json", b'{"type":"job_assign"}'):
                connection.transport.send(WSMsgType.TEXT, text)
            connection.transport.send(WSMsgType.BINARY, b"the other form")
            status = NodeStatusMessage(node_id="n1", status="ready", timestamp=1)
            connection.send(status)
            connection.send(job())
            assert (await connection.expect(JobResult)).success

    run(scenario())


def test_a_message_in_several_frames_is_put_together() -> None:
    async def scenario() -> None:
        async with connected() as connection:
            send_in_parts(connection, connection.encode(job()))
            assert (await connection.expect(JobResult)).success

    run(scenario())


def send_in_parts(connection: Connection, data: bytes) -> None:
    third = len(data) // 3
    connection.transport.send(connection.kind, data[:third], fin=False)
    connection.transport.send(WSMsgType.CONTINUATION, data[third : 2 * third], fin=False)
    connection.transport.send(WSMsgType.CONTINUATION, data[2 * third :])
