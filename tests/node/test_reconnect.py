"""Losing the scheduler: jobs go on, results arrive once it is back; and how a node goes away."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import re

import pytest

from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.from_node import (
    FromNode,
    JobAck,
    JobResult,
    NodeDrain,
    NodeHeartbeat,
    NodeRegister,
)
from lingua_scheduler.messages.to_node import JobResultAck, NodeControl, NodeErrorMessage
from lingua_scheduler.node import Job, Node, Result, worker
from lingua_scheduler.node.link import BACKOFF_MAX_S, Link
from lingua_scheduler.node.worker import Worker
from node.scripted import (
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
                await first.expect(JobAck)
                # Nobody answers the registration, so that the job ends without a connection.
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
                await first.expect(JobAck)
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


def test_the_wait_before_reconnecting_grows_to_its_bound_and_varies() -> None:
    link = Link("ws://127.0.0.1:1/", (), silence_s=1, tls=None)
    waits = [link._wait_s() for _ in range(200)]
    assert waits[0] <= 0.1
    assert waits[1] <= 0.2
    assert max(waits) <= BACKOFF_MAX_S
    assert max(waits[10:]) > 0.8 * BACKOFF_MAX_S
    assert min(waits[10:]) < 0.2 * BACKOFF_MAX_S


def test_draining_finishes_the_jobs_then_closes() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            return await answer(job)

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work, heartbeat_ms=50)
            serve = asyncio.create_task(node.serve())
            connection = await scheduler.node()
            connection.send(job())
            await connection.expect(JobAck)
            node.drain("an update")
            node.drain("twice is once")
            told = await connection.expect(NodeDrain)
            assert (told.draining, told.reason) == (True, "an update")
            may_end.set()
            await connection.expect(JobResult)
            # Done, but not acknowledged: the node stays and its heart beats on.
            beats = len(connection.of(NodeHeartbeat))
            await until(lambda: len(connection.of(NodeHeartbeat)) >= beats + 2)
            assert not serve.done()
            connection.acknowledge("j1")
            await asyncio.wait_for(serve, 10)
            await asyncio.wait_for(connection.lost.wait(), 10)
        assert connection.close_code == CloseCode.NORMAL
        assert len(connection.of(NodeDrain)) == 1
        assert len(scheduler.all) == 1

    run(scenario())


def test_a_draining_node_refuses_what_still_comes_and_finishes_what_it_has() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            return await answer(job)

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work)
            serve = asyncio.create_task(node.serve())
            connection = await scheduler.node()
            connection.send(job("j1"))
            await connection.expect(JobAck)
            node.drain("an update")
            await connection.expect(NodeDrain)
            # Sent before the scheduler knew.
            connection.send(job("j2"))
            refused = await connection.expect(JobResult)
            assert refused.error is not None
            assert (refused.job_id, refused.error.code) == ("j2", "NODE_UNAVAILABLE")
            assert refused.error.message == "an update"
            connection.acknowledge("j2")
            # The one it has is not new.
            connection.send(job("j1"))
            assert (await connection.expect(JobAck)).job_id == "j1"
            may_end.set()
            assert (await connection.expect(JobResult)).success
            connection.acknowledge("j1")
            await asyncio.wait_for(serve, 10)
            stats = node.stats
            assert (stats.jobs, stats.succeeded, stats.refused) == (1, 1, 1)
            # Served again, it takes jobs again.
            async with serving(node):
                connection = await scheduler.node()
                connection.send(job("j3"))
                assert (await connection.expect(JobResult)).success

    run(scenario())


def test_a_draining_node_says_so_again_after_a_reconnect() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            return await answer(job)

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work)
            serve = asyncio.create_task(node.serve())
            first = await scheduler.node()
            first.send(job())
            await first.expect(JobAck)
            node.drain()
            await first.expect(NodeDrain)
            first.cut()
            second = await scheduler.connection()
            await second.expect(NodeDrain)
            may_end.set()
            await second.expect(JobResult)
            second.acknowledge("j1")
            await asyncio.wait_for(serve, 10)

    run(scenario())


def test_draining_does_not_wait_longer_than_it_may() -> None:
    async def scenario() -> None:
        ended: list[Job] = []

        async def work(job: Job) -> Result:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            ended.append(job)
            return await answer(job)

        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work, drain_s=0.05)
            serve = asyncio.create_task(node.serve())
            connection = await scheduler.node()
            connection.send(job())
            await connection.expect(JobAck)
            node.drain()
            await asyncio.wait_for(serve, 10)
            await asyncio.wait_for(connection.lost.wait(), 10)
        assert [job.cancelled for job in ended] == [True]
        assert connection.of(JobResult) == []

    run(scenario())


def test_an_unreachable_scheduler_does_not_keep_a_node_from_ending() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = None
            node = node_for(scheduler)
            serve = asyncio.create_task(node.serve())
            await scheduler.connection()
            node.drain()
            await asyncio.wait_for(serve, 10)
        node = node_for(scheduler)
        serve = asyncio.create_task(node.serve())
        await asyncio.sleep(0)
        serve.cancel()
        await asyncio.wait({serve})
        assert serve.cancelled()

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


def test_an_old_refusal_does_not_count_when_the_scheduler_is_away_later() -> None:
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
    """Complete an upgrade late; return everything the peer sends afterwards until it ends."""
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


class Outlet:
    """Where a worker sends to, without a socket."""

    def __init__(self) -> None:
        self.is_open = True
        self.sent: list[FromNode] = []

    def send(self, message: FromNode) -> None:
        self.sent.append(message)


def results_in(outlet: Outlet) -> list[str]:
    return [message.job_id for message in outlet.sent if isinstance(message, JobResult)]


async def idle_worker(outlet: Outlet, jobs: int, handler: object = answer) -> Worker:
    done = Worker(handler, outlet, max_jobs=1024, acks=False)  # type: ignore[arg-type]
    for number in range(jobs):
        done.assign(job(f"j{number}"))
    await done.until(lambda: not done.running_count)
    return done


def test_only_so_many_results_are_kept_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(worker, "KEPT_MAX", 3)
        outlet = Outlet()
        done = await idle_worker(outlet, 5)
        assert done.unacknowledged_count == 3
        assert done.stats.lost_results == 2
        outlet.sent.clear()
        done.resend()
        assert results_in(outlet) == ["j2", "j3", "j4"]

    run(scenario())


def test_only_so_much_audio_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def speak(job: Job) -> Result:
        return Result(text_asr="x", tts_audio=bytes(1000))

    async def scenario() -> None:
        monkeypatch.setattr(worker, "KEPT_BYTES_MAX", 2500)
        outlet = Outlet()
        done = await idle_worker(outlet, 5, speak)
        assert done.unacknowledged_count == 2
        for job_id in ("j3", "j4"):
            done.acknowledged(JobResultAck(job_id=job_id, attempt_id=1, status="accepted"))
        assert done._kept_bytes == 0

    run(scenario())


def test_a_result_is_not_sent_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        outlet = Outlet()
        done = await idle_worker(outlet, 1)
        for _ in range(10):
            done.resend()
        assert len(results_in(outlet)) == worker.SENDS_MAX
        assert done.unacknowledged_count == 0
        monkeypatch.setattr(worker, "KEPT_S", -1.0)
        old = await idle_worker(outlet, 1)
        old.resend()
        assert (old.unacknowledged_count, old.stats.lost_results) == (0, 1)

    run(scenario())
