"""Failures found by reading the live path against the spec, each over real sockets.

Each test names what went wrong once; none of them depends on how it was mended.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import JSON, Stage, opus, play, until
from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.store


async def flush(stage: Stage) -> None:
    """Let the store forget everything."""
    instance = stage.server.instance
    await instance._connection.command(instance.cells.all[0].slot, "FLUSHALL")


# The store forgets


def test_a_store_that_forgot_everything_costs_no_utterance_of_those_under_way() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        for index in range(3):
            await client.utter(index)
            await node.job(utterance_index=index)
        await flush(stage)
        await node.beat()
        await stage.until_ready(node)
        node.work()
        await client.utter(3)
        for index in range(4):
            await client.result(index)
        assert [index for index, _ in client.outcomes()] == [0, 1, 2, 3]
        await until(lambda: not stage.leases())

    play(scenario)


def test_a_store_that_forgot_everything_is_noticed_without_a_further_utterance() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await node.job(utterance_index=0)
        await flush(stage)
        await node.beat()
        node.work()
        await client.result(0)

    play(scenario, sessions__lease_ms=3000)


# Order


def test_a_new_language_is_not_held_up_by_an_index_that_was_left_out_long_ago() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        await client.utter(0)
        await client.utter(2)
        await client.result(2)
        for index in range(3, 20):
            await client.utter(index)
            await client.result(index)
        await client.ask("session_update", tgt_lang="ja")
        await client.utter(20, tgt_lang="ja")
        await client.result(20, tgt_lang="ja")
        assert [index for index, _ in client.outcomes()] == list(range(21))

    play(scenario, jobs__gap_ms=300)


def test_a_hole_gives_no_second_outcome_to_utterances_of_another_language() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client()
        await client.utter(0)
        await client.utter(1)
        jobs = [await node.job() for _ in range(2)]
        await client.utter(3, tgt_lang="ja")
        await node.answer(await node.job(utterance_index=3))
        await client.result(3)
        for job in jobs:
            await node.answer(job)
        await client.result(1)
        assert sorted(index for index, _ in client.outcomes()) in ([0, 1, 3], [0, 1, 2, 3])

    play(scenario, jobs__gap_ms=300)


# Answers of the store that got lost


class LosesAnswers:
    """A store whose answer to one kind of step is lost after the step was taken, once."""

    def __init__(self, stage: Stage, script: str) -> None:
        self._store = stage.server.instance.store
        self._connection = self._store._connection
        self._script = script
        self._store._connection = self  # type: ignore[assignment]

    async def run(self, script: Any, *args: Any) -> Any:
        answer = await self._connection.run(script, *args)
        if script.name == self._script:
            self._script = ""
            raise StoreUnavailable("test", "the answer was lost")
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@pytest.mark.parametrize("script", ["job_settle", "job_submit", "job_failover", "lane_fill"])
def test_an_outcome_reaches_its_client_although_the_stores_answer_was_lost(script: str) -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(sends_acks=True)
        client = await stage.client()
        LosesAnswers(stage, script)
        await client.utter(0)
        job = await node.job(utterance_index=0)
        if script == "job_failover":
            node.drop()
            await client.expect("missing_result", utterance_index=0, reason="expired")
        else:
            await node.answer(job)
            await client.result(0)
        await until(lambda: not stage.leases())

    play(scenario, jobs__pending_ms=1000, jobs__ack_ms=400)


# Tenants and rooms


def test_closing_leaves_the_room_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        one, two = await stage.client(), await stage.client()
        await one.send("room_create", client_ts=1, preferred_lang="zh")
        code = (await one.expect("room_create_ack"))["room_code"]
        await two.send("room_join", room_code=code, preferred_lang="en")
        await one.expect("room_members")
        await two.say(opus(100), is_final=True)
        await node.job()
        await two.ask("session_close", reason="done")
        while len((await one.expect("room_members"))["members"]) != 1:
            pass

    play(scenario)
