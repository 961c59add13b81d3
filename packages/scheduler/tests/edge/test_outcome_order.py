"""Outcomes are in the order of utterances; indices that are late or left out hold up nothing."""

from __future__ import annotations

import pytest

from edge.live_server import Stage, play, until

pytestmark = pytest.mark.store


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


def test_an_utterance_that_comes_late_does_not_wait_for_those_that_wait_for_it() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in (0, 2, 3, 4, 5, 6, 7, 8, 9, 1):
            await client.utter(index)
        await client.result(9)
        assert client.outcomes() == [(index, "ok") for index in range(10)]

    play(scenario, jobs__in_flight_max=4, jobs__gap_ms=3000)


def test_indices_left_out_for_good_are_not_kept_for_ever() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        client = await stage.client()
        for index in range(0, 80, 4):
            await client.utter(index)
            await client.result(index)
        assert not stage.server.instance.sessions[client.id].admission.parts.indices._skipped

    play(scenario, jobs__gap_ms=100)


def test_an_utterance_after_a_quiet_time_does_not_wait_for_ever() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        for index in range(3):
            await client.utter(index)
            await node.answer(await node.job(utterance_index=index))
            await client.result(index)
            await until(lambda: not stage.server.instance.jobs, "nothing is under way")

    play(scenario)
