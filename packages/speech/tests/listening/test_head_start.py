"""What was prepared for a job: used only if it is exactly what the job would do."""

from __future__ import annotations

import asyncio

import pytest

from engine_node import run
from lingua_speech.engine import Hint, Rendered, Transcript
from lingua_speech.listening import head_start as module
from lingua_speech.listening.ear import Ear
from lingua_speech.listening.head_start import HeadStart, Hearing, speech_key, translation_key
from listening.sounds import RATE, noise, voice

pytestmark = pytest.mark.unit

ENGLISH = Hint(language="en")


def ear_of(*parts: bytes) -> Ear:
    ear = Ear(RATE)
    ear.add(b"".join(parts))
    return ear


SPOKEN = ear_of(noise(200), voice(800), noise(500), voice(500))


async def heard(text: str) -> Transcript:
    return Transcript(text=text, language="en", translation="x")


async def fails() -> Transcript:
    raise ValueError


def hearing(upto_ms: int, text: str = "one", hint: Hint = ENGLISH) -> Hearing:
    made = Hearing(upto_ms, hint)
    made.start(heard(text))
    return made


async def done(upto_ms: int, text: str = "one", hint: Hint = ENGLISH) -> Hearing:
    made = hearing(upto_ms, text, hint)
    await made.task
    return made


def test_a_hearing_serves_a_job_with_the_same_voice() -> None:
    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        prepared.add(await done(600, "before"))
        prepared.add(await done(1200, "all"))
        for end_ms in (1100, 1200, 1450):
            found = await prepared.heard_upto(end_ms, ENGLISH)
            assert found is not None
            assert found.text == "all"
        assert await prepared.heard_upto(1700, ENGLISH) is None
        assert await prepared.heard_upto(900, ENGLISH) is None

    run(scenario())


@pytest.mark.parametrize(
    "hint",
    [
        Hint(language="es"),
        Hint(allowed=("en", "es")),
        Hint(language="en", continues=True),
        Hint(language="en", translate_to="es"),
    ],
)
def test_it_does_not_serve_a_job_that_would_be_recognised_otherwise(hint: Hint) -> None:
    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        prepared.add(await done(1200))
        assert await prepared.heard_upto(1200, hint) is None

    run(scenario())


def test_a_draft_serves_no_job() -> None:
    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        prepared.add(await done(1200, hint=Hint(language="en", is_draft=True)))
        assert await prepared.heard_upto(1200, ENGLISH) is None
        prepared.add(await done(1200, "two"))
        found = await prepared.heard_upto(1200, ENGLISH)
        assert found is not None
        assert found.text == "two"

    run(scenario())


def test_the_recognisers_translation_is_for_jobs_that_asked_for_it() -> None:
    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        both = Hint(language="en", translate_to="de")
        prepared.add(await done(1200, hint=both))
        found = await prepared.heard_upto(1200, ENGLISH)
        assert found is not None
        assert found.translation == ""
        found = await prepared.heard_upto(1200, both)
        assert found is not None
        assert found.translation == "x"

    run(scenario())


def test_where_the_ear_is_in_doubt_the_detector_of_the_node_decides() -> None:
    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        made = await done(1200)
        prepared.add(made)
        assert await prepared.heard_until(1010, ENGLISH) is None
        made.voice_end_ms = 1030
        assert await prepared.heard_until(1010, ENGLISH) is not None
        assert await prepared.heard_until(1510, ENGLISH) is None

    run(scenario())


def test_a_hearing_that_failed_was_cancelled_or_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HEARING_WAIT_S", 0.01)

    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        failed, cancelled, hanging = (Hearing(1200, ENGLISH) for _ in range(3))
        failed.start(fails())
        cancelled.start(heard("x"))
        cancelled.task.cancel()
        await asyncio.wait({failed.task, cancelled.task})
        for made in (failed, cancelled):
            prepared.add(made)
            assert not made.is_usable
        assert await prepared.heard_upto(1200, ENGLISH) is None
        hanging.start(asyncio.sleep(60, Transcript(text="late")))
        prepared.add(hanging)
        # No worker has begun with it.
        assert not hanging.is_usable
        hanging.voice_end_ms = 1010
        assert hanging.is_usable
        assert await prepared.heard_upto(1200, ENGLISH) is None
        # Its worker is needed.
        await asyncio.wait({hanging.task})
        assert hanging.task.cancelled()

    run(scenario())


def test_translations_and_speech_are_found_by_what_they_are_of() -> None:
    async def translate() -> Rendered:
        return Rendered("uno")

    async def speak() -> bytes:
        return b"ab"

    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        first = prepared.prepare(translation_key("one", "en", "es"), translate())
        assert prepared.prepare(translation_key("one", "en", "es"), translate()) is first
        prepared.prepare(speech_key("uno", "es"), speak())
        assert await prepared.translation("one", "en", "es") == Rendered("uno")
        assert await prepared.translation("one.", "en", "es") is None
        assert await prepared.translation("one", "en", "fr") is None
        assert await prepared.speech("uno", "es") == b"ab"
        assert await prepared.speech("dos", "es") is None

    run(scenario())


def test_what_is_kept_is_bounded() -> None:
    async def scenario() -> None:
        prepared = HeadStart(SPOKEN)
        for number in range(50):
            prepared.add(hearing(number))
            prepared.prepare(("speech", str(number)), heard(str(number)))
        assert len(prepared.hearings) == module.HEARINGS_MAX
        assert len(prepared._prepared) == module.PREPARED_MAX

    run(scenario())
