"""What an only node refused or never heard of it gets again; and what it is told of its time."""

from __future__ import annotations

import pytest

from edge import many_servers
from edge.live_server import Stage, play

pytestmark = pytest.mark.store

QUICK = {"jobs__sweep_interval_ms": 20}


@pytest.mark.parametrize("code", ["NODE_OVERLOADED", "NODE_UNAVAILABLE"])
def test_an_only_node_that_refused_once_gets_the_job_again(code: str) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("only")
        client = await stage.client()
        await client.utter(0)
        job = await node.job(attempt_id=1)
        await node.fail(job, code)
        again = await node.job(attempt_id=2)
        assert again["job_id"] == job["job_id"]
        await node.answer(again)
        await client.result(0)
        assert client.outcomes() == [(0, "ok")]

    play(scenario, **QUICK)


def test_an_only_node_that_never_heard_of_a_job_gets_it_again() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("only", sends_acks=True)
        client = await stage.client()
        await client.utter(0)
        await node.job(attempt_id=1)
        again = await node.job(attempt_id=2)
        await node.take(again)
        await node.answer(again)
        await client.result(0)
        assert client.outcomes() == [(0, "ok")]

    play(scenario, jobs__ack_ms=200, **QUICK)


def test_each_attempt_says_how_long_it_may_take() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.node("first")
        client = await stage.client()
        await client.utter(0)
        job = await first.job(attempt_id=1)
        assert 0 < job["deadline_ms"] <= 7000
        second = await stage.node("second")
        await first.fail(job, "PROCESSING_ERROR")
        moved = await second.job(attempt_id=2)
        # Another attempt, another time: none of the first one's is missing in it.
        assert 5000 < moved["deadline_ms"] <= 7000
        await second.answer(moved)
        await client.result(0)

    play(scenario, jobs__attempt_ms=7000)


def test_a_job_that_waited_for_its_node_has_its_whole_time() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        await client.utter(0)
        node = await stage.node("late")
        job = await node.job(attempt_id=1)
        assert 0 < job["deadline_ms"] <= 7000
        await node.answer(job)
        await client.result(0)

    play(scenario, jobs__attempt_ms=7000)


def test_nodes_of_the_older_protocol_are_not_told_of_time() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.client()
        await client.utter(0)
        job = await node.job()
        assert "deadline_ms" not in job
        await node.answer(job)
        await client.result(0)

    play(scenario)


def test_a_node_on_another_instance_is_told_what_the_store_says_is_left() -> None:
    async def scenario(company: many_servers.Company) -> None:
        node = await company["A"].node("there")
        client = await company["B"].client()
        await client.utter(0)
        job = await node.job(attempt_id=1)
        assert 0 < job["deadline_ms"] <= 7000
        await node.answer(job)
        await client.result(0)

    many_servers.play(scenario, jobs__attempt_ms=7000)
