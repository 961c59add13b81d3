"""The client SDK with a real server and real nodes: speech, outcomes, rooms and closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_peer import next_of
from edge.live_server import MSGPACK, Stage, pcm16, play, until
from lingua_client import (
    Notice,
    Options,
    Outcome,
    Partial,
    RoomRefused,
    Session,
    SessionRefused,
    connect,
)
from real_session import say, session_of, url_of

pytestmark = pytest.mark.store


async def notice(session: Session, kind: str) -> Any:
    """Return the message of the next notice of a kind."""
    while True:
        found = await next_of(session, Notice)
        if found.kind == kind:
            return found.message


@pytest.mark.parametrize("form", ["msgpack", "json"])
def test_speech_comes_back_translated_and_every_millisecond_is_accounted_for(form: str) -> None:
    async def scenario(stage: Stage) -> None:
        (await stage.node(form=MSGPACK)).work()
        async with session_of(stage, "en", "ja", options=Options(form=form)) as session:
            closing: asyncio.Task[Any] | None = None
            found: list[Outcome] = []
            for index in range(3):
                await say(session)
                while len([o for o in found if o.utterance_index == index]) < 2:
                    found.append(await next_of(session, Outcome))
            closing = asyncio.create_task(session.close("done"))
            assert [event async for event in session if isinstance(event, Outcome)] == []
            coverage = await closing
        assert sorted((o.utterance_index, o.target) for o in found) == [
            (index, target) for index in range(3) for target in ("en", "ja")
        ]
        assert {o.text for o in found if o.target == "ja"} == {f"text {n}:ja" for n in range(3)}
        assert [o.seq for o in found] == [1, 2, 3, 4, 5, 6]
        assert {(o.kind, o.is_own, o.speaker, o.audio) for o in found} == {
            ("translation", True, session.id, b"tts")
        }
        assert coverage is not None
        assert (coverage.admitted_ms, coverage.delivered_ms) == (1500, 1500)

    play(scenario)


def test_partials_and_acceptance_are_reported() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        async with session_of(stage) as session:
            await say(session)
            accepted = await notice(session, "utterance_accepted")
            assert (accepted.first_seq, accepted.last_seq, accepted.end_ms) == (0, 5, 500)
            job = await node.job()
            await node.partial(job, "he")
            partial = await next_of(session, Partial)
            assert (partial.text, partial.utterance_index) == ("he", 0)
            await node.answer(job, "hello")
            assert (await next_of(session, Outcome)).text == "hello:en"

    play(scenario)


def test_audio_is_kept_until_it_is_answered() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        async with session_of(stage) as session:
            replay = session._conversation.audio.replay
            await say(session)
            await notice(session, "utterance_accepted")
            assert (replay.unaccepted_size, replay.first_seq, replay.open_seq) == (0, 0, 6)
            await node.answer(await node.job())
            await next_of(session, Outcome)
            assert (replay.size, replay.first_seq) == (0, 6)

    play(scenario)


def test_a_failed_utterance_is_an_outcome_too() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        async with session_of(stage) as session:
            await say(session)
            await node.fail(await node.job(), "NO_SUCH_VOICE", "none")
            outcome = await next_of(session, Outcome)
            assert (outcome.kind, outcome.reason, outcome.text) == ("missing", "failed", "")

    play(scenario)


def test_pressure_makes_speech_wait_and_nothing_is_lost() -> None:
    async def scenario(stage: Stage) -> None:
        node = await stage.node()
        async with session_of(stage) as session:
            speaking = asyncio.create_task(speak_slowly(session, 12))
            pressed = await notice(session, "backpressure")
            while pressed.action != "PAUSE":
                pressed = await notice(session, "backpressure")
            assert not speaking.done()
            node.work()
            found = [await next_of(session, Outcome) for _ in range(12)]
            assert [outcome.utterance_index for outcome in found] == [*range(12)]
            await asyncio.wait_for(speaking, 20)
            coverage = await session.close()
            assert coverage is not None
            assert coverage.delivered_ms == coverage.admitted_ms == 1200

    play(
        scenario,
        jobs__in_flight_max=2,
        sessions__backlog_max=2,
        segmentation__hangover_manual_ms=0,
    )


async def speak_slowly(session: Session, utterances: int) -> None:
    """Send one utterance after another, with time for a PAUSE to arrive."""
    for _ in range(utterances):
        await say(session, 1)
        await asyncio.sleep(0.05)


def test_rooms_carry_speech_to_their_listeners() -> None:
    async def scenario(stage: Stage) -> None:
        (await stage.node()).work()
        async with session_of(stage) as speaker, session_of(stage, source="en") as listener:
            code = await speaker.create_room(preferred_lang="zh", display_name="Li")
            with pytest.raises(RoomRefused) as refused:
                await listener.join_room("12ab")
            assert refused.value.code == "INVALID_ROOM_CODE"
            await listener.join_room(code, preferred_lang="en")
            members = (await notice(listener, "room_members")).members
            assert [member.session_id for member in members] == [speaker.id, listener.id]
            with pytest.raises(RoomRefused):
                await listener.create_room()
            assert speaker.room == listener.room == code
            await say(speaker)
            heard = await next_of(listener, Outcome)
            assert (heard.speaker, heard.is_own, heard.text) == (speaker.id, False, "text 0:en")
            await listener.leave_room()
            while len((await notice(speaker, "room_members")).members) != 1:
                pass
            await say(speaker)
            outcome = await next_of(speaker, Outcome)
            assert (outcome.is_own, outcome.utterance_index) == (True, 1)

    play(scenario)


def test_an_invalid_language_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(SessionRefused, match="UNSUPPORTED_LANGUAGE"):
            await connect(url_of(stage), source="no language", targets="en").__aenter__()

    play(scenario)


def test_a_session_that_is_left_is_ended_at_the_server() -> None:
    async def scenario(stage: Stage) -> None:
        (await stage.node()).work()
        sessions = stage.server.instance.sessions
        async with session_of(stage) as session:
            await session.send(pcm16(500))
            assert session.id in sessions
        await until(lambda: not sessions, "the session is ended")

    play(scenario)
