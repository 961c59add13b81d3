"""Utterances and results that are sent again make no second job and no second outcome."""

from __future__ import annotations

import pytest

from edge.live_server import Stage, play, until

pytestmark = pytest.mark.store

SLOWEST_S = 2.0


def test_a_request_id_made_like_anothers_still_gets_an_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client("zh", tgt="", tgt_langs=["en", "ja"])
        await client.utter(0, request_id="r")
        jobs = [await node.job(), await node.job()]
        await client.ask("session_update", tgt_lang="ja")
        # However the ids of two languages are made, no client makes one by accident.
        await client.utter(1, request_id="r:ja", tgt_lang="ja")
        for job in [*jobs, await node.job(utterance_index=1)]:
            await node.answer(job)
        await client.result(1)
        await client.utter(2, tgt_lang="ja")
        await node.answer(await node.job(utterance_index=2))
        await client.result(2)
        await until(
            lambda: not stage.server.instance.sessions[client.id].admission.parts.window.open
        )

    play(scenario)


def test_a_retry_after_the_end_gets_the_answer_and_makes_no_job() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.utter(0, trace_id="t-1")
        await node.answer(await node.job(), "once")
        await client.result(0, text_asr="once")
        await client.utter(0, trace_id="t-1")
        await client.result(0, text_asr="once")
        await client.utter(1, trace_id="t-2")
        await node.answer(await node.job(utterance_index=1))
        await client.result(1)
        assert len(node.jobs) == 2

    play(scenario)


def test_one_job_per_utterance_and_a_result_sent_twice_counts_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.client()
        for index in range(5):
            await client.utter(index)
            job = await node.job()
            await node.answer(job)
            await node.answer(job, "again")
            result = await client.result(index, text_asr="hello")
            assert result["timeline"].get("total_ms", 0) < SLOWEST_S * 1000
            await node.answer(job, "and again")
        await client.bye()
        assert client.outcomes() == [(index, "ok") for index in range(5)]
        assert len({job["job_id"] for job in node.jobs}) == 5
        assert len(node.jobs) == 5

    play(scenario)
