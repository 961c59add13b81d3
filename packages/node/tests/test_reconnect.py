"""A lost scheduler: jobs continue, and their results are sent on the next connection."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re

import pytest

from lingua_node import Job, Node, Result
from lingua_wire.codes import CloseCode
from lingua_wire.from_node import (
    JobResult,
    JobStarted,
    NodeHeartbeat,
    NodeRegister,
)
from lingua_wire.to_node import NodeControl, NodeErrorMessage
from node_peer import (
    answer,
    ignored,
    job,
    node_for,
    run,
    scripted_scheduler,
    serving,
    until,
)

pytestmark = pytest.mark.unit

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def test_a_result_is_sent_again_on_every_connection_until_it_is_acknowledged() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            async with serving(node):
                first = await scheduler.node()
                first.send(job("j1"))
                result = await first.expect(JobResult)
                first.cut()
                second = await scheduler.connection()
                (held,) = (await second.expect(NodeRegister)).running or ()
                assert held.job_id == "j1"
                assert await second.expect(JobResult) == result
                # Before the heartbeat that no longer lists the job.
                kinds = [type(message) for message in second.received]
                await second.expect(NodeHeartbeat)
                assert kinds[:2] == [NodeRegister, JobResult]
                second.acknowledge("j1", attempt_id=7)
                second.acknowledge("unknown")
                second.cut()
                third = await scheduler.connection()
                await third.expect(JobResult)
                third.acknowledge("j1")
                third.send(job("j2"))
                await third.expect(JobResult)
                third.acknowledge("j2")
                third.send(NodeControl(command="reconnect"))
                fourth = await scheduler.connection()
                assert (await fourth.expect(NodeRegister)).running == ()
                await fourth.expect(NodeHeartbeat)
        assert fourth.of(JobResult) == []
        assert (node.stats.resent, node.stats.reconnects) == (2, 3)
        assert (node.stats.jobs, node.stats.lost_results) == (2, 0)

    run(scenario())


def test_a_job_goes_on_without_a_connection_and_is_answered_on_the_next() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            await job.partial("nobody hears this")
            return await answer(job)

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work)
            async with serving(node):
                first = await scheduler.node()
                first.send(job("j1", 2))
                await first.expect(JobStarted)
                # The registration is not answered, so that the job ends without a connection.
                scheduler.on_register, answers = None, scheduler.on_register
                first.cut()
                second = await scheduler.connection()
                (listed,) = (await second.expect(NodeRegister)).running or ()
                assert (listed.job_id, listed.attempt_id) == ("j1", 2)
                may_end.set()
                await until(lambda: node.stats.succeeded == 1)
                scheduler.on_register = answers
                second.cut()
                third = await scheduler.connection()
                assert (await third.expect(JobResult)).attempt_id == 2
        assert len(second.received) == 1
        assert node.stats.jobs == 1

    run(scenario())


def test_an_unsendable_result_of_a_lost_connection_is_reported_as_a_failure() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            return Result(text_asr="\ud800")

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work)
            async with serving(node):
                first = await scheduler.node()
                first.send(job())
                await first.expect(JobStarted)
                scheduler.on_register, answers = None, scheduler.on_register
                first.cut()
                second = await scheduler.connection()
                may_end.set()
                await until(lambda: node.stats.failed == 1)
                scheduler.on_register = answers
                second.cut()
                third = await scheduler.connection()
                assert not (await third.expect(JobResult)).success

    run(scenario())


def test_a_node_reconnects_when_the_scheduler_asks_for_it() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(node_for(scheduler)):
            first = await scheduler.node()
            first.send(NodeControl(command="dance"))
            first.send(NodeControl(command="reconnect", reason="the instance stops"))
            await asyncio.wait_for(first.lost.wait(), 10)
            assert first.close_code == CloseCode.GOING_AWAY
            second = await scheduler.node()
        assert second.received[0].boot_id == first.received[0].boot_id

    run(scenario())


def test_a_scheduler_that_froze_is_left() -> None:
    async def scenario() -> None:
        told: list[str] = []
        async with scripted_scheduler(answers_pings=False) as scheduler:
            node = node_for(scheduler, silence_s=0.2, watch=lambda word, _: told.append(word))
            async with serving(node):
                first = await scheduler.node()
                await scheduler.node()
        assert first.lost.is_set()
        assert told[:4] == ["connecting", "registered", "lost", "connecting"]

    run(scenario())


def test_an_idle_scheduler_that_answers_pings_is_kept() -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            serving(node_for(scheduler, silence_s=0.1, heartbeat_ms=100)),
        ):
            first = await scheduler.node()
            for _ in range(6):
                await first.expect(NodeHeartbeat)
        assert len(scheduler.all) == 1

    run(scenario())


def test_a_node_can_be_served_again_after_it_ended() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            for _ in range(2):
                async with serving(node):
                    connection = await scheduler.node()
                    connection.send(job())
                    await connection.expect(JobResult)
                    connection.acknowledge("j1")

    run(scenario())


def test_an_old_refusal_does_not_count_when_the_scheduler_is_unavailable_later() -> None:
    async def scenario() -> None:
        told: list[str] = []
        async with scripted_scheduler() as scheduler:
            scheduler.on_register, answers = None, scheduler.on_register
            node = node_for(scheduler, watch=lambda word, _: told.append(word))
            async with serving(node):
                first = await scheduler.connection()
                await first.expect(NodeRegister)
                scheduler.http_status = 503
                first.send(NodeErrorMessage(code="NODE_ID_CONFLICT", message="taken"))
                first.close(CloseCode.REFUSED)
                await until(lambda: "lost" in told)
                scheduler.on_register, scheduler.http_status = answers, 0
                await scheduler.node()
        assert "refused" in told

    run(scenario())


async def upgraded_when(
    may_answer: asyncio.Event, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    """Complete an upgrade late; return all bytes that the peer sends after it."""
    request = await reader.readuntil(b"\r\n\r\n")
    (key,) = re.findall(rb"(?i)sec-websocket-key: (\S+)", request)
    accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID).digest()).decode()
    await may_answer.wait()
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_a_connection_that_opens_after_the_node_has_ended_is_closed() -> None:
    async def scenario() -> None:
        is_asked, may_answer = asyncio.Event(), asyncio.Event()
        sent: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            is_asked.set()
            sent.set_result(await upgraded_when(may_answer, reader, writer))
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        node = Node(f"ws://127.0.0.1:{port}/ws/node", watch=ignored)
        node.job(answer)
        async with server:
            serve = asyncio.create_task(node.serve())
            await asyncio.wait_for(is_asked.wait(), 10)
            node.stop()
            await asyncio.wait_for(serve, 10)
            may_answer.set()
            assert await asyncio.wait_for(sent, 10) == b""

    run(scenario())
