"""What the authors of the predecessor reported (predecessor-facts.md 9.1), a test for each number.

Each would fail on a server that has the failure. What was found by reading (9.2) is in
`test_known_failures_read.py`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from functools import partial

import pytest

from edge.live_server import (
    Client,
    Message,
    Node,
    Stage,
    opus,
    play,
    registration,
    until,
)

pytestmark = pytest.mark.store

# What differs between two jobs that ask for the same.
OWN_FIELDS = {"job_id", "utterance_index", "turn_id", "traceparent", "context_text"}
SLOWEST_S = 2.0


def audio_of(job: Message) -> bytes:
    return base64.b64decode(job["audio"])


async def all_of_it(client: Client, node: Node, said: bytes) -> None:
    """Close the session: every byte was in exactly one job, each index had one outcome."""
    await client.bye()
    jobs = sorted(node.jobs, key=lambda job: int(job["utterance_index"]))
    assert [job["utterance_index"] for job in jobs] == list(range(len(jobs)))
    assert b"".join(audio_of(job) for job in jobs) == said
    assert all(job["audio"] for job in jobs)
    assert client.outcomes() == [(index, "ok") for index in range(len(jobs))]


def more_jobs_than(nodes: Sequence[Node], count: int) -> bool:
    return sum(len(node.jobs) for node in nodes) > count


def test_9_1_1_final_pause_and_timer_at_once_finalize_each_utterance_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        said = b""
        for round_number in range(10):
            fill = bytes([97 + round_number])
            for part in range(3):
                await client.say(opus(40, fill), is_final=part > 0)
                said += opus(40, fill)
            await client.say(b"", is_final=True)
            # About the time that hangover and pause are over: all three are due together.
            await asyncio.sleep(0.02)
        await all_of_it(client, node, said)

    play(scenario, segmentation__pause_ms=20, segmentation__hangover_manual_ms=20)


def test_9_1_2_no_timer_of_an_earlier_utterance_takes_an_index() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        for index in range(6):
            await client.say(opus(60), is_final=index % 2 == 0)
            await client.result(index)
            await client.say(b"", is_final=True)
        await all_of_it(client, node, opus(60) * 6)

    play(scenario, segmentation__pause_ms=100)


def test_9_1_3_no_chunk_is_lost_and_the_last_sentence_needs_no_next_one() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        # A finalize of nothing takes no index.
        await client.say(b"", is_final=True)
        # Shorter than what is merged: it still comes out, by itself.
        await client.say(opus(100, b"1"))
        await client.result(0)
        # The chunk that brings the cut is in it.
        await client.say(opus(800, b"2"))
        await client.say(opus(800, b"3"))
        await client.result(1)
        # The chunk after a pause is not lost either, and closing flushes.
        await client.say(opus(100, b"4"))
        said = opus(100, b"1") + opus(800, b"2") + opus(800, b"3") + opus(100, b"4")
        await all_of_it(client, node, said)
        assert len(node.jobs) == 3

    play(scenario, segmentation__max_duration_ms=1500, segmentation__short_merge_ms=400)


def test_9_1_4_the_first_chunk_after_playback_does_not_finalize_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(500, b"a"))
        await client.ask("tts_started", trace_id="t", group_id="g", ts_start_ms=5)
        await node.silent_for(700)
        await client.ask("tts_play_ended", trace_id="t", group_id="g", ts_end_ms=6)
        await client.say(opus(500, b"b"))
        await client.say(opus(500, b"c"), is_final=True)
        job = await node.job()
        assert audio_of(job) == opus(500, b"a") + opus(500, b"b") + opus(500, b"c")
        await node.silent_for(400)

    play(scenario, segmentation__pause_ms=300)


def test_9_1_5_short_pieces_are_merged_instead_of_flooding_the_node() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(260, b"a"))
        # Longer than the pause that would have made a job of it.
        await node.silent_for(600)
        await client.say(opus(260, b"b"))
        job = await node.job()
        assert audio_of(job) == opus(260, b"a") + opus(260, b"b")
        assert job["utterance_index"] == 0

    play(scenario, segmentation__pause_ms=450, segmentation__short_merge_ms=400)


def test_9_1_6_all_slices_of_a_long_sentence_reach_one_node_in_order() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(3)]
        client = await stage.old_client()
        for number in range(3):
            await client.say(opus(1000, bytes([97 + number])))
            await until(partial(more_jobs_than, nodes, number), "the slice is assigned")
        await client.say(opus(500, b"z"), is_final=True)
        await until(lambda: sum(len(node.jobs) for node in nodes) == 4, "the end is assigned")
        (holder,) = [node for node in nodes if node.jobs]
        assert [job["utterance_index"] for job in holder.jobs] == [0, 1, 2, 3]
        assert len({job["turn_id"] for job in holder.jobs}) == 1
        assert not any(job.get("context_reset") for job in holder.jobs)
        whole = b"".join(audio_of(job) for job in holder.jobs)
        assert whole == b"".join(opus(1000, fill) for fill in (b"a", b"b", b"c")) + opus(500, b"z")
        await holder.answer(holder.jobs[3], "the whole sentence")
        await client.result(3, text_asr="the whole sentence")

    play(scenario, segmentation__max_duration_ms=1000, segmentation__pause_ms=1000)


def test_9_1_7_sessions_that_end_do_not_delay_the_results_of_others() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=100)
        node.work()
        clients = [await stage.client() for _ in range(30)]
        for client in clients:
            for index in range(4):
                await client.utter(index)
        for client in clients:
            await client.result(3)
        last = await stage.client()
        for client in clients:
            await client.ask("session_close", reason="all at once")
        await last.utter(0)
        result = await last.result(0)
        assert result["timeline"]["total_ms"] < SLOWEST_S * 1000
        assert result["part_index"] == 0
        for client in clients:
            await client.expect("session_close_ack")
        await until(lambda: len(stage.server.instance.board.sessions) == 1, "the others are gone")

    play(scenario)


def test_9_1_8_heartbeats_do_not_hold_up_placement() -> None:
    async def scenario(stage: Stage) -> None:
        nodes = [await stage.old_node() for _ in range(10)]
        for node in nodes:
            node.work()
        client = await stage.client()

        async def beat(node: Node) -> None:
            said = registration()
            services = said["installed_services"]
            for number in range(40):
                langs = registration(to=("en", "zh")[: number % 2 + 1])["language_capabilities"]
                await node.beat(installed_services=services, language_capabilities=langs)

        async def speak() -> None:
            for index in range(20):
                await client.utter(index)
                await client.result(index)

        await asyncio.gather(speak(), *(beat(node) for node in nodes))
        spent = stage.server.instance.metrics.accept_to_assign_seconds
        assert spent.count == 20
        assert not any(spent.counts[-2:]), spent.counts

    play(scenario)


def test_9_1_9_streamed_and_whole_utterances_are_one_path() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client(dialect="mandarin", features={"emotion_detection": False})
        await client.say(opus(400), is_final=True)
        streamed = await node.job()
        await client.utter(1, opus(400), audio_format="opus")
        whole = await node.job()
        differing = {k for k in {*streamed, *whole} if streamed.get(k) != whole.get(k)}
        assert differing <= OWN_FIELDS

    play(scenario)


@pytest.mark.parametrize("src", ["zh", "auto"])
def test_9_1_10_a_node_is_found_whatever_came_first(src: str) -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.old_client(src, "en")
        await client.utter(0, src_lang=src)
        await client.expect("error", code="NO_AVAILABLE_NODE")
        # It says what it can do only with a later heartbeat, and gets ready with that one.
        node = await stage.old_node(
            "late", language_capabilities={"asr_languages": ["ja"], "semantic_languages": ["ko"]}
        )
        await node.silent_for(100)
        await node.beat(language_capabilities=registration()["language_capabilities"])
        job = await node.job()
        assert (job["src_lang"], job["tgt_lang"]) == (src, "en")
        await node.answer(job)
        await client.result(0)

    play(scenario)


def test_9_1_11_one_job_per_utterance_and_a_result_sent_twice_counts_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.client()
        for index in range(5):
            await client.utter(index)
            job = await node.job()
            await node.answer(job)
            await node.answer(job, "again")
            result = await client.result(index, text_asr="hello")
            assert result["timeline"]["total_ms"] < SLOWEST_S * 1000
            await node.answer(job, "and again")
        await client.bye()
        assert client.outcomes() == [(index, "ok") for index in range(5)]
        assert len({job["job_id"] for job in node.jobs}) == 5
        assert len(node.jobs) == 5

    play(scenario)


def test_9_1_12_no_ghost_of_a_node_or_session_outlives_a_restart() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node("only")
        client = await stage.old_client()
        await client.utter(0)
        await node.job()
        await stage.stop_server()
        assert await node.closed() is not None
        assert await client.closed() is not None
        await stage.start_server()
        assert not stage.server.instance.board.sessions

        again = await stage.client()
        await again.utter(0)
        await again.expect("utterance_accepted", utterance_index=0)
        # What the store still knew of the node is not what serves: the node itself is.
        back = await stage.old_node("only")
        job = await back.job(session_id=again.id)
        await back.answer(job)
        await again.result(0)

    play(scenario)


def test_9_1_13_a_language_nobody_serves_is_told_when_it_is_chosen() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.old_node()
        instance = stage.server.instance
        await until(lambda: instance.fleet._pools, "the fleet was looked at")
        client = await stage.client("zh", "fr")
        assert client.ack["unserved_langs"] == ["fr"]
        old = await stage.old_client("zh", "fr")
        assert "fr" in old.ack["message"]
        served = await stage.client("zh", "en")
        assert "unserved_langs" not in served.ack

    play(scenario)
