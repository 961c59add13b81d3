"""Captions of rooms over real sockets: who reads them, in which order, and their end."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from edge.caption_readers import browser
from edge.live_server import JSON, Message, NewClient, Stage, opus, play, until
from edge.locked import LOCKED, client_token, ending_client
from edge.test_rooms import a_room, full_room, listener
from lingua_wire.from_node import StreamPartial
from lingua_wire.shared import PartialTranslation

if TYPE_CHECKING:
    from edge.caption_readers import Browser, EventReader

pytestmark = pytest.mark.store


async def reads(http: Browser, stage: Stage, code: str, lang: str, **more: str) -> EventReader:
    return await http.read(f"{stage.server.url}/captions/{code}", lang=lang, **more)


async def get(http: Browser, stage: Stage, path: str, **query: str) -> tuple[int, str, Message]:
    """Return status, text, and the error if it is one."""
    async with http.http.get(f"{stage.server.url}{path}", params=query) as response:
        text = await response.text()
        error = json.loads(text)["error"] if response.status >= 400 else {}
        return response.status, text, error


async def say(speaker: NewClient, index: int) -> None:
    await speaker.say(opus(200), is_final=True)
    await speaker.expect("utterance_accepted", utterance_index=index)


def feeds(stage: Stage) -> int:
    return len(stage.server.instance.rooms.captions)


# Reading


def test_readers_get_what_is_said_in_order_and_once_and_cost_no_speech() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker = await a_room(stage, display_name="Ann")
        async with browser() as http:
            one, two = await reads(http, stage, code, "en"), await reads(http, stage, code, "en")
            members = await one.expect("members")
            assert [member["name"] for member in members["members"]] == ["Ann"]
            for index in range(3):
                await say(speaker, index)
                job = await node.job(tgt_lang="en")
                # Nobody listens: the translation is not spoken.
                assert (job["pipeline"]["use_nmt"], job["pipeline"]["use_tts"]) == (True, False)
                await node.answer(job, f"said {index}")
            for reader in (one, two):
                while len(reader.texts) < 3:
                    await reader.next()
                assert reader.texts == ["said 0:en", "said 1:en", "said 2:en"]
            caption = one.events[-1]
            assert caption["speaker"] == speaker.id
            assert (caption["name"], caption["lang"]) == ("Ann", "en")
            assert (caption["utterance_index"], caption["id"]) == (2, one.last_id)
            # The speaker's outcomes went to readers; it is told so.
            await speaker.expect("outcome_passed", utterance_index=2)
            assert feeds(stage) == 1

    play(scenario)


def test_readers_are_no_members_but_are_counted() -> None:
    async def scenario(stage: Stage) -> None:
        code, speaker, (second,) = await full_room(stage, "en")
        async with browser() as http:
            await reads(http, stage, code, "en")
            reader = await reads(http, stage, code, "en")
            stage.server.instance.rooms.captions.room_changed(code)
            seen = await speaker.expect("room_members", readers=2)
            assert len(seen["members"]) == 2
            await reader.expect("members", readers=2)
        # The room is full of members, not of readers.
        await second.send("room_leave", room_code=code)
        await listener(stage, code, "en")

    play(scenario, rooms__members_max=2)


def test_a_member_and_readers_of_one_language_share_one_spoken_translation() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker, (english,) = await full_room(stage, "en")
        async with browser() as http:
            reader = await reads(http, stage, code, "en")
            await say(speaker, 0)
            job = await node.job(tgt_lang="en")
            assert job["pipeline"]["use_tts"]
            await node.answer(job, "said")
            await english.result(0, text_translated="said:en")
            await reader.expect("caption", text="said:en")
            assert len(node.jobs) == 1

    play(scenario)


def test_readers_of_the_spoken_language_read_the_words() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker = await a_room(stage)
        async with browser() as http:
            chinese = await reads(http, stage, code, "zh")
            await say(speaker, 0)
            job = await node.job()
            # Only recognition.
            stages = job["pipeline"]
            assert (stages["use_asr"], stages["use_nmt"], stages["use_tts"]) == (True, False, False)
            await node.answer(job, "said", text_translated="")
            await chinese.expect("caption", text="said", lang="zh")
            # With a translation for others, the words come with that job.
            english = await reads(http, stage, code, "en")
            await say(speaker, 1)
            await node.answer(await node.job(tgt_lang="en"), "more")
            await chinese.expect("caption", text="more", lang="zh")
            await english.expect("caption", text="more:en", lang="en")
            assert len(node.jobs) == 2

    play(scenario)


def test_a_language_that_no_node_serves_holds_up_nobody() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node(languages={"pairs": [{"src": "zh", "tgt": "en"}]})
        code, speaker = await a_room(stage)
        async with browser() as http:
            await reads(http, stage, code, "is")
            await say(speaker, 0)
            # As if nobody read: the speaker's own language of translation applies.
            await node.answer(await node.job(tgt_lang="en"), "said")
            await speaker.result(0, text_translated="said:en")

    play(scenario)


def test_who_comes_back_reads_on_after_the_last_event() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker = await a_room(stage)
        async with browser() as http:
            reader = await reads(http, stage, code, "en")
            for index in range(2):
                await say(speaker, index)
                await node.answer(await node.job(), f"said {index}")
            await reader.expect("caption", text="said 0:en")
            first = reader.last_id
            reader.response.close()
            back = await reads(http, stage, code, "en", last_id=first)
            await back.expect("caption", text="said 1:en")
            assert back.texts == ["said 1:en"]
            # The same over a WebSocket.
            path = f"/ws/captions?room={code}&lang=en&after={first}"
            socket = await stage.socket(path, JSON)
            assert (await socket.expect("caption"))["text"] == "said 1:en"
            # Who is late gets the latest.
            late = await reads(http, stage, code, "en")
            await late.expect("caption", text="said 1:en")
            assert late.texts == ["said 0:en", "said 1:en"]

    play(scenario)


def test_late_readers_get_nothing_of_before_if_rooms_keep_no_captions() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker, (english,) = await full_room(stage, "en")
        async with browser() as http:
            await say(speaker, 0)
            await node.answer(await node.job(), "before")
            await english.result(0)
            reader = await reads(http, stage, code, "en")
            await say(speaker, 1)
            await node.answer(await node.job(), "after")
            await reader.expect("caption", text="after:en")
            late = await reads(http, stage, code, "en")
            await say(speaker, 2)
            await node.answer(await node.job(), "last")
            await late.expect("caption", text="last:en")
            assert (reader.texts, late.texts) == (["after:en"], ["last:en"])
            status, _, error = await get(http, stage, f"/room/{code}/transcript", lang="en")
            assert (status, error["code"]) == (404, "NOT_FOUND")

    play(scenario, rooms__captions_kept=0)


def test_the_feed_ends_with_the_room_and_readers_do_not_keep_it() -> None:
    async def scenario(stage: Stage) -> None:
        code, speaker = await a_room(stage)
        async with browser() as http:
            reader = await reads(http, stage, code, "en")
            socket = await stage.socket(f"/ws/captions?room={code}&lang=ja", JSON)
            await socket.expect("members")
            await speaker.send("room_leave", room_code=code)
            await reader.expect("end")
            assert await reader.next() == {}
            await socket.expect("end")
            assert await socket.closed() == 1000
            status, _, error = await get(http, stage, f"/captions/{code}", lang="en")
            assert (status, error["code"]) == (404, "ROOM_NOT_FOUND")
            await until(lambda: feeds(stage) == 0, "the feeds have ended")

    play(scenario)


def test_a_feed_without_readers_ends_and_its_language_is_not_translated_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lingua_scheduler.rooms.caption_feed.GRACE_S", 0.1)
    monkeypatch.setattr("lingua_scheduler.rooms.caption_feed.LOOK_S", 0.05)

    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker, (english,) = await full_room(stage, "en")
        async with browser() as http:
            reader = await reads(http, stage, code, "ja")
            reader.response.close()
            await until(lambda: feeds(stage) == 0, "the feed has ended")
            store = stage.server.instance.rooms.cache.store

            for _ in range(500):
                room = (await store.read(code)).room
                assert room is not None
                if not room.feeds:
                    break
                await asyncio.sleep(0.01)
            await say(speaker, 0)
            await node.answer(await node.job(tgt_lang="en"))
            await english.result(0)
            assert len(node.jobs) == 1

    play(scenario)


def test_a_reader_that_does_not_read_is_dropped_and_the_others_read_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lingua_scheduler.edge.room_pages.UNREAD_BYTES_MAX", 1 << 16)

    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker = await a_room(stage)
        host, port = "127.0.0.1", stage.server.port
        async with browser() as http:
            reader = await reads(http, stage, code, "en")
            _, writer = await asyncio.open_connection(host, port, limit=1)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            head = f"GET /captions/{code}?lang=en HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n"
            writer.write(head.encode())
            captions = stage.server.instance.rooms.captions
            await until(lambda: captions.readers == 2, "both read")
            index = 0
            while captions.readers == 2 and index < 400:
                await say(speaker, index)
                await node.answer(await node.job(), f"{index} " + "x" * 30_000)
                await reader.expect("caption", utterance_index=index)
                index += 1
            assert captions.readers == 1
            await say(speaker, index)
            await node.answer(await node.job(), "more")
            await reader.expect("caption", text="more:en")
            writer.close()

    play(scenario)


def test_partial_texts_reach_readers_and_never_follow_their_caption() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker = await a_room(stage, display_name="Ann")
        instance = stage.server.instance
        session = instance.sessions[speaker.id]

        def hears(index: int, text: str) -> None:
            translated = PartialTranslation(tgt_lang="en", stable=f"{text}:en", unstable="...")
            partial = StreamPartial(
                stream_id="h", revision=1, upto_ms=9, src_lang="zh", stable=text, unstable="?",
                translations=(translated,),
            )  # fmt: skip
            profile = session.languages.profile
            instance.node_parts.streams.router.publish(session.record, profile, (index, 0), partial)

        async with browser() as http:
            english, chinese = [await reads(http, stage, code, lang) for lang in ("en", "zh")]
            await until(lambda: instance.rooms.captions.readers == 2, "both read")
            await instance.rooms.cache.refresh()
            hears(0, "sa")
            shown = await english.expect("partial")
            assert (shown["stable"], shown["unstable"], shown["name"]) == ("sa:en", "...", "Ann")
            await chinese.expect("partial", stable="sa", unstable="?")
            await say(speaker, 0)
            await node.answer(await node.job(), "said")
            await english.expect("caption", text="said:en")
            hears(0, "late")
            partials = instance.rooms.captions.feeds[code]["en"].partials
            await until(lambda: not len(partials), "it was looked at")
            hears(1, "ne")
            await english.expect("partial", stable="ne:en")
            shown_partials = [event for event in english.events if event["type"] == "partial"]
            assert len(shown_partials) == 2

    play(scenario)


# Refusals


def test_wrong_codes_and_languages_are_refused_and_guessing_is_slowed_down() -> None:
    async def scenario(stage: Stage) -> None:
        code, _ = await a_room(stage)
        wrong = "000000" if code != "000000" else "000001"
        async with browser() as http:
            for path, lang, expected in (
                (f"/captions/{wrong}", "en", (404, "ROOM_NOT_FOUND")),
                ("/captions/12ab", "en", (422, "INVALID_ROOM_CODE")),
                (f"/captions/{code}", "no language", (422, "UNSUPPORTED_LANGUAGE")),
                (f"/room/{wrong}/transcript", "en", (404, "ROOM_NOT_FOUND")),
            ):
                status, _, error = await get(http, stage, path, lang=lang)
                assert (status, error["code"]) == expected
            status, _, error = await get(http, stage, f"/captions/{code}", lang="en", more="x")
            assert (status, error["code"]) == (422, "INVALID_PARAMETER")
            statuses = [
                (await get(http, stage, f"/captions/{wrong}", lang="en"))[0] for _ in range(12)
            ]
            assert statuses[-1] == 429
            # Also for a right code, until the bucket fills again.
            assert (await get(http, stage, f"/room/{code}/transcript", lang="en"))[0] == 429
            socket = await stage.socket(f"/ws/captions?room={code}&lang=en", JSON)
            await socket.expect("error", code="RATE_LIMITED")
            assert await socket.closed() == 4429

    play(scenario)


def test_behind_a_proxy_only_the_address_that_guesses_is_slowed_down() -> None:
    async def scenario(stage: Stage) -> None:
        async def ask(http: Browser, named: str) -> int:
            url = f"{stage.server.url}/captions/000000?lang=en"
            async with http.http.get(url, headers={"X-Forwarded-For": named}) as response:
                return response.status

        async with browser() as http:
            statuses = [await ask(http, f"10.9.9.{number}, 10.0.0.1") for number in range(12)]
            assert (statuses[0], statuses[-1]) == (404, 429)
            assert await ask(http, "10.0.0.2") == 404

    play(scenario, server__behind_proxy=True)


def test_readers_of_an_instance_are_bounded() -> None:
    async def scenario(stage: Stage) -> None:
        code, _ = await a_room(stage)
        async with browser() as http:
            await reads(http, stage, code, "en")
            status, _, error = await get(http, stage, f"/captions/{code}", lang="en")
            assert (status, error["code"]) == (503, "BUSY")

    play(scenario, rooms__readers_max=1)


def test_with_keys_captions_need_a_token_that_allows_them() -> None:
    async def scenario(stage: Stage) -> None:
        member = await stage.client(token=client_token(tenant="acme", rooms=True))
        await member.send("room_create", client_ts=1, preferred_lang="zh")
        code = (await member.expect("room_create_ack"))["room_code"]
        tokens: list[tuple[dict[str, Any], int]] = [
            ({"tenant": "acme", "scopes": ["captions"], "rooms": False}, 200),
            ({"tenant": "acme", "scopes": ["listen"], "rooms": True}, 200),
            ({"tenant": "acme", "scopes": ["speak"], "rooms": True}, 403),
            ({"tenant": "acme", "scopes": ["listen"], "rooms": False}, 403),
            ({"tenant": "acme", "scopes": ["captions"], "languages": ["de"]}, 403),
            ({"tenant": "globex", "scopes": ["captions"]}, 404),
        ]
        async with browser() as http:
            url = f"{stage.server.url}/captions/{code}?lang=en"
            assert await http.status(url) == 401
            for grant, expected in tokens:
                bearer = f"Bearer {client_token(**grant)}"
                assert await http.status(url, Authorization=bearer) == expected, grant
            # A browser cannot set headers for Server-Sent Events.
            only = client_token(**tokens[0][0])
            assert await http.status(f"{url}&token={only}") == 200
            # A reader's token allows nothing else.
            sessions = f"{stage.server.url}/api/v1/sessions"
            assert await http.status(sessions, Authorization=f"Bearer {only}") == 403

    play(scenario, **LOCKED)


def test_a_reader_whose_token_ends_is_closed() -> None:
    async def scenario(stage: Stage) -> None:
        member = await stage.client(token=client_token(rooms=True))
        await member.send("room_create", client_ts=1)
        code = (await member.expect("room_create_ack"))["room_code"]
        async with browser() as http:
            token = ending_client(scopes=["captions"])
            reader = await reads(http, stage, code, "en", token=token)
            while await reader.next():
                pass

    play(scenario, **LOCKED)


# The transcript


def test_the_transcript_is_what_was_said_with_times_from_the_first() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        code, speaker = await a_room(stage, display_name="Ann")
        english = await listener(stage, code, "en")
        for index in range(2):
            await say(speaker, index)
            await node.answer(await node.job(), f"said {index}")
            await english.result(index)
        async with browser() as http:
            path = f"/room/{code}/transcript"
            _, srt, _ = await get(http, stage, path, lang="en")
            assert srt.startswith("1\n00:00:00,000 --> 00:00:0")
            assert "Ann: said 0:en" in srt
            _, vtt, _ = await get(http, stage, path, lang="en", format="vtt")
            assert vtt.startswith("WEBVTT\n")
            assert "<v Ann>said 1:en" in vtt
            _, text, _ = await get(http, stage, path, lang="EN", format="txt")
            first, second = text.splitlines()
            assert first == "[00:00:00] Ann: said 0:en"
            assert second.endswith("Ann: said 1:en")
            status, _, error = await get(http, stage, path, lang="ja")
            assert (status, error["code"]) == (404, "NOT_FOUND")
            assert error["message"].endswith("languages with captions: en")
            status, _, error = await get(http, stage, path, lang="en", format="pdf")
            assert status == 422

    play(scenario)
