"""The connection of a node: forms, refusals, closes, and messages that it does not know."""

from __future__ import annotations

import asyncio

import pytest
from picows import WSMsgType

from lingua_node import NodeRefused
from lingua_wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_wire.codes import CloseCode
from lingua_wire.from_node import JobResult, NodeHeartbeat, NodeRegister
from lingua_wire.to_node import NodeErrorMessage, NodeStatusMessage, ToNode
from node_peer import (
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
    # "not needed" applies to a peer that asked for the close; a node that did not ask reconnects.
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
