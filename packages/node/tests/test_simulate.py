"""The simulated work: repeatable, in the configured shares, and marked as simulated."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from lingua_node import Job, JobFailed, Result, Stream
from lingua_node.simulate import (
    FAIL_CODES,
    Simulation,
    audio_ms,
    heard_of,
    languages_of,
    parts_of,
    tone,
    transcript,
)
from lingua_wire.from_node import FromNode, JobAudioPart, NodeAsrPartial, StreamPartial
from lingua_wire.shared import PipelineConfig
from node_peer import job, run
from test_stream import opening

pytestmark = pytest.mark.unit

NO_WAIT = Simulation(delay_ms=0)


def given(sent: list[FromNode] | None = None, **fields: Any) -> Job:
    return Job(job(**fields), "n1", (sent if sent is not None else []).append)


def fate(task: asyncio.Task[Result]) -> str:
    """Return the outcome of a job: a code, `empty`, `silent` or `answer`."""
    if task.cancelled():
        return "silent"
    error = task.exception()
    if isinstance(error, JobFailed):
        return error.code
    return "answer" if task.result().text_asr else "empty"


async def outcomes(simulation: Simulation, count: int) -> list[str]:
    handle = simulation.handler()
    tasks = [asyncio.create_task(handle(given())) for _ in range(count)]
    # Without delays a job that ends at all ends within a few iterations of the loop.
    for _ in range(20):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return [fate(task) for task in tasks]


def test_the_text_follows_from_the_audio_and_says_that_it_is_simulated() -> None:
    async def scenario() -> None:
        one = given(audio=bytes(2 * 16_000 * 3))
        result = await NO_WAIT.handler()(one)
        assert audio_ms(one) == 3000
        assert result.text_asr == transcript(one)
        assert result.text_asr.startswith("simulated speech of 3000 ms: one two three")
        assert result.text_translated == f"[es] {result.text_asr}"
        assert transcript(given(audio=bytes(3200))) == "simulated speech of 100 ms: one"

    run(scenario())


def test_opus_is_guessed_by_its_size() -> None:
    assert audio_ms(given(audio=bytes(4000), audio_format="opus")) == 1000


def test_only_the_stages_asked_for_give_something() -> None:
    async def scenario() -> None:
        only_asr = PipelineConfig(use_asr=True, use_nmt=False, use_tts=False)
        result = await NO_WAIT.handler()(given(pipeline=only_asr))
        assert result.text_asr
        assert (result.text_translated, result.tts_audio) == ("", b"")
        spoken = await NO_WAIT.handler()(given())
        assert (spoken.tts_audio, spoken.tts_format) == (tone(), "pcm16")

    run(scenario())


def test_the_tone_is_short_and_audible() -> None:
    samples = memoryview(tone()).cast("h")
    assert len(samples) == 1600
    assert max(samples) == 8000
    assert min(samples) == -8000


@pytest.mark.parametrize(("ms", "target"), [(800, "en"), (400, "zh")])
def test_with_two_ways_the_text_goes_to_the_language_not_spoken(ms: int, target: str) -> None:
    async def scenario() -> None:
        one = given(
            src_lang="auto",
            tgt_lang="en",
            mode="two_way_auto",
            lang_a="zh",
            lang_b="en",
            audio=bytes(32 * ms),
        )
        result = await NO_WAIT.handler()(one)
        assert languages_of(one)[1] == target
        assert result.text_translated.startswith(f"[{target}] ")
        assert result.extra is not None
        assert result.extra.language_probabilities == {languages_of(one)[0]: 1.0}

    run(scenario())


def test_echo_does_nothing_but_name_the_utterance() -> None:
    async def scenario() -> None:
        result = await Simulation(echo=True, fail_percent=100).handler()(given(utterance_index=7))
        assert result == Result(text_asr="utterance 7", text_translated="[es] utterance 7")

    run(scenario())


def test_partials_grow_towards_the_text() -> None:
    async def scenario() -> None:
        sent: list[FromNode] = []
        result = await Simulation(delay_ms=1, partials=3).handler()(given(sent))
        texts = [message.text for message in sent if isinstance(message, NodeAsrPartial)]
        assert len(texts) == 3
        assert sorted(set(texts), key=len) == texts
        assert all(result.text_asr.startswith(text) for text in texts)

    run(scenario())


def test_the_delay_with_its_jitter_is_reported_in_the_timings() -> None:
    async def scenario() -> None:
        handle = Simulation(delay_ms=1, jitter_ms=4).handler()
        results = await asyncio.gather(*(handle(given()) for _ in range(50)))
        totals = [result.timings["total_ms"] for result in results if result.timings]
        assert len(set(totals)) == 50
        assert min(totals) >= 1
        assert max(totals) <= 5

    run(scenario())


def test_failures_silence_and_emptiness_come_in_the_shares_asked_for() -> None:
    async def scenario() -> None:
        simulation = Simulation(
            delay_ms=0, fail_percent=30, silent_percent=20, empty_percent=10, seed=3
        )
        counts = Counter(await outcomes(simulation, 1000))
        failed = sum(counts[code] for code in FAIL_CODES)
        assert 250 < failed < 350
        assert max(counts[code] for code in FAIL_CODES) - failed // 3 <= 1
        assert 150 < counts["silent"] < 250
        assert 60 < counts["empty"] < 140

    run(scenario())


def test_the_same_seed_gives_the_same_fates_and_another_seed_others() -> None:
    async def scenario() -> None:
        def simulation(seed: int) -> Simulation:
            return Simulation(delay_ms=0, fail_percent=50, seed=seed)

        first = await outcomes(simulation(1), 50)
        assert first == await outcomes(simulation(1), 50)
        assert first != await outcomes(simulation(2), 50)

    run(scenario())


def test_chosen_codes_come_by_turns_and_a_missing_model_names_its_service() -> None:
    async def scenario() -> None:
        codes = ("NMT_TIMEOUT", "MODEL_NOT_AVAILABLE")
        handle = Simulation(delay_ms=0, fail_percent=100, fail_codes=codes).handler()
        failures = []
        for _ in range(4):
            with pytest.raises(JobFailed) as failed:
                await handle(given())
            failures.append((failed.value.code, failed.value.details))
        assert failures == [("NMT_TIMEOUT", None), (codes[1], {"service_id": "nmt"})] * 2

    run(scenario())


async def streamed(simulation: Simulation, seconds: float) -> list[StreamPartial]:
    """Return the partials of a stream of this length, in pieces of 200 ms."""
    sent: list[FromNode] = []
    stream = Stream(opening(tgt_langs=("es", "fr")), sent.append)
    task = asyncio.create_task(simulation.stream_handler()(stream))
    for _ in range(round(seconds / 0.2)):
        stream.add(bytes(6400))
        for _ in range(3):
            await asyncio.sleep(0)
    stream.cut(None)
    await task
    return [message for message in sent if isinstance(message, StreamPartial)]


def test_a_stream_gets_a_word_for_so_much_audio() -> None:
    async def scenario() -> None:
        partials = await streamed(NO_WAIT, 1.2)
        assert [(one.stable, one.unstable, one.upto_ms) for one in partials] == [
            ("", "one", 400),
            ("one", "two", 800),
            ("one two", "three", 1200),
        ]
        assert [one.tgt_lang for one in partials[-1].translations] == ["es", "fr"]
        assert partials[-1].translations[0].stable == "[es] one two"
        assert {(one.sentence_end_ms, one.is_complete) for one in partials} == {(None, None)}
        assert partials == await streamed(NO_WAIT, 1.2)
        assert await streamed(Simulation(echo=True), 1.2) == []

    run(scenario())


def test_sentences_of_a_stream_are_hinted_at_once_they_are_stable() -> None:
    assert [heard_of(count, 2) for count in (1, 2, 3, 5)] == [
        ("", "one", None, False),
        ("one", "two.", None, True),
        ("one two.", "three", 800, False),
        ("one two. three four.", "five", 1600, False),
    ]


def test_a_job_whose_stream_was_heard_may_take_less_time() -> None:
    async def scenario() -> None:
        handle = Simulation(delay_ms=60_000, streamed_delay_ms=0).handler()
        heard = Job(job(), "n1", lambda _: None, Stream(opening(), lambda _: None))
        assert (await handle(heard)).timings == dict.fromkeys(
            ("asr_ms", "nmt_ms", "tts_ms", "total_ms"), 0
        )

    run(scenario())


def test_speech_comes_in_parts_if_they_are_wanted() -> None:
    async def scenario() -> None:
        sent: list[FromNode] = []
        simulation = Simulation(delay_ms=0, audio_parts=3)
        result = await simulation.handler()(given(sent, tts_parts=True))
        parts = [message.audio for message in sent if isinstance(message, JobAudioPart)]
        assert len(parts) == 3
        assert b"".join(parts) == result.tts_audio == tone()
        assert parts_of(b"abcdef", 2) == [b"abcd", b"ef"]
        assert parts_of(b"abcdef", 0) == []

    run(scenario())
