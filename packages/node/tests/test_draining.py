"""A draining node finishes its jobs, refuses new ones and ends in time."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from lingua_node import Job, Result
from lingua_wire.codes import CloseCode
from lingua_wire.from_node import (
    JobResult,
    JobStarted,
    NodeDrain,
    NodeHeartbeat,
)
from node_peer import (
    answer,
    job,
    node_for,
    run,
    scripted_scheduler,
    serving,
    until,
)

pytestmark = pytest.mark.unit


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
            await connection.expect(JobStarted)
            node.drain("an update")
            node.drain("twice is once")
            told = await connection.expect(NodeDrain)
            assert (told.draining, told.reason) == (True, "an update")
            may_end.set()
            await connection.expect(JobResult)
            # Done, but not acknowledged: the node stays connected and sends heartbeats.
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
            await connection.expect(JobStarted)
            node.drain("an update")
            await connection.expect(NodeDrain)
            # Assigned before the scheduler received `node_drain`.
            connection.send(job("j2"))
            refused = await connection.expect(JobResult)
            assert refused.error is not None
            assert (refused.job_id, refused.error.code) == ("j2", "NODE_UNAVAILABLE")
            assert refused.error.message == "an update"
            connection.acknowledge("j2")
            # The running job is not a new one.
            connection.send(job("j1"))
            assert (await connection.expect(JobStarted)).job_id == "j1"
            may_end.set()
            assert (await connection.expect(JobResult)).success
            connection.acknowledge("j1")
            await asyncio.wait_for(serve, 10)
            stats = node.stats
            assert (stats.jobs, stats.succeeded, stats.refused) == (1, 1, 1)
            # When it is served again it takes jobs again.
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
            await first.expect(JobStarted)
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
            await connection.expect(JobStarted)
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
