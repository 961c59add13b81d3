"""Rooms over real sockets: who is in them, who hears whom in which language, and their end."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pytest

from edge.live_server import (
    JSON,
    Client,
    Message,
    NewClient,
    Node,
    Stage,
    audio_of,
    opus,
    play,
    until,
)
from edge.locked import LOCKED, client_token

pytestmark = pytest.mark.store


async def a_room(stage: Stage, lang: str | None = "zh", **more: str) -> tuple[str, NewClient]:
    """Make a room; return its code and its creator."""
    creator = await stage.client(lang or "zh", "en")
    named = more | ({"preferred_lang": lang} if lang else {})
    await creator.send("room_create", client_ts=1, **named)
    code = (await creator.follows("room_create_ack"))["room_code"]
    await creator.follows("room_members", room_code=code)
    return code, creator


async def enter(client: Client, code: str, lang: str | None = None) -> Message:
    """Let a client into a room; return whom it finds there."""
    wanted = {"preferred_lang": lang} if lang else {}
    await client.send("room_join", room_code=code, **wanted)
    return await client.expect("room_members", room_code=code)


async def listener(stage: Stage, code: str, lang: str | None) -> NewClient:
    """Return a new member of a room."""
    client = await stage.client(lang or "en", "en")
    await enter(client, code, lang)
    return client


async def full_room(stage: Stage, *langs: str | None) -> tuple[str, NewClient, list[NewClient]]:
    """A Chinese speaker and listeners of these languages."""
    code, speaker = await a_room(stage)
    return code, speaker, [await listener(stage, code, lang) for lang in langs]


async def jobs_of(node: Node, count: int) -> dict[str, Message]:
    """Return so many jobs by language."""
    jobs = [await node.job() for _ in range(count)]
    return {job["tgt_lang"]: job for job in jobs}


def ids(members: Message) -> list[str]:
    return [member["session_id"] for member in members["members"]]


async def room_code_of(creator: Client, **named: Any) -> str:
    """Create a room; return its code."""
    await creator.send("room_create", client_ts=1, **named)
    return str((await creator.expect("room_create_ack"))["room_code"])


# Members


def test_members_are_told_of_everyone_who_comes_and_goes() -> None:
    async def scenario(stage: Stage) -> None:
        code, first = await a_room(stage, display_name="First")
        assert re.fullmatch(r"\d{6}", code)
        second = await stage.client("en", "zh")
        found = await enter(second, code, "en")
        assert ids(found) == [first.id, second.id]
        told = await first.follows("room_members", room_code=code)
        assert told["members"] == found["members"]
        member = found["members"][0]
        assert member["participant_id"] == first.id
        assert (member["display_name"], member["preferred_lang"]) == ("First", "zh")
        assert member["joined_at"] > 0
        await second.send("room_leave", room_code=code)
        assert ids(await first.follows("room_members")) == [first.id]
        await second.silent_for(100)

    play(scenario)


def test_a_room_dies_with_its_last_member() -> None:
    async def scenario(stage: Stage) -> None:
        code, first = await a_room(stage)
        await first.send("room_leave", room_code=code)
        await first.send("room_join", room_code=code)
        await first.follows("room_error", code="ROOM_NOT_FOUND")
        assert len(stage.server.instance.rooms.cache.rooms) == 0

    play(scenario)


def test_what_cannot_be_is_answered_with_a_room_error() -> None:
    async def scenario(stage: Stage) -> None:
        code, first = await a_room(stage)
        other_code, _ = await a_room(stage)
        asks: list[tuple[str, dict[str, object], str]] = [
            ("room_create", {"client_ts": 1}, "ALREADY_IN_ROOM"),
            ("room_join", {"room_code": other_code}, "ALREADY_IN_ROOM"),
            ("room_leave", {"room_code": other_code}, "NOT_IN_ROOM"),
            ("webrtc_offer", {"room_code": other_code, "to": "x", "sdp": 1}, "NOT_IN_ROOM"),
        ]
        for kind, fields, error in asks:
            await first.send(kind, **fields)
            await first.follows("room_error", code=error)
        mute = {"target_session_id": "s-nobody", "receive_raw_voice": False}
        await first.send("room_raw_voice_preference", room_code=code, **mute)
        await first.follows("room_error", code="NOT_IN_ROOM")
        outsider = await stage.client()
        for wrong, error in (("000000", "ROOM_NOT_FOUND"), ("12ab", "INVALID_ROOM_CODE")):
            if wrong != code:
                await outsider.send("room_join", room_code=wrong)
                await outsider.follows("room_error", code=error)
        await outsider.send("room_join", room_code=code, preferred_lang="no language")
        await outsider.follows("room_error", code="INVALID_MESSAGE")
        await outsider.send("room_join", room_code=code)
        await outsider.follows("room_members")
        last = await stage.client()
        await last.send("room_join", room_code=code)
        await last.follows("room_error", code="ROOM_FULL")

    play(scenario, rooms__members_max=2)


def test_a_room_without_speech_expires_and_its_members_are_told() -> None:
    async def scenario(stage: Stage) -> None:
        code, first, (second,) = await full_room(stage, "en")
        for client in (first, second):
            expired = await client.expect("room_expired", room_code=code)
            assert expired["message"]
        await first.send("room_join", room_code=code)
        await first.expect("room_error", code="ROOM_NOT_FOUND")
        # They are free to go on elsewhere.
        await first.send("room_create", client_ts=1)
        await first.expect("room_create_ack")

    play(scenario, rooms__idle_ms=2000)


def test_a_plain_disconnect_leaves_the_room() -> None:
    async def scenario(stage: Stage) -> None:
        code, first, (third,) = await full_room(stage, "ja")
        second = await stage.old_client("en", "en")
        await enter(second, code, "en")
        while len(ids(await first.expect("room_members"))) < 3:
            pass
        second.drop()
        assert ids(await first.expect("room_members")) == [first.id, third.id]
        await third.ask("session_close", reason="done")
        assert ids(await first.expect("room_members")) == [first.id]

    play(scenario)


def test_a_client_that_may_come_back_stays_in_the_room_until_it_gives_up() -> None:
    async def scenario(stage: Stage) -> None:
        _, first, (second,) = await full_room(stage, "en")
        await first.expect("room_members")
        second.drop()
        seen = await first.expect("room_members")
        assert [(m["session_id"], m.get("is_away")) for m in seen["members"]] == [
            (first.id, None),
            (second.id, True),
        ]
        assert ids(await first.expect("room_members")) == [first.id]

    play(scenario, sessions__resume_ms=3500)


def test_closing_leaves_the_room_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        one, two = await stage.client(), await stage.client()
        code = await room_code_of(one, preferred_lang="ja")
        await two.send("room_join", room_code=code, preferred_lang="en")
        while len((await one.expect("room_members"))["members"]) != 2:
            pass
        await two.utter(0)
        await node.job()
        await two.ask("session_close", reason="done")
        assert len((await one.expect("room_members"))["members"]) == 1

    play(scenario)


def test_a_room_of_another_tenant_does_not_exist() -> None:
    async def scenario(stage: Stage) -> None:
        here = await stage.client(token=client_token(tenant="acme", rooms=True))
        there = await stage.client(token=client_token(tenant="globex", rooms=True))
        code = await room_code_of(here, preferred_lang="en")
        await there.send("room_join", room_code=code, preferred_lang="ja")
        await there.expect("room_error", code="ROOM_NOT_FOUND")
        colleague = await stage.client(token=client_token(tenant="acme", rooms=True))
        await colleague.send("room_join", room_code=code, preferred_lang="ja")
        assert len((await colleague.expect("room_members"))["members"]) == 2

    play(scenario, **LOCKED)


# Who hears what


def test_one_job_for_each_language_of_the_others_and_results_to_its_listeners() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, (b, c, d) = await full_room(stage, "en", "en", "ja")
        await speaker.say(opus(200), is_final=True)
        jobs = await jobs_of(node, 2)
        assert set(jobs) == {"en", "ja"}
        for job in jobs.values():
            await node.answer(job)
        for client, lang in ((b, "en"), (c, "en"), (d, "ja")):
            result = await client.result(0)
            assert result["session_id"] == speaker.id
            assert (result["tgt_lang"], result["text_translated"]) == (lang, f"hello:{lang}")
        # Others speak too: each hears the rest.
        await d.utter(0, src_lang="zh", tgt_lang="en")
        jobs = await jobs_of(node, 1)
        assert set(jobs) == {"en"}
        await node.answer(jobs["en"])
        await b.result(0, session_id=d.id)
        await speaker.result(0, session_id=d.id)
        assert not d.all("translation_result")[1:]
        assert await speaker.bye()
        assert len(speaker.all("translation_result")) == 1

    play(scenario)


def test_who_understands_the_speaker_reads_along_and_needs_no_node() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, (english, reader) = await full_room(stage, "en", "zh-TW")
        await speaker.say(opus(200), is_final=True)
        job = await node.job()
        assert job["tgt_lang"] == "en"
        await node.answer(job, "ni hao")
        await english.result(0, text_translated="ni hao:en")
        read = await reader.result(0, session_id=speaker.id)
        assert read["text_asr"] == read["text_translated"] == "ni hao"
        assert read["tts_audio"] == ""
        assert len(node.jobs) == 1

    play(scenario)


def test_a_room_of_one_language_needs_no_node_at_all() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, _ = await full_room(stage, "zh")
        await speaker.say(opus(200), is_final=True)
        await speaker.expect("utterance_accepted", utterance_index=0)
        coverage = (await speaker.bye())["coverage"]
        assert coverage["admitted_ms"] == coverage["skipped_ms"] == 200
        assert not node.jobs

    play(scenario)


def test_a_member_without_a_language_gets_no_translation() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, (silent, english) = await full_room(stage, None, "en")
        await speaker.say(opus(200), is_final=True)
        await node.answer(await node.job(tgt_lang="en"))
        await english.result(0)
        assert not silent.all("translation_result")
        assert len(node.jobs) == 1

    play(scenario)


def test_where_nobody_else_named_a_language_the_speaker_hears_the_translation() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, (silent,) = await full_room(stage, None)
        await speaker.say(opus(200), is_final=True)
        await node.answer(await node.job(tgt_lang="en"))
        await speaker.result(0)
        assert not silent.all("translation_result")

    play(scenario)


def test_one_language_never_delays_another() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(max_jobs=20)
        _, speaker, (english, japanese) = await full_room(stage, "en", "ja")
        held = []
        for index in range(4):
            await speaker.utter(index)
            jobs = await jobs_of(node, 2)
            held.append(jobs["ja"])
            await node.answer(jobs["en"])
            await english.result(index)
        assert not japanese.all("translation_result")
        for job in reversed(held):
            await node.answer(job, f"text {job['utterance_index']}")
        for index in range(4):
            await japanese.result(index, text_asr=f"text {index}")
        assert japanese.outcomes() == [(index, "ok") for index in range(4)]

    play(scenario)


def test_two_languages_on_one_old_node_are_two_sessions_to_it() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        node.work()
        _, speaker, (english, japanese) = await full_room(stage, "en", "ja")
        for index in range(3):
            await speaker.say(opus(200), is_final=True)
            await english.result(index, tgt_lang="en")
            await japanese.result(index, tgt_lang="ja")
        # Node memory is kept by session and utterance: each pair was seen once.
        places = [(job["session_id"], job["utterance_index"]) for job in node.jobs]
        assert len(places) == len(set(places)) == 6
        assert {job["attempt_id"] for job in node.jobs} == {1}
        assert all(job["session_id"].startswith(speaker.id) for job in node.jobs)

    play(scenario)


def test_a_failure_is_told_to_listeners_in_order_and_to_the_speaker_at_once() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, (english,) = await full_room(stage, "en")
        await speaker.utter(0)
        await speaker.utter(1)
        first, second = await node.job(), await node.job()
        await node.answer(second)
        await node.fail(first, "UNSUPPORTED_FEATURE", "not here")
        await speaker.expect("error", code="UNSUPPORTED_FEATURE")
        await english.expect("missing_result", utterance_index=0, reason="failed")
        await english.result(1)
        assert english.outcomes() == [(0, "failed"), (1, "ok")]
        assert not speaker.outcomes()

    play(scenario)


def test_who_left_before_the_result_simply_does_not_get_it() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker, (english,) = await full_room(stage, "en")
        gone = await stage.old_client("en", "en")
        await enter(gone, code, "en")
        await speaker.utter(0)
        job = await node.job()
        gone.drop()
        sessions = stage.server.instance.sessions
        await until(lambda: gone.id not in sessions, "the session is gone")
        await node.answer(job)
        await english.result(0)
        # Who comes now hears only what is said from now on.
        late = await listener(stage, code, "en")
        await speaker.utter(1)
        await node.answer(await node.job())
        await late.result(1)
        assert late.outcomes() == [(1, "ok")]

    play(scenario)


def test_a_member_changes_language_from_the_next_utterance_on() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        _, speaker, (changing, reader) = await full_room(stage, "ja", "zh")
        await speaker.utter(0)
        first = await node.job(tgt_lang="ja")
        await changing.ask("session_update", preferred_lang="en")
        members = await speaker.expect("room_members")
        while members["members"][1]["preferred_lang"] != "en":
            members = await speaker.expect("room_members")
        await speaker.utter(1)
        second = await node.job(tgt_lang="en")
        # The later one is done first: each language has its own order, readers have one.
        await node.answer(second, "second")
        await changing.result(1, text_translated="second:en")
        assert not reader.outcomes()
        await node.answer(first, "first")
        await changing.result(0, text_translated="first:ja")
        await reader.result(0, text_asr="first")
        await reader.result(1, text_asr="second")

    play(scenario)


def test_who_reads_along_gets_an_utterance_that_came_late_too() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        node.work()
        speaker, reader, listener = [await stage.client() for _ in range(3)]
        code = await room_code_of(speaker, preferred_lang="zh")
        await reader.send("room_join", room_code=code, preferred_lang="zh")
        await listener.send("room_join", room_code=code, preferred_lang="en")
        await listener.expect("room_members")
        await speaker.utter(0)
        await listener.result(0)
        for index in (2, 1, 3):
            await speaker.utter(index)
        await listener.result(3)
        await until(lambda: len(reader.outcomes()) == 4, "the reader has all")

    play(scenario)


# Own voices


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("webrtc_offer", {"sdp": {"type": "offer", "sdp": "v=0"}}),
        ("webrtc_answer", {"sdp": "v=0"}),
        ("webrtc_ice", {"candidate": {"candidate": "x", "sdpMLineIndex": 0}}),
    ],
)
def test_signalling_reaches_only_the_other_who_wants_this_voice(kind: str, body: Message) -> None:
    async def scenario(stage: Stage) -> None:
        code, first, (second, third) = await full_room(stage, "en", "ja")
        for _ in range(2):
            await first.expect("room_members")
        await first.send(kind, room_code=code, to=second.id, **body)
        got = await second.expect(kind)
        # `to` names who sent it.
        assert got == {"type": kind, "room_code": code, "to": first.id, **body}

        mute = {"room_code": code, "target_session_id": first.id}
        await second.send("room_raw_voice_preference", **mute, receive_raw_voice=False)
        members = await first.follows("room_members")
        assert members["members"][1]["raw_voice_preferences"] == {first.id: False}
        await first.send(kind, room_code=code, to=second.id, **body)
        await first.send(kind, room_code=code, to=third.id, **body)
        await third.expect(kind, to=first.id)
        # The other way is another matter.
        await second.send(kind, room_code=code, to=first.id, **body)
        await first.follows(kind, to=second.id)
        await second.send("room_raw_voice_preference", **mute, receive_raw_voice=True)
        await first.follows("room_members")
        await first.send(kind, room_code=code, to=second.id, **body)
        await second.expect(kind)
        assert len(second.all(kind)) == 2
        assert not third.all(kind)[1:]

    play(scenario)


def test_signalling_does_not_leave_the_room() -> None:
    async def scenario(stage: Stage) -> None:
        code, first = await a_room(stage)
        outsider = await stage.client(form=JSON)
        await first.send("webrtc_offer", room_code=code, to=outsider.id, sdp="v=0")
        await first.follows("room_error", code="ROOM_NOT_FOUND")
        await outsider.send("webrtc_offer", room_code=code, to=first.id, sdp="v=0")
        await outsider.follows("room_error", code="NOT_IN_ROOM")
        assert not first.all("webrtc_offer")

    play(scenario)


def test_who_left_hears_what_was_said_before_and_no_more() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        speaker, listener = await stage.client("zh", "en"), await stage.client("en", "zh")
        await speaker.send("room_create", preferred_lang="zh")
        code = (await speaker.expect("room_create_ack"))["room_code"]
        await listener.send("room_join", room_code=code, preferred_lang="en")
        await listener.expect("room_members")
        await speaker.utter(0)
        job = await node.job()
        await listener.send("room_leave", room_code=code)
        rooms = stage.server.instance.rooms.cache.rooms
        await until(lambda: list(rooms.at(code).members) == [speaker.id], "it left")
        await speaker.utter(1)
        after = await node.job()
        assert after["tgt_lang"] == "en"
        await node.answer(job)
        await node.answer(after)
        assert (await speaker.expect("translation_result"))["utterance_index"] == 1
        assert (await listener.expect("translation_result"))["utterance_index"] == 0
        await listener.send("client_heartbeat", session_id=listener.id, timestamp=1)
        await listener.expect("server_heartbeat")
        assert len(listener.all("translation_result")) == 1

    play(scenario)


def test_a_speaker_of_two_languages_is_translated_into_a_third_one_way() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.old_node()
        speaker = await stage.client("auto", "en", mode="two_way_auto", lang_a="zh", lang_b="en")
        listener = await stage.client("ja", "zh")
        await speaker.send("room_create", preferred_lang="zh")
        code = (await speaker.expect("room_create_ack"))["room_code"]
        await listener.send("room_join", room_code=code, preferred_lang="ja")
        await listener.expect("room_members")
        await speaker.utter(0)
        job = await node.job()
        assert (job["src_lang"], job["tgt_lang"]) == ("auto", "ja")
        assert job["auto_langs"] == ["zh", "en"]
        assert "mode" not in job
        await node.answer(job)
        await listener.expect("translation_result", session_id=speaker.id)

    play(scenario)


def test_room_codes_cannot_be_guessed_by_trying() -> None:
    async def scenario(stage: Stage) -> None:
        client = await stage.client()
        codes = set()
        for number in range(260):
            await client.send("room_join", room_code=f"{number:06d}")
            codes.add((await client.expect("room_error"))["code"])
        assert codes == {"ROOM_NOT_FOUND", "RATE_LIMITED"}

    play(scenario)


def test_leaving_a_room_that_one_is_not_in_does_not_cut_what_is_being_said() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        client = await stage.client(audio_format="pcm16", sample_rate=16_000)
        voice = Random(1).randbytes(3200)
        await client.say(voice)
        await client.send("room_leave", room_code="123456")
        await client.expect("room_error", code="NOT_IN_ROOM")
        await client.say(voice, is_final=True)
        job = await node.job(utterance_index=0)
        assert audio_of(job) == voice + voice

    play(scenario)
