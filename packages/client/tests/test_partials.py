"""Sessions with partial texts and parts of speech, at a scripted service over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client_peer import Caller, next_of, opened, result, scripted_service, until
from early_messages import part, partial
from lingua_client import Outcome, Partial, Reset, Session, SpeechPart, TextSoFar, connect
from lingua_wire.shared import PartialTranslation
from lingua_wire.to_client import AsrPartial, OutcomePassed, ResumeRejected
from node_peer import BOUND_S, run

pytestmark = pytest.mark.unit


async def told(session: Session, count: int) -> list[str]:
    """Return the next partials, parts and outcomes, as short texts."""
    found: list[str] = []
    async with asyncio.timeout(BOUND_S):
        async for event in session:
            if isinstance(event, Partial):
                found.append(f"{event.utterance_index} {event.text}")
            elif isinstance(event, SpeechPart):
                found.append(f"{event.utterance_index} {event.audio.decode()}")
            elif isinstance(event, Outcome):
                found.append(f"{event.utterance_index} = {event.text}")
            if len(found) == count:
                return found
    raise AssertionError(f"the session ended after {found}")


def test_early_filter_are_asked_for_only_if_they_are_wanted() -> None:
    async def first_message(**settings: Any) -> Any:
        async with scripted_service() as one:
            session = connect(one.url, source="en", targets="es", **settings)
            opening = asyncio.create_task(session.__aenter__())
            init = await (await one.caller()).greet()
            await opening
            await session.__aexit__(None, None, None)
            return init

    async def scenario() -> None:
        plain = await first_message()
        assert (plain.partials, plain.tts_parts, plain.sentence_cuts) == (None, None, None)
        assert (plain.silence_min_ms, plain.silence_max_ms) == (None, None)
        wanted = await first_message(
            partials=True,
            tts_parts=True,
            sentence_cuts=False,
            silence_min_ms=200,
            silence_max_ms=900,
        )
        assert (wanted.partials, wanted.tts_parts, wanted.sentence_cuts) == (True, True, False)
        assert (wanted.silence_min_ms, wanted.silence_max_ms) == (200, 900)
        more = await first_message(partials=True, init={"partials": False})
        assert more.partials is False

    run(scenario())


def test_a_partial_has_its_texts_its_place_and_its_speaker() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            spanish = PartialTranslation(tgt_lang="es", stable="Buenos", unstable=" días")
            caller.send(partial(2, "Good", " mor", revision=4, translations=(spanish,)))
            found = await next_of(session, Partial)
            assert (found.stable, found.unstable, found.text) == ("Good", " mor", "Good mor")
            assert found.translations == {"es": TextSoFar("Buenos", " días")}
            assert found.translations["es"].text == "Buenos días"
            assert (found.utterance_index, found.revision) == (2, 4)
            assert (found.start_ms, found.upto_ms) == (100, 900)
            assert (found.speaker, found.is_own, found.is_final) == ("s1", True, False)
            # Words that the node separated.
            caller.send(partial(2, "Good", "morning"))
            assert (await next_of(session, Partial)).text == "Good morning"
            caller.send(partial(0, "Hi", session_id="other"))
            other = await next_of(session, Partial)
            assert (other.speaker, other.is_own) == ("other", False)

    run(scenario())


def test_a_partial_of_the_older_message_has_the_same_fields() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            about: dict[str, Any] = {"session_id": "s1", "job_id": "j", "trace_id": "t"}
            caller.send(AsrPartial(utterance_index=3, text="hel", is_final=False, **about))
            found = await next_of(session, Partial)
            assert (found.text, found.stable, found.unstable) == ("hel", "", "hel")
            assert (found.translations, found.revision, found.upto_ms) == ({}, 0, None)
            caller.send(AsrPartial(utterance_index=3, text="hello", is_final=True, **about))
            last = await next_of(session, Partial)
            assert (last.text, last.stable, last.is_final) == ("hello", "hello", True)

    run(scenario())


def test_no_partial_follows_the_outcome_of_its_utterance() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            caller.send(partial(0, "Good"))
            assert await told(session, 1) == ["0 Good"]
            caller.outcome(1)
            caller.send(partial(0, "late"))
            caller.send(partial(1, "next"))
            assert await told(session, 2) == ["0 = hola 1", "1 next"]
            # Of a room: only the listeners receive the outcome.
            passed = OutcomePassed(
                session_id="s1", utterance_index=1, tgt_lang="es", epoch="e1", seq=2
            )
            caller.send(passed)
            caller.send(partial(1, "late"))
            caller.send(partial(2, "third"))
            assert await told(session, 1) == ["2 third"]

    run(scenario())


def test_a_reader_that_is_late_gets_the_newest_partial_and_every_outcome() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            for number in range(50):
                caller.send(partial(0, f"text {number}"))
            caller.send(partial(0, "Hi", session_id="other"))
            caller.outcome(1)
            events = session._conversation.events
            await until(lambda: session.seq == 1)
            assert len(events._events) == 3
            assert await told(session, 3) == ["0 text 49", "0 Hi", "0 = hola 1"]
            assert events._size == 0

    run(scenario())


def test_parts_of_speech_come_in_order_and_end_with_the_outcome() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            caller.send(part(0, 0, b"a"))
            caller.send(part(0, 1, b"b"))
            caller.send(part(0, 1, b"again"))
            caller.send(part(0, 0, b"A", attempt_id=2))
            caller.send(part(0, 2, b"old"))
            caller.outcome(1)
            caller.send(part(0, 1, b"late", attempt_id=2))
            caller.send(part(1, 0, b"c"))
            assert await told(session, 5) == ["0 a", "0 b", "0 A", "0 = hola 1", "1 c"]
            caller.send(part(1, 1, b"d", tgt_lang="es", session_id="s1"))
            found = await next_of(session, SpeechPart)
            assert (found.speaker, found.is_own, found.target) == ("s1", True, "es")
            assert (found.part_index, found.audio_format) == (1, "pcm16")

    run(scenario())


async def second_connection(one: Any, caller: Caller, **fields: Any) -> Caller:
    caller.cut()
    second: Caller = await one.caller()
    await second.resume(**fields)
    return second


def test_outcomes_from_before_a_resume_still_end_partials() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            caller.send(partial(1, "Go"))
            caller.send(part(0, 0, b"a"))
            assert await told(session, 2) == ["1 Go", "0 a"]
            caller.outcome(1)
            assert await told(session, 1) == ["0 = hola 1"]
            second = await second_connection(one, caller, next_utterance_index=1)
            second.send(partial(0, "late"))
            second.send(part(0, 1, b"late"))
            # The utterance is spoken on: another instance hears it from its beginning.
            second.send(partial(1, "Good", revision=0))
            second.send(result(2))
            second.send(partial(1, "late"))
            second.send(part(2, 0, b"c"))
            assert await told(session, 3) == ["1 Good", "1 = hola 2", "2 c"]

    run(scenario())


def test_numbers_that_a_store_lost_get_partials_again() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            caller.outcome(1)
            caller.outcome(2)
            assert await told(session, 2) == ["0 = hola 1", "1 = hola 2"]
            second = await second_connection(one, caller, epoch="e2", next_utterance_index=1)
            second.send(partial(0, "late"))
            second.send(partial(1, "again"))
            second.send(result(1, utterance_index=1, epoch="e2"))
            assert await told(session, 2) == ["1 again", "1 = hola 1"]

    run(scenario())


def test_a_new_session_has_partials_from_its_first_utterance() -> None:
    async def scenario() -> None:
        async with scripted_service() as one, opened(one) as (session, caller):
            caller.outcome(1)
            await next_of(session, Outcome)
            caller.cut()
            second = await one.caller()
            await second.expect(type(session._conversation.resume_message(None)))
            second.send(ResumeRejected(session_id="s1", reason="unknown"))
            await second.greet(session_id="s2", epoch="e2")
            await next_of(session, Reset)
            second.send(partial(0, "Hello", session_id="s2"))
            found = await next_of(session, Partial)
            assert (found.text, found.is_own) == ("Hello", True)

    run(scenario())
