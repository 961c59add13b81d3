"""Nodes that listen while one speaks: the head start, what is shown, every way to lose it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from edge import many_servers
from edge.live_server import MSGPACK, Message, Stage, opus, play, until
from edge.streaming_stage import (
    SILENCE,
    STREAMING,
    fall_silent,
    heard_of,
    in_room,
    keep_speaking,
    listener,
    speak,
    text_so_far,
)

if TYPE_CHECKING:
    from edge.live_server import Node
    from edge.many_servers import Company

pytestmark = pytest.mark.store


def streamed(node: Node, stream: Message) -> bytes:
    """Return all audio of a stream that came so far."""
    parts = node.all("stream_audio")
    return b"".join(part["audio"] for part in parts if part["stream_id"] == stream["stream_id"])


def test_a_node_hears_the_utterance_before_its_cut_and_its_job_names_the_stream() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(node)
        assert stream["src_lang"] == "zh"
        assert stream["tgt_langs"] == ["en"]
        assert stream["audio_format"] == "pcm16"
        await until(lambda: len(streamed(node, stream)) >= 800 * 32, "most of it was heard")
        await fall_silent(client)
        end = await node.expect("stream_end", stream_id=stream["stream_id"], reason="cut")
        job = await node.job(stream_id=stream["stream_id"])
        assert end["audio_bytes"] == len(job["audio"])
        assert job["audio"].startswith(streamed(node, stream))
        await node.answer(job)
        await client.result(0)
        assert stage.counted("streams_ended_total", reason="cut") == 1
        assert stage.counted("streams_opened_total") == 1

    play(scenario)


def test_the_words_so_far_reach_the_speaker_and_none_follows_the_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(node)
        await node.send("stream_partial", **text_so_far(stream, 1))
        partial = await client.expect("partial_result", utterance_index=0)
        assert (partial["stable"], partial["unstable"]) == ("good", "morn")
        assert partial["translations"][0]["tgt_lang"] == "en"
        assert partial["session_id"] == client.id
        assert (partial["start_ms"], partial["upto_ms"]) == (0, 400)
        await fall_silent(client)
        job = await node.job()
        await node.answer(job)
        await client.result(0)
        await node.send("stream_partial", **text_so_far(stream, 2))
        await speak(client, 1000)
        await node.send("stream_partial", **text_so_far((await heard_of(node))[0], 1))
        await client.expect("partial_result", utterance_index=1)
        indices = [m["utterance_index"] for m in client.all("partial_result")]
        assert indices == [0, 1]
        assert stage.counted("partial_results_total", receiver="speaker") == 2

    play(scenario)


def test_an_older_partial_that_comes_late_is_not_shown() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(node)
        await node.send("stream_partial", **text_so_far(stream, 5))
        await node.send("stream_partial", **text_so_far(stream, 4))
        await node.send("stream_partial", **text_so_far(stream, 6))
        await client.expect("partial_result", revision=6)
        assert [m["revision"] for m in client.all("partial_result")] == [5, 6]

    play(scenario, streams__partial_every_ms=0)


def test_a_client_of_the_older_protocol_sees_words_while_it_speaks() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.old_client(enable_streaming_asr=True)
        await client.say(opus(1000))
        stream, _ = await heard_of(node)
        await node.send("stream_partial", **text_so_far(stream, 1))
        partial = await client.expect("asr_partial", utterance_index=0)
        assert (partial["text"], partial["is_final"]) == ("good morn", False)
        assert stream["audio_format"] == "opus"
        await client.say(opus(200), is_final=True)
        await node.answer(await node.job())
        await client.result(0)

    play(scenario)


def test_nobody_listens_to_a_session_that_does_not_want_it() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(audio_format="pcm16", sample_rate=16_000)
        await speak(client, 1000)
        await fall_silent(client)
        job = await node.job()
        assert not node.all("stream_open")
        assert job.get("stream_id") is None

    play(scenario)


def test_a_node_that_cannot_listen_gets_the_job_as_always() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        await fall_silent(client)
        await node.answer(await node.job())
        await client.result(0)
        assert not node.all("stream_open")
        refused = b"stream_refusals_total{"
        assert refused in stage.server.instance.metrics.render()

    play(scenario)


def test_a_node_hears_no_more_streams_than_it_declared() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage, max_streams=1)
        first = await stage.client(**STREAMING)
        second = await stage.client(**STREAMING)
        await speak(first, 1000)
        await heard_of(node)
        await speak(second, 1000)
        await fall_silent(second)
        await node.answer(await node.job(session_id=second.id))
        await second.result(0)
        assert len(node.all("stream_open")) == 1

    play(scenario)


def test_a_stream_takes_no_slot_from_jobs() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage, max_jobs=1)
        speaker = await stage.client(**STREAMING)
        other = await stage.client()
        await speak(speaker, 1000)
        await heard_of(node)
        await other.utter(0)
        await node.answer(await node.job(session_id=other.id))
        await other.result(0)

    play(scenario)


def test_a_node_lost_while_it_listens_costs_only_the_head_start() -> None:
    async def scenario(stage: Stage) -> None:
        first = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        await heard_of(first)
        second = await listener(stage)
        first.drop()
        await until(lambda: first.id not in stage.server.instance.nodes, "the node is lost")
        await speak(client, 400)
        await asyncio.sleep(0)
        await fall_silent(client)
        await second.answer(await second.job())
        await client.result(0)
        assert stage.counted("streams_ended_total", reason="lost") == 1

    play(scenario)


def test_another_node_hears_the_utterance_from_its_beginning_after_a_loss() -> None:
    async def scenario(stage: Stage) -> None:
        first = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(first)
        second = await listener(stage)
        await first.send("stream_closed", stream_id=stream["stream_id"], reason="too busy")
        await until(lambda: stage.counted("streams_ended_total", reason="lost") == 1, "it was lost")
        speaking = asyncio.create_task(keep_speaking(client))
        try:
            opened = asyncio.create_task(first.expect("stream_open"))
            other = asyncio.create_task(second.expect("stream_open"))
            done, _ = await asyncio.wait({opened, other}, return_when=asyncio.FIRST_COMPLETED)
            again = next(iter(done)).result()
            heard_by = first if opened in done else second
            audio = await heard_by.expect("stream_audio", stream_id=again["stream_id"])
            assert len(audio["audio"]) >= 1000 * 32
        finally:
            for task in (speaking, opened, other):
                task.cancel()

    play(scenario, segmentation__max_duration_ms=0)


def test_a_late_partial_of_a_lost_node_is_not_shown() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        intruder = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        opened = asyncio.create_task(node.expect("stream_open"))
        other = asyncio.create_task(intruder.expect("stream_open"))
        done, _ = await asyncio.wait({opened, other}, return_when=asyncio.FIRST_COMPLETED)
        stream = next(iter(done)).result()
        hears, does_not = (node, intruder) if opened in done else (intruder, node)
        (other if opened in done else opened).cancel()
        await does_not.send("stream_partial", **text_so_far(stream, 1, stable="wrong"))
        await hears.send("stream_partial", **text_so_far(stream, 1))
        await client.expect("partial_result")
        assert [m["stable"] for m in client.all("partial_result")] == ["good"]

    play(scenario)


def test_a_sentence_is_cut_where_its_node_heard_its_end() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 2500)
        await speak(client, 100, SILENCE)
        await speak(client, 1500)
        stream, _ = await heard_of(node)
        await until(lambda: len(streamed(node, stream)) >= 3900 * 32, "all of it was heard")
        await node.send("stream_partial", **text_so_far(stream, 1, sentence_end_ms=2550))
        job = await node.job(utterance_index=0)
        cut_ms = len(job["audio"]) // 32
        assert cut_ms in {2500, 2600}
        await node.answer(job)
        await client.result(0)
        await fall_silent(client)
        rest = await node.job(utterance_index=1)
        assert len(rest["audio"]) == (4500 - cut_ms) * 32
        accepted = client.all("utterance_accepted")
        assert [(a["start_ms"], a["end_ms"]) for a in accepted] == [(0, cut_ms), (cut_ms, 4500)]
        assert stage.counted("web_task_finalized_total", reason="sentence") == 1

    play(scenario, segmentation__pause_ms=0)


def test_a_session_can_switch_cuts_of_sentences_off() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING, sentence_cuts=False)
        await speak(client, 2500)
        await speak(client, 100, SILENCE)
        await speak(client, 1500)
        stream, _ = await heard_of(node)
        await node.send("stream_partial", **text_so_far(stream, 1, sentence_end_ms=2550))
        await client.expect("partial_result")
        await fall_silent(client)
        job = await node.job(utterance_index=0)
        assert len(job["audio"]) == 4500 * 32

    play(scenario, segmentation__pause_ms=0)


def test_less_silence_ends_a_whole_sentence() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING, silence_min_ms=200, silence_ms=1000)
        await speak(client, 1000)
        await speak(client, 300, SILENCE)
        stream, _ = await heard_of(node)
        await node.send("stream_partial", **text_so_far(stream, 1, upto_ms=1200, is_complete=True))
        job = await node.job()
        assert len(job["audio"]) == 1300 * 32

    play(scenario, segmentation__pause_ms=0)


def test_a_client_that_leaves_is_not_heard_any_more() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        client = await stage.client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(node)
        client.drop()
        await node.expect("stream_end", stream_id=stream["stream_id"])
        await until(
            lambda: not len(stage.server.instance.node_parts.streams.hub), "no stream is open"
        )

    play(scenario, segmentation__pause_ms=0)


def test_parts_of_the_spoken_translation_come_before_the_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(form=MSGPACK)
        client = await stage.client(form=MSGPACK, tts_parts=True)
        await client.utter(0)
        job = await node.job()
        assert job["tts_parts"] is True
        fields = {"job_id": job["job_id"], "attempt_id": job["attempt_id"]}
        await node.send("job_audio_part", **fields, part_index=0, audio=b"ab")
        await node.send("job_audio_part", **fields, part_index=1, audio=b"cd")
        await node.answer(job, tts_audio=b"abcd", audio_parts=2)
        await client.expect("tts_part", part_index=0, audio=b"ab", utterance_index=0)
        await client.expect("tts_part", part_index=1, audio=b"cd")
        result = await client.result(0, tts_parts=2)
        assert result["tts_audio"] == b"abcd"

    play(scenario)


def test_a_part_does_not_overtake_an_earlier_outcome() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(form=MSGPACK)
        client = await stage.client(form=MSGPACK, tts_parts=True)
        await client.utter(0)
        await client.utter(1)
        first, second = await node.job(), await node.job()
        fields = {"job_id": second["job_id"], "attempt_id": second["attempt_id"]}
        await node.send("job_audio_part", **fields, part_index=0, audio=b"ab")
        await node.answer(second, tts_audio=b"ab", audio_parts=1)
        await node.answer(first)
        await client.result(1)
        assert not client.all("tts_part")

    play(scenario)


# Rooms


def test_listeners_of_a_room_read_each_in_their_language() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        speaker, spanish, english, chinese = await in_room(stage, "zh", "es", "en", "zh")
        outside = await stage.client(**STREAMING)
        await speak(speaker, 1000)
        stream, _ = await heard_of(node)
        assert sorted(stream["tgt_langs"]) == ["en", "es"]
        translations = [
            {"tgt_lang": "es", "stable": "buenos", "unstable": ""},
            {"tgt_lang": "en", "stable": "good", "unstable": ""},
        ]
        await node.send("stream_partial", **text_so_far(stream, 1, translations=translations))
        for person, lang in ((spanish, "es"), (english, "en")):
            partial = await person.expect("partial_result", session_id=speaker.id)
            assert [part["tgt_lang"] for part in partial["translations"]] == [lang]
        partial = await chinese.expect("partial_result", session_id=speaker.id)
        assert not partial.get("translations")
        own = await speaker.expect("partial_result", session_id=speaker.id)
        assert not own.get("translations")
        assert not outside.all("partial_result")
        assert stage.counted("partial_results_total", receiver="listener") == 3

    play(scenario)


def test_a_speaker_in_a_room_is_heard_for_others_even_if_it_wants_no_words_itself() -> None:
    async def scenario(stage: Stage) -> None:
        node = await listener(stage)
        speaker, reader = await in_room(stage, "zh", "en", partials=None)
        assert not reader.all("partial_result")
        session = stage.server.instance.sessions[speaker.id]
        await until(lambda: session.input._streams is not None, "the room wants words")
        await speak(speaker, 1000)
        await heard_of(node)

    play(scenario)


# Several instances


def test_a_node_on_another_instance_hears_the_speaker() -> None:
    async def scenario(company: Company) -> None:
        node = await listener(company["B"])
        client = await company["A"].client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(node)
        await node.send("stream_partial", **text_so_far(stream, 1))
        await client.expect("partial_result", utterance_index=0, stable="good")
        await fall_silent(client)
        await node.expect("stream_end", stream_id=stream["stream_id"], reason="cut")
        job = await node.job(stream_id=stream["stream_id"])
        await node.answer(job)
        await client.result(0)

    many_servers.play(scenario)


def test_listeners_on_another_instance_read_the_words_so_far() -> None:
    async def scenario(company: Company) -> None:
        node = await listener(company["A"])
        speaker = await company["A"].client("zh", "en", **STREAMING)
        await speaker.send("room_create", preferred_lang="zh")
        code = (await speaker.expect("room_create_ack"))["room_code"]
        reader = await company["B"].client("en", "zh", **STREAMING)
        await reader.send("room_join", room_code=code, preferred_lang="en")
        await reader.expect("room_members")
        await until(
            lambda: any(len(m["members"]) == 2 for m in speaker.all("room_members")),
            "both are in the room",
        )
        await speak(speaker, 1000)
        stream, _ = await heard_of(node)
        revision = 0
        while not reader.all("partial_result"):
            revision += 1
            # It goes on to speak: a stall of the machine must not end its stream for good.
            await speak(speaker, 100)
            stream = node.all("stream_open")[-1]
            await node.send("stream_partial", **text_so_far(stream, revision))
            await asyncio.sleep(0.05)
        partial = await reader.expect("partial_result", session_id=speaker.id)
        assert partial["translations"][0]["tgt_lang"] == "en"

    many_servers.play(scenario, segmentation__pause_ms=0)


def test_an_instance_killed_while_its_speaker_is_heard_leaves_no_stream() -> None:
    async def scenario(company: Company) -> None:
        node = await listener(company["B"])
        client = await company["A"].client(**STREAMING)
        await speak(client, 1000)
        stream, _ = await heard_of(node)
        await company["A"].crash()
        await node.expect("stream_end", stream_id=stream["stream_id"], reason="dropped")

    many_servers.play(scenario)
