"""A node with several addresses: their order, and the jobs and results that it keeps.

Each scripted scheduler is one instance. Waits that must not happen are made so long that a node
that waited would not connect within the time limit of the test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lingua_node import Job, Node, NodeRefused, Result, addresses, connection
from lingua_node.old_node import OldNode
from lingua_node.simulate import Simulation
from lingua_wire.codes import CloseCode
from lingua_wire.from_node import (
    JobResult,
    JobStarted,
    NodeHeartbeat,
    NodeRegister,
)
from lingua_wire.to_node import NodeControl, NodeErrorMessage
from node_peer import (
    BOUND_S,
    ScriptedScheduler,
    answer,
    ignored,
    job,
    run,
    scripted_scheduler,
    serving,
)

pytestmark = pytest.mark.unit

NEVER_S = 1_000_000.0


class Longest:
    """Random numbers that are always the largest possible ones."""

    def uniform(self, _: float, most: float) -> float:
        return most


@pytest.fixture
def no_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a backoff longer than any test."""
    monkeypatch.setattr(addresses, "_random", Longest())
    monkeypatch.setattr(addresses, "BACKOFF_FIRST_S", NEVER_S)
    monkeypatch.setattr(addresses, "BACKOFF_MAX_S", NEVER_S)


@pytest.fixture
def no_wait(no_backoff: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any wait longer than any test."""
    monkeypatch.setattr(addresses, "JITTER_S", NEVER_S)


def node_of(*schedulers: ScriptedScheduler, handler: Any = answer, **settings: Any) -> Node:
    urls = [scheduler.url for scheduler in schedulers]
    node = Node(urls, **{"node_id": "n1", "watch": ignored, **settings})
    node.job(handler)
    return node


@asynccontextmanager
async def two_instances() -> AsyncIterator[tuple[ScriptedScheduler, ScriptedScheduler]]:
    async with scripted_scheduler() as a, scripted_scheduler() as b:
        yield a, b


async def gone() -> ScriptedScheduler:
    """Return an instance that no longer listens."""
    async with scripted_scheduler() as scheduler:
        return scheduler


def test_after_a_loss_a_node_goes_to_the_next_address_and_round_again(no_backoff: None) -> None:
    async def scenario() -> None:
        told: list[tuple[str, str]] = []
        async with two_instances() as (a, b), scripted_scheduler() as c:
            node = node_of(a, b, c, watch=lambda *news: told.append(news))
            async with serving(node):
                boots = []
                for scheduler in (a, b):
                    connection = await scheduler.node()
                    boots.append(connection.of(NodeRegister)[0].boot_id)
                    connection.cut()
                last = await c.node()
                boots.append(last.of(NodeRegister)[0].boot_id)
                # Otherwise the third loss would end a round of failures.
                node._connection._addresses.reset_backoff()  # type: ignore[union-attr]
                last.cut()
                await a.node()
        assert boots == [node.boot_id] * 3
        assert ("connecting", f"to {b.url}") in told
        assert ("registered", f"as n1 at {b.url}") in told
        assert node.stats.reconnects == 3

    run(scenario())


def test_running_jobs_and_unacknowledged_results_are_kept() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            if job.job_id == "long":
                await may_end.wait()
            return await answer(job)

        async with two_instances() as (a, b):
            node = node_of(a, b, handler=work)
            async with serving(node):
                first = await a.node()
                first.send(job("done"))
                result = await first.expect(JobResult)
                first.send(job("long", 2))
                await first.expect(JobStarted)
                first.cut()
                second = await b.connection()
                registered = await second.expect(NodeRegister)
                assert {held.job_id for held in registered.running or ()} == {"done", "long"}
                assert await second.expect(JobResult) == result
                beat = await second.expect(NodeHeartbeat)
                assert [(one.job_id, one.attempt_id) for one in beat.running or ()] == [("long", 2)]
                kinds = [type(message) for message in second.received]
                assert kinds == [NodeRegister, JobResult, NodeHeartbeat]
                second.acknowledge("done")
                may_end.set()
                assert (await second.expect(JobResult)).job_id == "long"
                second.acknowledge("long", 2)
                second.send(NodeControl(command="reconnect"))
                third = await a.connection()
                await third.expect(NodeHeartbeat)
        # Neither is sent again after its acknowledgement.
        assert third.of(JobResult) == []
        assert (node.stats.jobs, node.stats.resent, node.stats.lost_results) == (2, 1, 0)

    run(scenario())


def test_an_attempt_that_another_instance_assigns_again_is_acknowledged_and_not_run_again() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            return await answer(job)

        async with two_instances() as (a, b):
            node = node_of(a, b, handler=work)
            async with serving(node):
                first = await a.node()
                first.send(job("j1", 2))
                await first.expect(JobStarted)
                first.cut()
                second = await b.node()
                second.send(job("j1", 2))
                started = await second.expect(JobStarted)
                assert (started.job_id, started.attempt_id) == ("j1", 2)
                may_end.set()
                result = await second.expect(JobResult)
                second.send(job("j1", 2))
                assert await second.expect(JobResult) == result
                second.acknowledge("j1", 2)
        assert (node.stats.jobs, node.stats.duplicates, node.stats.resent) == (1, 2, 1)

    run(scenario())


def test_a_later_attempt_from_another_instance_replaces_what_runs() -> None:
    async def scenario() -> None:
        seen: list[Job] = []

        async def work(job: Job) -> Result:
            seen.append(job)
            if job.attempt_id == 1:
                await asyncio.Event().wait()
            return Result(text_asr="x", text_translated=f"attempt {job.attempt_id}")

        async with two_instances() as (a, b):
            node = node_of(a, b, handler=work, max_jobs=1)
            async with serving(node):
                first = await a.node()
                first.send(job("j1", 1))
                await first.expect(JobStarted)
                first.cut()
                second = await b.node()
                second.send(job("j1", 2))
                result = await second.expect(JobResult)
                assert (result.attempt_id, result.text_translated) == (2, "attempt 2")
                second.send(job("j1", 1))
                second.send(job("j2", 2))
                assert (await second.expect(JobResult)).job_id == "j2"
        assert [job.cancelled for job in seen] == [True, False, False]
        assert [result.attempt_id for result in second.of(JobResult)] == [2, 2]

    run(scenario())


def test_addresses_where_nobody_is_cost_no_backoff(no_backoff: None) -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as there, scripted_scheduler() as full:
            full.http_status = 503
            async with serving(node_of(await gone(), full, there)):
                await there.node()

    run(scenario())


def test_a_passing_refusal_leads_to_the_next_address(no_backoff: None) -> None:
    async def scenario() -> None:
        async with two_instances() as (a, b):
            a.on_register = lambda _: NodeErrorMessage(code="NODE_ID_CONFLICT", message="taken")
            async with serving(node_of(a, b)):
                await b.node()

    run(scenario())


def test_a_refusal_that_stays_ends_the_node_whatever_other_addresses_it_has() -> None:
    async def scenario() -> None:
        async with two_instances() as (a, b):
            a.on_register = lambda _: NodeErrorMessage(code="FORBIDDEN", message="no")
            with pytest.raises(NodeRefused):
                await asyncio.wait_for(node_of(a, b).serve(), BOUND_S)
        assert b.all == []

    run(scenario())


@pytest.mark.parametrize("code", [CloseCode.GOING_AWAY, CloseCode.TRY_AGAIN_LATER])
def test_a_redirected_node_goes_to_the_next_address_without_waiting(
    code: CloseCode, no_wait: None
) -> None:
    async def scenario() -> None:
        async with two_instances() as (a, b), serving(node_of(a, b)):
            first = await a.node()
            first.close(code)
            await b.node()

    run(scenario())


def test_an_instance_without_its_store_is_left_without_waiting(no_wait: None) -> None:
    async def scenario() -> None:
        async with two_instances() as (a, b):
            down = NodeErrorMessage(code="SCHEDULER_DEPENDENCY_DOWN", message="no store")
            a.on_register = lambda _: down
            async with serving(node_of(a, b)):
                await b.node()

    run(scenario())


@asynccontextmanager
async def frozen_instance() -> AsyncIterator[tuple[str, asyncio.Queue[asyncio.StreamWriter]]]:
    """Accept connections and never answer; give the address and the connections."""
    came: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    server = await asyncio.start_server(lambda _, writer: came.put_nowait(writer), "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws/node", came
    finally:
        server.close()
        while not came.empty():
            came.get_nowait().close()


def test_an_instance_that_does_not_answer_is_left_sooner_if_there_is_another(
    no_backoff: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(connection, "CONNECT_S", 0.05)
        told: list[str] = []
        async with frozen_instance() as (frozen, came), scripted_scheduler() as there:
            alone = Node(frozen, node_id="alone", watch=lambda word, _: told.append(word))
            alone.job(answer)
            node = Node([frozen, there.url], node_id="n1", watch=ignored)
            node.job(answer)
            async with serving(alone):
                first = await asyncio.wait_for(came.get(), BOUND_S)
                async with serving(node):
                    await there.node()
                    # The other node began to wait earlier, and still waits.
                    assert told == ["connecting"]
            first.close()

    run(scenario())


def test_a_node_of_the_older_protocol_goes_through_its_addresses_too() -> None:
    async def scenario() -> None:
        async with two_instances() as (a, b):
            node = OldNode(
                [a.url, b.url],
                node_id="old",
                reconnect_s=0.01,
                watch=ignored,
                simulation=Simulation(delay_ms=0),
            )
            async with serving(node):
                for scheduler in (a, b, a):
                    connection = await scheduler.node()
                    connection.cut()
        assert node.stats.reconnects >= 2

    run(scenario())
