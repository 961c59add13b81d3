"""One recognition for several languages: shared, bounded, not stopped by one cancelled job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from engine_node import run
from lingua_speech.engine import EngineError, Hint, Sound, Transcript
from lingua_speech.recognition import SharedRecognitions, key_of

pytestmark = pytest.mark.unit

OnPartial = Callable[[str], None]


class Recogniser:
    """Counts its calls, and answers when `may_answer` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.cancelled = 0
        self.may_answer = asyncio.Event()
        self.error: EngineError | None = None

    def __call__(self, on_partial: OnPartial) -> Awaitable[Transcript]:
        self.calls += 1
        return self._work(on_partial)

    async def _work(self, on_partial: OnPartial) -> Transcript:
        on_partial("so far")
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.error is not None:
            raise self.error
        return Transcript(text="all of it")


def test_several_at_once_are_one_recognition_and_all_hear_its_partials() -> None:
    async def scenario() -> None:
        times: list[None] = []
        shared, work = SharedRecognitions(on_shared=lambda: times.append(None)), Recogniser()
        told: list[str] = []
        waiting = [asyncio.create_task(shared.recognise(b"k", work, told.append)) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        work.may_answer.set()
        assert [heard.text for heard in await asyncio.gather(*waiting)] == ["all of it"] * 3
        assert (work.calls, len(times)) == (1, 2)
        assert set(told) == {"so far"}

    run(scenario())


def test_the_answer_is_kept_for_a_while_and_then_not() -> None:
    async def scenario() -> None:
        now = [0.0]
        shared, work = SharedRecognitions(age_s=5, clock=lambda: now[0]), Recogniser()
        work.may_answer.set()
        for at, calls in ((0.0, 1), (4.9, 1), (5.0, 2)):
            now[0] = at
            await shared.recognise(b"k", work)
            assert work.calls == calls

    run(scenario())


def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    async def scenario() -> None:
        shared, work = SharedRecognitions(), Recogniser()
        work.error = EngineError("PROCESSING_ERROR", "no")
        work.may_answer.set()
        ends = await asyncio.gather(
            *(shared.recognise(b"k", work) for _ in range(2)), return_exceptions=True
        )
        assert [type(end) for end in ends] == [EngineError, EngineError]
        assert work.calls == 1
        work.error = None
        assert (await shared.recognise(b"k", work)).text == "all of it"
        assert work.calls == 2

    run(scenario())


def test_one_who_gives_up_stops_nobody_and_the_last_one_stops_the_work() -> None:
    async def scenario() -> None:
        shared, work = SharedRecognitions(), Recogniser()
        one, other = (asyncio.create_task(shared.recognise(b"k", work)) for _ in range(2))
        await asyncio.sleep(0.01)
        one.cancel()
        await asyncio.wait([one])
        assert (one.cancelled(), work.cancelled) == (True, 0)
        other.cancel()
        await asyncio.wait([other])
        assert work.cancelled == 1
        work.may_answer.set()
        assert (await shared.recognise(b"k", work)).text == "all of it"
        assert work.calls == 2

    run(scenario())


def test_what_is_kept_is_bounded() -> None:
    async def scenario() -> None:
        shared, work = SharedRecognitions(entries_max=4), Recogniser()
        work.may_answer.set()
        for number in range(20):
            await shared.recognise(bytes([number]), work)
            assert len(shared) <= 4

    run(scenario())


def test_the_key_is_of_the_session_the_sound_and_the_hint() -> None:
    sound, hint = Sound(b"\1\2", 16_000), Hint(language="en")
    keys = {
        key_of("s", sound, hint),
        key_of("s", Sound(b"\1\2", 8_000), hint),
        key_of("s", Sound(b"\1\3", 16_000), hint),
        key_of("s", sound, Hint(language="es")),
        key_of("s", sound, Hint(language="en", context="before")),
        key_of("other", sound, hint),
    }
    assert len(keys) == 6
    assert key_of("s", Sound(b"\1\2", 16_000), Hint(language="en")) in keys
