"""The realtime translation socket: every event as the official client's own types read it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from openai.types.realtime.realtime_translation_server_event import (
    RealtimeTranslationServerEvent,
)
from pydantic import TypeAdapter

from edge.live_server import PATIENCE_S, Stage, play, until
from edge.many_servers import Company
from edge.many_servers import play as play_company
from edge.openai_stage import (
    SPEECH_MS,
    failing_at,
    node,
    silence,
    spoken,
    tone,
    understand,
    until_no_sessions,
)
from lingua_node import Job, Result
from lingua_scheduler.auth.tokens import LEEWAY_S, TokenKeys
from lingua_scheduler.edge.openai.audio import at_realtime_rate
from lingua_scheduler.secret import Secret
from lingua_wire.codes import CloseCode

pytestmark = pytest.mark.store

RATE = 24_000
PATH = "/v1/realtime/translations"
CLIENT_KEY = "client-key-" + "c" * 32
KEYS = TokenKeys([Secret(CLIENT_KEY)], [])
WITH_KEYS = {"auth__client_keys": json.dumps([CLIENT_KEY])}
KNOWN = TypeAdapter(RealtimeTranslationServerEvent)
Event = dict[str, Any]


class Talk:
    """One client of the realtime socket."""

    def __init__(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        self.ws = ws
        self.heard: list[Event] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.ws.send_json({"type": kind, **fields})

    async def say(self, pcm: bytes, chunk_ms: int = 200) -> None:
        size = 2 * RATE * chunk_ms // 1000
        for at in range(0, len(pcm), size):
            audio = base64.b64encode(pcm[at : at + size]).decode()
            await self.send("session.input_audio_buffer.append", audio=audio)

    async def next(self) -> Event:
        frame = await asyncio.wait_for(self.ws.receive(), PATIENCE_S)
        assert frame.type is aiohttp.WSMsgType.TEXT, frame
        event: Event = json.loads(frame.data)
        assert KNOWN.validate_python(event).type == event["type"]
        assert event["event_id"] not in {other["event_id"] for other in self.heard}
        self.heard.append(event)
        return event

    async def expect(self, kind: str) -> Event:
        event = await self.next()
        assert event["type"] == kind, event
        return event

    async def until_closed(self) -> int | None:
        """Read to the end; returns the code."""
        while True:
            frame = await asyncio.wait_for(self.ws.receive(), PATIENCE_S)
            if frame.type is not aiohttp.WSMsgType.TEXT:
                return self.ws.close_code
            event = json.loads(frame.data)
            assert KNOWN.validate_python(event).type == event["type"]
            self.heard.append(event)

    def all(self, kind: str) -> list[Event]:
        return [event for event in self.heard if event["type"] == kind]

    def text(self, kind: str = "session.output_transcript.delta") -> str:
        return "".join(event["delta"] for event in self.all(kind))


@asynccontextmanager
async def talk(stage: Stage, query: str = "", **more: Any) -> AsyncIterator[Talk]:
    async with (
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{stage.server.url}{PATH}{query}", **more) as ws,
    ):
        made = Talk(ws)
        await made.expect("session.created")
        yield made


def audio_config(**audio: Any) -> Event:
    return {"session": {"audio": audio}}


def test_speech_comes_back_as_text_and_speech_in_order_and_then_the_end() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage), talk(stage, "?model=gpt-realtime-translate") as client:
            created = client.heard[0]["session"]
            assert created["model"] == "gpt-realtime-translate"
            assert created["audio"]["output"]["language"] == "en"
            config = audio_config(
                output={"language": "ES"}, input={"transcription": {"model": "whisper-1"}}
            )
            await client.send("session.update", event_id="mine", **config)
            updated = (await client.expect("session.updated"))["session"]
            assert updated["audio"]["output"]["language"] == "es"
            assert updated["audio"]["input"]["transcription"] == {"model": "whisper-1"}
            await client.say(spoken("alpha", "bravo", rate=RATE))
            await client.send("session.close")
            assert await client.until_closed() == 1000
            assert client.text() == "alpha in es bravo in es"
            assert client.text("session.input_transcript.delta") == "alpha bravo"
            assert not client.all("error")
            assert client.heard[-1]["type"] == "session.closed"
            kinds = [event["type"].split(".")[1] for event in client.heard[2:-1]]
            assert kinds == ["input_transcript", "output_transcript", "output_audio"] * 2
            at = [event["elapsed_ms"] for event in client.heard[2:-1]]
            assert at == sorted(at)
            assert all(ms % 200 == 0 for ms in at)
            assert 800 <= at[0] <= 2000
            await until_no_sessions(stage)

    play(scenario)


def test_speech_of_a_node_is_heard_at_24_khz() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage), talk(stage) as client:
            await client.say(spoken("alpha", rate=RATE))
            await client.send("session.close")
            await client.until_closed()
            assert not client.all("session.input_transcript.delta")
            (event,) = client.all("session.output_audio.delta")
            assert (event["sample_rate"], event["channels"], event["format"]) == (RATE, 1, "pcm16")
            pcm = base64.b64decode(event["delta"])
            assert len(pcm) == 2 * RATE * SPEECH_MS // 1000
            wanted = array("h", tone(440, SPEECH_MS, RATE))
            middle = slice(100, -100)
            wrong = max(
                abs(one - other)
                for one, other in zip(array("h", pcm)[middle], wanted[middle], strict=True)
            )
            assert wrong < 100

    play(scenario)


@pytest.mark.parametrize("rate", [8000, 16_000, 22_050, 44_100, 48_000])
def test_resampling_keeps_the_tone_its_length_and_its_bounds(rate: int) -> None:
    found = array("h", at_realtime_rate(tone(440, 500, rate), rate))
    wanted = array("h", tone(440, 500, RATE))
    assert abs(len(found) - len(wanted)) <= 1
    pairs = list(zip(found, wanted, strict=False))[200:-200]
    assert max(abs(one - other) for one, other in pairs) < 150
    square = array("h", ([32767] * 20 + [-32768] * 20) * 50).tobytes()
    assert max(array("h", at_realtime_rate(square, rate))) == 32767
    steady = array("h", [1234] * 400).tobytes()
    assert set(array("h", at_realtime_rate(steady, rate))[20:-20]) == {1234}
    assert at_realtime_rate(b"", rate) == b""


def test_text_alone_asks_for_no_speech() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage, services=("asr", "nmt")), talk(stage) as client:
            await client.send("session.update", session={"output_modalities": ["text"]})
            await client.expect("session.updated")
            await client.say(spoken("alpha", rate=RATE))
            await client.send("session.close")
            await client.until_closed()
            assert client.text() == "alpha in en"
            assert not client.all("session.output_audio.delta")
            assert not client.all("error")

    play(scenario)


def test_languages_change_in_the_middle_and_the_input_may_be_named() -> None:
    async def scenario(stage: Stage) -> None:
        sources: list[str] = []

        async def note(job: Job) -> Result:
            sources.append(job.src_lang)
            return await understand(job)

        async with node(stage, note), talk(stage) as client:
            await client.say(spoken("alpha", rate=RATE))
            await until(lambda: sources, "the first is heard")
            while not client.all("session.output_audio.delta"):
                await client.next()
            config = audio_config(output={"language": "French"}, input={"language": "es"})
            await client.send("session.update", **config)
            await client.expect("session.updated")
            await client.say(spoken("bravo", rate=RATE))
            await client.send("session.close")
            await client.until_closed()
            assert client.text() == "alpha in en bravo in fr"
            assert sources == ["auto", "es"]

    play(scenario)


APPEND = "session.input_audio_buffer.append"
# An event as it is sent -> code, param.
BAD: list[tuple[Any, str, str | None]] = [
    (b"{", "invalid_json", None),
    (b"", "invalid_json", None),
    (b"\xff\xfe", "invalid_json", None),
    (b"[" * 5000, "invalid_value", None),
    (b'{"type": "session.close", "more": ' + b"[" * 5000, "invalid_json", None),
    ([], "invalid_value", None),
    ({"type": "response.create"}, "unknown_event", "type"),
    ({"event_id": "e"}, "unknown_event", "type"),
    ({"type": 5}, "unknown_event", "type"),
    ({"type": APPEND}, "invalid_value", None),
    ({"type": APPEND, "audio": 5}, "invalid_value", "audio"),
    ({"type": APPEND, "audio": "%%%"}, "invalid_audio", "audio"),
    ({"type": APPEND, "audio": "AAA"}, "invalid_audio", "audio"),
    ({"type": APPEND, "audio": "AAAA"}, "invalid_audio", "audio"),
    ({"type": "session.update"}, "invalid_value", None),
    ({"type": "session.update", "session": {"audio": {"output": {"language": "?"}}}},
     "invalid_language", "session.audio.output.language"),
    ({"type": "session.update", "session": {"audio": {"output": {"language": 7}}}},
     "invalid_value", "session.audio.output.language"),
    ({"type": "session.update", "session": {"audio": {"input": {"language": "en"}}}},
     "invalid_value", "session.audio.output.language"),
    ({"type": "session.update", "session": {"model": "another"}}, "immutable_value", "session"),
    ({"type": "session.update", "session": {"type": "realtime"}}, "immutable_value", "session"),
    ({"type": "session.update", "session": {"audio": {"input": {"format":
      {"type": "audio/pcmu", "rate": 8000}}}}}, "unsupported_format", "session.audio.input.format"),
]  # fmt: skip


def test_each_bad_event_has_its_own_error_and_the_session_goes_on() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage), talk(stage) as client:

            async def all_bad() -> None:
                for number, (given, code, param) in enumerate(BAD):
                    event = given
                    if isinstance(event, bytes):
                        await client.ws.send_frame(event, aiohttp.WSMsgType.TEXT)
                    else:
                        if isinstance(event, dict) and "event_id" not in event:
                            event = event | {"event_id": f"e{number}"}
                        await client.ws.send_json(event)
                    error = (await client.expect("error"))["error"]
                    found = (error["code"], error["param"], error["type"])
                    assert found == (code, param, "invalid_request_error"), event
                    own = event.get("event_id") if isinstance(event, dict) else None
                    assert error["event_id"] == own
                await client.ws.send_bytes(b"audio")
                assert (await client.expect("error"))["error"]["code"] == "invalid_frame"

            await all_bad()
            await client.say(spoken("alpha", rate=RATE))
            while not client.all("session.output_audio.delta"):
                await client.next()
            await all_bad()
            await client.send("session.close")
            await client.until_closed()
            assert client.text() == "alpha in en"

    play(scenario)


def test_too_many_bad_events_in_a_row_end_the_socket() -> None:
    async def scenario(stage: Stage) -> None:
        async with talk(stage) as client:
            for _ in range(50):
                await client.ws.send_str("no")
            assert await client.until_closed() == 4422

    play(scenario)


def test_a_message_beyond_the_bound_ends_the_socket() -> None:
    async def scenario(stage: Stage) -> None:
        async with talk(stage) as client:
            await client.ws.send_str("x" * 200_000)
            assert await client.until_closed() == 1009

    play(scenario, server__message_bytes_max=100_000)


def test_what_comes_after_the_close_is_refused_and_nothing_said_is_a_short_end() -> None:
    async def scenario(stage: Stage) -> None:
        async with talk(stage) as client:
            await client.send("session.close")
            await client.expect("session.closed")
            assert await client.until_closed() == 1000
        async with node(stage), talk(stage) as client:
            await client.say(silence(1000, RATE))
            await client.send("session.close")
            await client.send("session.close", event_id="again")
            await client.until_closed()
            assert client.heard[-1]["type"] == "session.closed"
            assert [event["error"]["code"] for event in client.all("error")] == ["session_closed"]
            await until_no_sessions(stage)

    play(scenario)


def test_a_client_that_goes_away_ends_its_session_and_its_jobs() -> None:
    async def scenario(stage: Stage) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def never(_: Job) -> Result:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        async with node(stage, never):
            async with talk(stage) as client:
                await client.say(spoken("alpha", "bravo", rate=RATE))
                await begun.wait()
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            await until_no_sessions(stage)

    play(scenario)


def test_a_language_nobody_serves_and_an_utterance_nobody_can_do_are_told() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage, failing_at("bravo"), pairs=["es>en", "es>fr"]):
            async with talk(stage) as client:
                await client.say(spoken("alpha", "bravo", "charlie", rate=RATE))
                await client.send("session.close")
                await client.until_closed()
                assert client.text() == "alpha in en charlie in en"
                (error,) = [event["error"] for event in client.all("error")]
                assert (error["type"], error["code"]) == ("server_error", "utterance_missing")
            async with talk(stage) as client:
                await client.send("session.update", **audio_config(output={"language": "ja"}))
                await client.expect("session.updated")
                await client.say(silence(200, RATE))
                error = (await client.expect("error"))["error"]
                assert error["code"] == "language_not_served"
                await client.send("session.update", **audio_config(output={"language": "fr"}))
                await client.expect("session.updated")
                await client.send("session.update", **audio_config(output={"language": "de"}))
                await client.expect("session.updated")
                assert (await client.expect("error"))["error"]["code"] == "language_not_served"

    play(scenario, jobs__pending_ms=300, jobs__sweep_interval_ms=20)


def test_a_stopping_instance_tells_the_rest_and_says_goodbye() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()

        async def slowly(job: Job) -> Result:
            begun.set()
            await asyncio.sleep(0.2)
            return await understand(job)

        async with node(stage, slowly), talk(stage) as client:
            await client.say(spoken("alpha", rate=RATE))
            await begun.wait()
            draining = asyncio.create_task(stage.server.drain())
            assert await client.until_closed() == 1001
            assert client.text() == "alpha in en"
            assert client.all("error")[0]["error"]["code"] == "going_away"
            assert client.heard[-1]["type"] == "session.closed"
            assert await draining

    play(scenario, server__drain_ms=5000)


def test_a_fast_client_is_held_back_and_loses_nothing() -> None:
    words = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot") * 2

    async def scenario(stage: Stage) -> None:
        async def slowly(job: Job) -> Result:
            await asyncio.sleep(0.02)
            return await understand(job)

        async with node(stage, slowly, max_jobs=1), talk(stage) as client:
            reading = asyncio.create_task(client.until_closed())
            await client.say(spoken(*words, rate=RATE))
            await client.send("session.close")
            await reading
            assert client.text() == " ".join(f"{word} in en" for word in words)

    play(scenario, jobs__in_flight_max=2, sessions__backlog_max=4)


def test_much_audio_at_once_is_cut_where_speech_ends_and_held_back_in_its_middle() -> None:
    words = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")

    async def scenario(stage: Stage) -> None:
        async def slowly(job: Job) -> Result:
            await asyncio.sleep(0.02)
            return await understand(job)

        async with node(stage, slowly, max_jobs=1), talk(stage) as client:
            reading = asyncio.create_task(client.until_closed())
            await client.say(spoken(*words, rate=RATE), chunk_ms=15_000)
            await client.say(spoken(*words, rate=RATE), chunk_ms=4000)
            await client.send("session.close")
            await reading
            assert client.text() == " ".join(f"{word} in en" for word in words * 2)
            assert not client.all("error")

    play(scenario, jobs__in_flight_max=1, sessions__backlog_max=4)


# Who may come in


def test_a_key_comes_by_header_or_subprotocol_and_only_realtime_is_echoed() -> None:
    good = KEYS.issue_client(languages=("es", "en")).reveal()

    async def scenario(stage: Stage) -> None:
        header = {"headers": {"Authorization": f"Bearer {good}"}}
        async with talk(stage, **header) as client:
            assert client.ws.protocol is None
            await client.send("session.update", **audio_config(output={"language": "fr"}))
            error = (await client.expect("error"))["error"]
            assert error["code"] == "insufficient_permissions"
        offered = ("realtime", f"openai-insecure-api-key.{good}")
        async with talk(stage, protocols=offered) as client:
            assert client.ws.protocol == "realtime"
        listener = KEYS.issue_client(scopes=("listen",)).reveal()
        refused = [
            ({}, 401),
            ({"headers": {"Authorization": "Bearer sk-123"}}, 401),
            ({"protocols": ("realtime", "openai-insecure-api-key.sk-123")}, 401),
            ({"headers": {"Authorization": f"Bearer {listener}"}}, 403),
            ({"headers": {**header["headers"], "Origin": "https://evil.example"}}, 403),
        ]
        for more, status in refused:
            with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
                async with talk(stage, **more):
                    pass
            assert failed.value.status == status, more
        with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
            async with talk(stage, "?model=nobody", **header):
                pass
        assert failed.value.status == 404

    play(scenario, **WITH_KEYS)


def test_when_its_token_expires_what_was_said_is_told_and_the_socket_closed() -> None:
    async def scenario(stage: Stage) -> None:
        # Let in for some three seconds yet.
        behind = TokenKeys([Secret(CLIENT_KEY)], [], lambda: time.time() - LEEWAY_S - 7)
        token = behind.issue_client(ttl_s=10).reveal()
        header = {"headers": {"Authorization": f"Bearer {token}"}}
        async with node(stage), talk(stage, **header) as client:
            await client.say(spoken("alpha", rate=RATE))
            await client.say(tone(600, 300, rate=RATE))
            assert await client.until_closed() == CloseCode.TOKEN_EXPIRED
            assert [error["error"]["code"] for error in client.all("error")] == ["token_expired"]
            assert client.text().startswith("alpha in en")
            assert client.heard[-1]["type"] == "session.closed"
        with pytest.raises(aiohttp.WSServerHandshakeError) as failed:
            async with talk(stage, **header):
                pass
        assert failed.value.status == 401

    play(scenario, **WITH_KEYS)


def test_where_no_keys_are_set_any_key_will_do() -> None:
    async def scenario(stage: Stage) -> None:
        for more in ({}, {"headers": {"Authorization": "Bearer sk-anything"}}):
            async with talk(stage, **more) as client:
                await client.send("session.close")
                assert await client.until_closed() == 1000

    play(scenario)


# The end, and what is in its way


def test_who_says_all_at_once_and_goes_away_is_noticed() -> None:
    async def scenario(stage: Stage) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def never(_: Job) -> Result:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        async with node(stage, never), talk(stage) as client:
            await client.say(spoken("alpha", rate=RATE), chunk_ms=5000)
            await client.send("session.close")
            await asyncio.wait_for(begun.wait(), PATIENCE_S)
            connection = client.ws._response.connection
            assert connection is not None
            connection.transport.abort()
            await asyncio.wait_for(ended.wait(), PATIENCE_S)
            await until_no_sessions(stage)

    play(scenario)


def test_a_client_that_reads_nothing_costs_a_bounded_amount_and_is_let_go() -> None:
    words = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot") * 8

    async def scenario(stage: Stage) -> None:
        async def at_length(_: Job) -> Result:
            return Result(text_asr="x", text_translated="y", tts_audio=bytes(1_000_000))

        async with node(stage, at_length, max_jobs=8), talk(stage) as client:
            connection = client.ws._response.connection
            assert connection is not None
            connection.transport.pause_reading()
            await client.say(spoken(*words, rate=RATE), chunk_ms=1000)
            await until(lambda: stage.server.front.closed.get(4408), "it is let go")
            await until_no_sessions(stage)

    play(scenario)


def test_who_has_said_nothing_when_the_instance_stops_is_sent_elsewhere() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage), talk(stage) as client:
            await stage.server.drain()
            await client.say(spoken("alpha", rate=RATE))
            assert await client.until_closed() == 1001
            kinds = [event["type"] for event in client.heard]
            assert kinds == ["session.created", "error", "session.closed"]
            assert client.heard[1]["error"]["code"] == "going_away"
            await until_no_sessions(stage)

    play(scenario)


def test_a_microphone_that_goes_on_after_the_close_costs_nothing_that_was_said() -> None:
    async def scenario(stage: Stage) -> None:
        go_on = asyncio.Event()

        async def wait(job: Job) -> Result:
            await go_on.wait()
            return await understand(job)

        async with node(stage, wait), talk(stage) as client:
            await client.say(spoken("alpha", "bravo", rate=RATE))
            await client.send("session.close")
            await client.say(silence(20_000, RATE))
            assert (await client.expect("error"))["error"]["code"] == "session_closed"
            go_on.set()
            assert await client.until_closed() == 1000
            assert client.text() == "alpha in en bravo in en"
            assert len(client.all("error")) == 1

    play(scenario)


def test_the_end_is_told_once_and_last_though_client_and_instance_end_it_together() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()

        async def slowly(job: Job) -> Result:
            begun.set()
            await asyncio.sleep(0.3)
            return await understand(job)

        async with node(stage, slowly), talk(stage) as client:
            await client.say(spoken("alpha", rate=RATE))
            await begun.wait()
            draining = asyncio.create_task(stage.server.drain())
            await client.send("session.close")
            reading = asyncio.create_task(client.until_closed())
            while not reading.done():
                # Whatever comes late is refused, but never after the end.
                with contextlib.suppress(aiohttp.ClientConnectionError):
                    await client.send("session.update", session={})
                await asyncio.sleep(0.01)
            assert client.text() == "alpha in en"
            assert [event["type"] for event in client.heard].count("session.closed") == 1
            assert client.heard[-1]["type"] == "session.closed"
            assert await draining

    play(scenario, server__drain_ms=5000)


def test_what_is_said_to_begin_with_waits_for_a_store_that_is_away() -> None:
    async def scenario(company: Company) -> None:
        stage = company["A"]
        async with node(stage), talk(stage) as client:
            company.store.kill()
            saying = asyncio.create_task(client.say(spoken("alpha", "bravo", rate=RATE), 50))
            error = (await client.expect("error"))["error"]
            assert (error["type"], error["code"]) == ("server_error", "scheduler_dependency_down")
            company.store.start()
            await saying
            await client.send("session.close")
            assert await client.until_closed() == 1000
            assert client.text() == "alpha in en bravo in en"
            assert len(client.all("error")) == 1

    play_company(scenario, "A", keeps=True)
