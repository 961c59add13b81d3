"""Where streamed speech is cut, over real sockets: each byte is in exactly one job."""

from __future__ import annotations

import asyncio

import pytest

from edge.live_server import Client, Node, Stage, audio_of, opus, play
from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.segmenter import Segmenter, SegmentRules, UtteranceCut

pytestmark = pytest.mark.store

# What differs between two jobs that ask for the same.
OWN_FIELDS = {"job_id", "utterance_index", "turn_id", "traceparent", "context_text"}


async def all_of_it(client: Client, node: Node, said: bytes) -> None:
    """Close the session: every byte was in exactly one job, each index had one outcome."""
    await client.bye()
    jobs = sorted(node.jobs, key=lambda job: int(job["utterance_index"]))
    assert [job["utterance_index"] for job in jobs] == list(range(len(jobs)))
    assert b"".join(audio_of(job) for job in jobs) == said
    assert all(job["audio"] for job in jobs)
    assert client.outcomes() == [(index, "ok") for index in range(len(jobs))]


# What ends an utterance


def test_final_pause_and_timer_at_once_finalize_each_utterance_once() -> None:
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


def test_no_timer_of_an_earlier_utterance_takes_an_index() -> None:
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


def test_no_chunk_is_lost_and_the_last_sentence_needs_no_next_one() -> None:
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


def test_short_pieces_are_merged_instead_of_flooding_the_node() -> None:
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


def test_the_hangover_listens() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(300, b"a"), is_final=True)
        await client.say(opus(60, b"b"))
        assert audio_of(await node.job()) == opus(300, b"a") + opus(60, b"b")

    play(scenario, segmentation__hangover_manual_ms=400)


def test_the_first_chunk_after_a_pause_is_no_job_of_its_own() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(600, b"a"))
        assert audio_of(await node.job(utterance_index=0)) == opus(600, b"a")
        await node.silent_for(300)
        await client.say(opus(40, b"b"))
        await client.say(opus(600, b"c"))
        assert audio_of(await node.job(utterance_index=1)) == opus(40, b"b") + opus(600, b"c")

    play(scenario)


def test_silence_of_any_length_does_not_make_a_session_deaf() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job())
        await client.result(0)
        # Longer than the lease, than the idle time and than the pause; it only answers pings.
        await client.silent_for(2500)
        await client.say(opus(100), is_final=True)
        await node.answer(await node.job(utterance_index=1))
        await client.result(1)

    play(scenario, sessions__lease_ms=1000, server__ping_ms=100, server__dead_ms=500)
    segmenter = Segmenter(SegmentRules(), AudioFormat("opus", 16_000))
    day_ms = 86_400_000
    segmenter.chunk(opus(100), is_final=True, now_ms=0)
    segmenter.tick(1000)
    segmenter.chunk(opus(500), is_final=True, now_ms=day_ms)
    (cut,) = segmenter.tick(day_ms + 1000)
    assert isinstance(cut, UtteranceCut)
    assert cut.audio == opus(500)


def test_the_first_chunk_after_playback_does_not_finalize_at_once() -> None:
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


# Streamed and whole utterances


def test_streamed_and_whole_utterances_are_one_path() -> None:
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


def test_whole_and_streamed_utterances_never_share_an_index() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        client = await stage.old_client()
        await client.say(opus(100), is_final=True)
        await client.result(0)
        await client.utter(0)
        await client.result(1)
        await client.say(opus(100), is_final=True)
        await client.result(2)
        await client.utter(7)
        await client.say(opus(100), is_final=True)
        await client.bye()
        indices = [index for index, _ in client.outcomes()]
        assert indices == sorted(set(indices))
        assert len(node.jobs) == len({job["utterance_index"] for job in node.jobs}) == 5

    play(scenario, jobs__gap_ms=100)
