"""Clients and nodes of the published protocol, as they are in the field, message by message.

The peers are `OldClient` and `OldNode`: JSON without a subprotocol, none of our additions, no acks
where the real node sends none. They fail a test when they hear a type they do not know.
"""

from __future__ import annotations

import base64
import re
import time

import pytest

from edge.live_server import Client, Message, OldClient, OldNode, Stage, opus, play, text64, until

pytestmark = pytest.mark.store

EVENT_FIELDS = {
    "type", "trace_id", "session_id", "job_id", "utterance_index", "event", "elapsed_ms", "status",
}  # fmt: skip


async def event_follows(client: Client, job: Message, event: str) -> None:
    """The very next message shows a step of a job, with the fields clients read."""
    shown = await client.follows(
        "ui_event", event=event, status="ok", job_id=job["job_id"], session_id=client.id,
        utterance_index=job["utterance_index"], trace_id=job["trace_id"],
    )  # fmt: skip
    assert shown["elapsed_ms"] >= 0
    assert set(shown) == EVENT_FIELDS


async def join(stage: Stage, code: str, lang: str) -> OldClient:
    """A listener enters a room."""
    client = await stage.old_client(lang, "en")
    await client.send("room_join", room_code=code, display_name=lang.upper(), preferred_lang=lang)
    await client.expect("room_members", room_code=code)
    return client


def test_one_way_streaming() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node("node-A1B2C3D4")
        client = await stage.old_client("zh", "en", trace_id="trace-1")
        constants = {
            "trace_id": "trace-1", "protocol_version": "1.0", "use_binary_frame": False,
            "negotiated_codec": "opus", "negotiated_audio_format": "opus",
            "negotiated_sample_rate": 16_000, "negotiated_channel_count": 1,
        }  # fmt: skip
        assert constants.items() <= client.ack.items()
        assert set(client.ack) == {*constants, "type", "session_id", "message"}
        sent_at_ms = int(time.time() * 1000)
        for part in (b"a", b"b"):
            await client.say(opus(200, part), client_timestamp_ms=sent_at_ms)
        await client.say(opus(200, b"c"), is_final=True)

        job = await node.job()
        await a_manual_job(job, client, opus(200, b"a") + opus(200, b"b") + opus(200, b"c"))
        await event_follows(client, job, "DISPATCHED")
        await node.about("job_ack", job, attempt_id=1)
        await event_follows(client, job, "NODE_ACCEPTED")
        await node.about("job_started", job, attempt_id=1)
        for text in ("ni", "ni hao"):
            await node.partial(job, text)
            partial = await client.follows("asr_partial", text=text, is_final=False)
            assert (partial["session_id"], partial["utterance_index"]) == (client.id, 0)
            await event_follows(client, job, "ASR_PARTIAL")
        await node.answer(job, "ni hao", extra={"language_probability": 0.9})
        await event_follows(client, job, "ASR_FINAL")
        await event_follows(client, job, "NMT_DONE")
        result = await client.follows("translation_result", utterance_index=0)
        await the_result_of(result, job, client)

        group = {"trace_id": "trace-1", "group_id": result["group_id"]}
        await client.ask("tts_started", ts_start_ms=1, **group)
        await client.ask("tts_play_ended", ts_end_ms=2, **group)
        await client.ask("client_heartbeat", timestamp=1)
        await client.follows("server_heartbeat", session_id=client.id)
        ack = await client.bye()
        assert ack == {"type": "session_close_ack", "session_id": client.id}

    # The cutting rules as they are in the field.
    play(
        scenario, segmentation__pause_ms=3000, segmentation__hangover_manual_ms=200,
        segmentation__short_merge_ms=400,
    )  # fmt: skip


async def a_manual_job(job: Message, client: Client, audio: bytes) -> None:
    assert base64.b64decode(job["audio"]) == audio
    wanted = {
        "attempt_id": 1, "session_id": client.id, "utterance_index": 0, "src_lang": "zh",
        "tgt_lang": "en", "audio_format": "opus", "sample_rate": 16_000, "padding_ms": 280,
        "is_manual_cut": True, "trace_id": "trace-1", "enable_streaming_asr": True,
        "partial_update_interval_ms": 1000,
        "pipeline": {"use_asr": True, "use_nmt": True, "use_tts": True},
    }  # fmt: skip
    assert wanted.items() <= job.items()
    # Flags that are off and fields that are unknown are left out, as ever.
    others = {"is_timeout_triggered", "is_max_duration_triggered", "mode", "lang_a", "dialect"}
    assert not others & set(job)


async def the_result_of(result: Message, job: Message, client: Client) -> None:
    wanted = {
        "session_id": client.id, "job_id": job["job_id"], "text_asr": "ni hao",
        "text_translated": "ni hao:en", "tts_audio": text64(b"tts"), "tts_format": "pcm16",
        "trace_id": "trace-1", "part_index": 0, "extra": {"language_probability": 0.9},
    }  # fmt: skip
    assert wanted.items() <= result.items()
    assert re.fullmatch(rf"group_{client.id}_\d+", result["group_id"])
    assert result["network_timings"]["web_to_scheduler_ms"] >= 0
    assert result["network_timings"]["scheduler_to_node_ms"] >= 0
    assert result["scheduler_sent_at_ms"] > 0


def test_a_node_that_never_acknowledges_gives_the_same_result() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(400), is_final=True)
        job = await node.job()
        await event_follows(client, job, "DISPATCHED")
        await node.answer(job)
        await event_follows(client, job, "ASR_FINAL")
        await event_follows(client, job, "NMT_DONE")
        await client.follows("translation_result", utterance_index=0, job_id=job["job_id"])

    # It is silent for longer than a node that acknowledges may be.
    play(scenario, jobs__ack_ms=50)


def test_long_speech_with_a_node_that_keeps_silent_on_slices() -> None:
    async def scenario(stage: Stage) -> None:
        others = [await stage.old_node() for _ in range(2)]
        client = await stage.old_client()
        await client.say(opus(10_000, b"s"))
        await until(lambda: jobs_of(others) == 1, "the first slice is assigned")
        await client.say(opus(10_000, b"s"))
        await until(lambda: jobs_of(others) == 2, "the second slice is assigned")
        await client.say(opus(600, b"e"))
        await until(lambda: jobs_of(others) == 3, "the pause ended the speech")
        (node,) = [node for node in others if node.jobs]
        jobs = [await node.job() for _ in range(3)]
        a_turn_of_slices(jobs)

        await node.answer(jobs[2], "all of it")
        for index in (0, 1):
            missing = await client.expect("missing_result", utterance_index=index)
            assert missing["reason"] == "silence_detected"
            assert missing["session_id"] == client.id
        result = await client.result(2)
        assert result["text_asr"] == "all of it"
        assert client.outcomes() == [(0, "silence_detected"), (1, "silence_detected"), (2, "ok")]
        assert not client.all("error")

        await client.say(opus(600), is_final=True)
        await until(lambda: jobs_of(others) == 4, "the next speech is assigned")
        following = [job for node in others for job in node.jobs if job["utterance_index"] == 3]
        assert following[0]["turn_id"] != jobs[0]["turn_id"]

    play(scenario, segmentation__pause_ms=500, jobs__ack_ms=50)


def jobs_of(nodes: list[OldNode]) -> int:
    return sum(len(node.jobs) for node in nodes)


def a_turn_of_slices(jobs: list[Message]) -> None:
    assert [job["utterance_index"] for job in jobs] == [0, 1, 2]
    assert len({job["turn_id"] for job in jobs}) == 1
    assert [job.get("is_max_duration_triggered") for job in jobs] == [True, True, None]
    assert [job.get("is_timeout_triggered") for job in jobs] == [None, None, True]
    assert {job["padding_ms"] for job in jobs} == {220}
    assert {job["attempt_id"] for job in jobs} == {1}


def test_slices_that_end_as_no_text_assigned_come_before_the_text() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        client = await stage.old_client()
        await client.say(opus(10_000))
        first = await node.job(is_max_duration_triggered=True)
        await client.say(opus(600))
        last = await node.job(is_timeout_triggered=True)
        await node.answer(last, "whole")
        # The text of a merged buffer, then the empty container it was taken from.
        empty: Message = {"text_asr": "", "text_translated": "", "tts_audio": b""}
        await node.answer(first, **empty, extra={"reason": "NO_TEXT_ASSIGNED"})
        await client.result(1, text_asr="whole")
        assert client.outcomes() == [(0, "silence_detected"), (1, "ok")]

    play(scenario)


def test_a_room_of_four_with_two_languages() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        speaker = await stage.old_client("zh", "en")
        await speaker.send("room_create", client_ts=1, display_name="A", preferred_lang="zh")
        code = (await speaker.follows("room_create_ack"))["room_code"]
        assert re.fullmatch(r"\d{6}", code)
        members = await speaker.follows("room_members", room_code=code)
        assert [m["session_id"] for m in members["members"]] == [speaker.id]
        b, c, d = [await join(stage, code, lang) for lang in ("en", "en", "ja")]
        members = await speaker.expect("room_members")
        while len(members["members"]) < 4:
            members = await speaker.expect("room_members")
        a_list_of_members(members, [speaker, b, c, d])

        await speaker.say(opus(600, b"r"), is_final=True)
        jobs = {job["tgt_lang"]: job for job in (await node.job(), await node.job())}
        assert set(jobs) == {"en", "ja"}
        assert {job["utterance_index"] for job in jobs.values()} == {0}
        assert len({job["audio"] for job in jobs.values()}) == 1
        assert jobs["en"]["job_id"] != jobs["ja"]["job_id"]
        await node.answer(jobs["ja"], "konnichiwa")
        await node.answer(jobs["en"], "hi")
        for listener, text in ((b, "hi:en"), (c, "hi:en"), (d, "konnichiwa:ja")):
            result = await listener.result(0, session_id=speaker.id)
            assert result["text_translated"] == text
            assert len(listener.all("translation_result")) == 1
        await speaker.expect("ui_event", event="NMT_DONE", job_id=jobs["en"]["job_id"])
        assert not speaker.all("translation_result")
        await a_room_that_empties(code, speaker, [b, c, d])

    play(scenario)


def a_list_of_members(told: Message, members: list[OldClient]) -> None:
    assert [m["participant_id"] for m in told["members"]] == [member.id for member in members]
    assert [m["session_id"] for m in told["members"]] == [member.id for member in members]
    assert [m["preferred_lang"] for m in told["members"]] == ["zh", "en", "en", "ja"]
    assert [m["display_name"] for m in told["members"]] == ["A", "EN", "EN", "JA"]
    assert all(m["joined_at"] > 0 for m in told["members"])
    assert not any("raw_voice_preferences" in m for m in told["members"])


async def a_room_that_empties(code: str, speaker: OldClient, others: list[OldClient]) -> None:
    for left, member in enumerate(reversed(others)):
        await member.send("room_leave", room_code=code)
        members = await speaker.expect("room_members", room_code=code)
        assert len(members["members"]) == 3 - left
    await speaker.send("room_leave", room_code=code)
    await others[0].send("room_join", room_code=code)
    await others[0].expect("room_error", code="ROOM_NOT_FOUND")


def test_two_way_auto() -> None:
    async def scenario(stage: Stage) -> None:
        # One that does only a direction: the conversation may turn, so it cannot have the job.
        one_way = {"asr_languages": ["zh"], "semantic_languages": ["en"], "tts_languages": ["en"]}
        half = await stage.old_node("half", language_capabilities=one_way)
        both = await stage.old_node("both")
        client = await stage.old_client("auto", "en", mode="two_way_auto", lang_a="zh", lang_b="en")
        await client.say(opus(600), is_final=True)
        job = await both.job()
        wanted = {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "zh", "lang_b": "en"}
        assert wanted.items() <= job.items()
        said = {"language_probability": 0.7, "language_probabilities": {"en": 0.7, "zh": 0.3}}
        await both.answer(job, "hello", text_translated="ni hao", extra=said)
        result = await client.result(0)
        assert result["extra"] == said
        assert result["text_translated"] == "ni hao"
        assert not half.jobs

    play(scenario)


def test_a_node_dies_with_a_job() -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.old_node("first")
        client = await stage.old_client()
        await client.say(opus(600, b"x"), is_final=True)
        lost = await first.job(attempt_id=1)
        await event_follows(client, lost, "DISPATCHED")
        second = await stage.old_node("second")
        first.drop()
        moved = await second.job()
        assert (moved["job_id"], moved["attempt_id"]) == (lost["job_id"], 2)
        same = ("audio", "padding_ms", "is_manual_cut", "utterance_index", "trace_id", "turn_id")
        assert [moved[name] for name in same] == [lost[name] for name in same]
        await event_follows(client, moved, "DISPATCHED")

        # It is back, and tells what it had done: too late, and told to nobody.
        again = await stage.old_node("first")
        await again.answer(lost, "late")
        await until(lambda: stale(stage), "the late result is rejected")
        await second.answer(moved, "right")
        await event_follows(client, moved, "ASR_FINAL")
        await event_follows(client, moved, "NMT_DONE")
        await client.follows("translation_result", utterance_index=0, text_asr="right")
        await again.answer(lost, "later still")
        await client.bye()
        assert client.outcomes() == [(0, "ok")]

    play(scenario)


def stale(stage: Stage) -> float:
    family = stage.server.instance.metrics.results.results_stale_total
    reasons = ("stale_attempt", "node_mismatch", "job_ended", "no_job")
    return sum(family.labels(reason=reason).value for reason in reasons)


# Rooms of old clients


async def room_of(stage: Stage, *langs: str) -> tuple[str, OldClient, list[OldClient]]:
    """A Chinese speaker and listeners of these languages in one room."""
    speaker = await stage.old_client("zh", "en")
    await speaker.send("room_create", client_ts=1, preferred_lang="zh")
    code = (await speaker.expect("room_create_ack"))["room_code"]
    listeners = []
    for lang in langs:
        listener = await stage.old_client(lang, "en")
        await listener.send("room_join", room_code=code, preferred_lang=lang)
        await listener.expect("room_members")
        listeners.append(listener)
    return code, speaker, listeners


def test_a_job_full_of_zeros_and_false_is_still_known_when_its_result_comes() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        _, speaker, (listener,) = await room_of(stage, "en")
        await speaker.utter(0, manual_cut=False)
        job = await node.job(utterance_index=0)
        assert not {"is_manual_cut", "is_timeout_triggered", "padding_ms"} & set(job)
        await node.take(job)
        await speaker.expect("ui_event", event="NODE_ACCEPTED")
        await node.answer(job)
        result = await listener.result(0, session_id=speaker.id)
        assert result["network_timings"]["scheduler_to_node_ms"] >= 0
        assert not speaker.all("translation_result")
        assert stage.counted("results_stale_total", reason="no_job") == 0

    play(scenario)


def test_two_languages_of_one_utterance_are_two_results_of_one_old_node() -> None:
    async def scenario(stage: Stage) -> None:
        # One node for both, of the kind that does a session's utterance only once.
        node = await stage.old_node()
        node.work()
        _, speaker, listeners = await room_of(stage, "en", "ja")
        for index in range(3):
            await speaker.utter(index)
        for listener, lang in zip(listeners, ("en", "ja"), strict=True):
            for index in range(3):
                result = await listener.result(index)
                assert result["text_translated"] == f"text {index}:{lang}"
            assert listener.outcomes() == [(0, "ok"), (1, "ok"), (2, "ok")]
        assert len(node.jobs) == 6
        assert {job["attempt_id"] for job in node.jobs} == {1}

    play(scenario)


def test_a_plain_disconnect_leaves_the_room_and_what_was_said_is_translated() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        _, speaker, (listener,) = await room_of(stage, "en")
        await speaker.say(opus(600))
        await speaker.ask("client_heartbeat", timestamp=1)
        await speaker.expect("server_heartbeat")
        speaker.drop()
        members = await listener.expect("room_members")
        assert [member["session_id"] for member in members["members"]] == [listener.id]
        await listener.result(0, session_id=speaker.id)
        instance = stage.server.instance
        await until(lambda: list(instance.sessions) == [listener.id], "the session is gone")
        assert not instance.jobs

    play(scenario, segmentation__pause_ms=5000)


# Sessions of other sockets


def test_a_session_of_another_socket_is_refused_at_once_and_lives_on() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        first = await stage.old_client()
        utterance = {
            "session_id": first.id, "utterance_index": 0, "manual_cut": True, "src_lang": "zh",
            "tgt_lang": "en", "audio": "AAAA" * 32, "audio_format": "pcm16", "sample_rate": 16_000,
        }  # fmt: skip
        bare = await stage.socket()
        await bare.send("utterance", **utterance)
        await bare.follows("error", code="INVALID_SESSION")
        second = await stage.old_client()
        await second.send("utterance", **utterance)
        await second.follows("error", code="INVALID_SESSION")
        await first.send("utterance", **utterance)
        await first.result(0)

    play(scenario)
