"""Attempts of a job: on which node the next one is, what it is given, and which result counts."""

from __future__ import annotations

import asyncio

import pytest

from edge import many_servers
from edge.live_server import SHORT_ATTEMPTS, NewNode, OldNode, Stage, opus, play, until

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

    play(scenario, jobs__ack_ms=1500, **QUICK)


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


# Another node


async def holder_of(nodes: list[OldNode], attempt: int) -> OldNode:
    """Return the one node that was given an attempt, once it was."""

    def given() -> list[OldNode]:
        return [node for node in nodes if attempt in [job["attempt_id"] for job in node.jobs]]

    await until(given, f"attempt {attempt} is assigned")
    (holder,) = given()
    return holder


def test_each_failover_is_a_new_attempt_on_another_node_until_they_are_used_up() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(4)]
        client = await stage.old_client()
        await client.utter(0)
        tried = []
        for attempt in (1, 2, 3):
            holder = await holder_of(nodes, attempt)
            tried.append(holder.id)
            await holder.expect("job_cancel", job_id=holder.jobs[0]["job_id"])
        assert len(set(tried)) == 3
        await client.expect("error")
        missing = await client.expect("missing_result", utterance_index=0)
        assert missing["reason"] == "failed"
        # All their slots are free again.
        await client.utter(1)
        await until(lambda: any(job["utterance_index"] == 1 for node in nodes for job in node.jobs))

    play(scenario, **SHORT_ATTEMPTS)


@pytest.mark.parametrize("how", ["lost", "error"])
def test_a_lost_node_or_a_failed_job_is_no_lost_utterance(how: str) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.utter(0)
        job = await first.job()
        second = await stage.old_node("second")
        if how == "lost":
            first.drop()
        else:
            await first.fail(job, "PROCESSING_ERROR", "GPU lease timeout")
        await second.answer(await second.job(attempt_id=2), "right")
        await client.result(0, text_asr="right")
        assert not client.all("error")

    play(scenario)


def test_a_moved_job_keeps_its_padding_its_flags_and_its_audio() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.say(opus(600))
        job = await first.job(is_timeout_triggered=True, padding_ms=220)
        first.drop()
        second = await stage.old_node("second")
        moved = await second.job(attempt_id=2)
        new = {"attempt_id", "context_reset"}
        assert {k: v for k, v in moved.items() if k not in new} == {
            k: v for k, v in job.items() if k not in new
        }

    play(scenario)


def test_a_stale_result_neither_counts_nor_hides_the_valid_one() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.utter(0)
        job = await first.job()
        second = await stage.old_node("second")
        await first.fail(job, "MODEL_NOT_AVAILABLE", service_id="nmt-1")
        moved = await second.job(attempt_id=2)
        await first.answer(job, "stale")
        await until(
            lambda: stage.counted("results_stale_total", reason="stale_attempt"), "rejected"
        )
        await second.answer(moved, "valid")
        await client.result(0, text_asr="valid")
        await client.bye()
        assert client.outcomes() == [(0, "ok")]

    play(scenario)


# Another socket of the same node


def test_the_cleanup_of_an_old_socket_leaves_the_new_one_alone() -> None:
    async def scenario(stage: Stage) -> None:
        former = await stage.old_node("same")
        node = await stage.old_node("same")
        assert await former.closed() == 4409
        client = await stage.old_client()
        for index in range(3):
            await client.utter(index)
            await node.answer(await node.job(attempt_id=1))
            await client.result(index)

    play(scenario)


def test_a_node_id_in_use_is_taken_over_and_no_gpu_is_blamed() -> None:
    async def scenario(stage: Stage) -> None:
        former = await stage.node("twice", boot_id="one")
        client = await stage.client()
        await client.utter(0)
        await former.job(attempt_id=1)
        other = await stage.node("other")
        node = await stage.node("twice", boot_id="two")
        assert await former.closed() == 4409
        assert not former.all("error")
        assert not node.all("error")
        # What the former process held goes on.
        job = await other.job(attempt_id=2)
        await other.answer(job)
        await client.result(0)

    play(scenario)


# Acknowledgements


def test_a_node_that_batches_is_told_once_of_every_result() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("fast", batches_acks=True)
        client = await stage.client()
        jobs = []
        for index in range(4):
            await client.utter(index)
            jobs.append(await node.job())
        for job in jobs[:3]:
            await node.answer(job)
        await node.fail(jobs[3], "UNSUPPORTED_FEATURE")
        await until(lambda: len(told_of(node)) == 4, "all are acknowledged")
        assert told_of(node) == [(job["job_id"], 1, "accepted") for job in jobs]
        assert not node.all("job_result_ack")
        # Sent again, as after a lost connection, it is answered again.
        await node.answer(jobs[0])
        await until(lambda: len(told_of(node)) == 5, "the repeated one is acknowledged")
        await until(lambda: len(client.outcomes()) == 4, "all outcomes")

    play(scenario)


def test_a_stopping_instance_acknowledges_before_it_closes() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node("fast", batches_acks=True)
        client = await stage.client()
        await client.utter(0)
        job = await node.job()
        stopping = asyncio.create_task(stage.server.drain())
        await client.expect("go_away")
        await node.answer(job)
        await stopping
        await node.closed()
        assert told_of(node) == [(job["job_id"], 1, "accepted")]

    play(scenario)


def told_of(node: NewNode) -> list[tuple[str, int, str]]:
    """Return job, attempt and status of what a node was acknowledged in batches."""
    return [
        (one["job_id"], one["attempt_id"], one["status"])
        for message in node.all("job_result_acks")
        for one in message["results"]
    ]
