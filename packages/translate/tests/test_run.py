"""Interpreting over a real scheduler with SDK nodes: the report, and the start of latencies."""

from __future__ import annotations

import asyncio
import math
from array import array
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edge.live_server import Stage, play, until
from lingua_client import Options, SessionRefused
from lingua_node import ExtraResult, Job, JobFailed, Node, Result
from lingua_translate import (
    InterpretationReport,
    Order,
    RecordingSource,
    Rendition,
    SourceFailed,
    TranslatedUtterance,
    interpret,
)
from lingua_wire.recording import Recording, UnreadableRecording, write_wav

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.store

RATE = 16_000
VOICE_MS, PAUSE_MS = 700, 600
WORK_S = 0.1
VOICED = {"segmentation__pause_ms": 3000, "segmentation__silence_ms": 400}


def speech(count: int) -> Recording:
    """Return so many loud parts, each followed by silence."""
    samples = range(RATE * VOICE_MS // 1000)
    voice = array("h", [round(9000 * math.sin(at / 6)) for at in samples]).tobytes()
    return Recording((voice + bytes(2 * RATE * PAUSE_MS // 1000)) * count, RATE)


async def translate(job: Job) -> Result:
    """Work for a known time; return the utterance in the text."""
    await job.partial(f"part of {job.utterance_index}")
    await asyncio.sleep(WORK_S)
    return Result(
        text_asr=f"said {job.utterance_index}",
        text_translated=f"{job.tgt_lang} {job.utterance_index}",
        tts_audio=bytes(3200),
        timings={"asr_ms": 60, "nmt_ms": 10, "tts_ms": 30, "total_ms": 100},
        extra=ExtraResult(language_probabilities={"en": 0.8, "es": 0.2}),
    )


@asynccontextmanager
async def node(
    stage: Stage, do: Callable[[Job], Awaitable[Result]] = translate, pairs: tuple[str, ...] = ()
) -> AsyncIterator[None]:
    url = f"{stage.server.url}/ws/node".replace("http", "ws", 1)
    one = Node(url, node_id="worker", pairs=pairs, reports_usage=False)
    one.job(do)  # type: ignore[arg-type]
    serving = asyncio.create_task(one.serve())
    nodes = stage.server.instance.nodes
    await until(lambda: any(known.status == "ready" for known in nodes.values()), "a node is ready")
    try:
        yield
    finally:
        one.stop()
        await serving


def order(stage: Stage, *targets: str, **fields: object) -> Order:
    url = f"{stage.server.url}/ws/session".replace("http", "ws", 1)
    known: dict[str, Any] = {"urls": (url,), "source": "en", "targets": targets or ("es",)}
    return Order(**(known | fields))


class Notes:
    """A listener that keeps every event."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def accepted(self, utterance: TranslatedUtterance) -> None:
        self.told.append(f"accepted {utterance.index}")

    def partial(self, utterance: TranslatedUtterance, text: str) -> None:
        self.told.append(f"partial {utterance.index} {text}")

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        self.told.append(f"rendered {utterance.index} {rendition.target} {rendition.text}")

    def noticed(self, what: str) -> None:
        self.told.append(what)


def test_each_utterance_is_reported_in_each_language_with_where_the_time_went() -> None:
    async def scenario(stage: Stage) -> None:
        notes = Notes()
        async with node(stage):
            source = RecordingSource(speech(2))
            report = await interpret(source, order(stage, "es", "fr"), notes)
        assert [said.text_asr for said in report.utterances] == ["said 0", "said 1"]
        assert [one.text for one in report.renditions] == ["es 0", "fr 0", "es 1", "fr 1"]
        for number, said in enumerate(report.utterances):
            voice_end = number * (VOICE_MS + PAUSE_MS) + VOICE_MS
            assert said.voice_end_ms == pytest.approx(voice_end, abs=30)
            assert said.end_ms > said.voice_end_ms
            for one in said.renditions.values():
                assert one.latency_ms is not None
                # The silence that ends it, and the work; anything else comes on top.
                assert one.latency_ms >= 400 + 1000 * WORK_S - 60
                assert one.timeline is not None
                assert one.stages_ms().keys() == {"asr", "mt", "tts", "scheduler"}
                assert (len(one.pcm), one.sample_rate) == (3200, RATE)
        assert report.coverage is not None
        assert report.coverage.failed_ms == 0
        assert report.failures == 0
        assert "partial 0 part of 0" in notes.told
        assert notes.told.index("accepted 0") < notes.told.index("rendered 0 es es 0")

    play(scenario, **VOICED)


def test_as_fast_as_it_is_taken_there_is_no_latency_to_speak_of() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            source = RecordingSource(speech(3), is_live=False)
            report = await interpret(source, order(stage, keeps_audio=False))
        assert [one.text for one in report.renditions] == ["es 0", "es 1", "es 2"]
        assert {(one.latency_ms, one.pcm) for one in report.renditions} == {(None, b"")}
        assert report.audio_ms == 3 * (VOICE_MS + PAUSE_MS)

    play(scenario, **VOICED)


def test_in_a_two_way_talk_the_languages_heard_are_reported() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            source = RecordingSource(speech(1), is_live=False)
            report = await interpret(source, order(stage, two_way=("en", "es")))
        (one,) = report.renditions
        assert one.languages == {"en": 0.8, "es": 0.2}
        assert one.target == "es"

    play(scenario, **VOICED)


def test_what_could_not_be_done_stands_in_its_place_with_the_reason() -> None:
    async def fail_first(job: Job) -> Result:
        if job.utterance_index == 0:
            raise JobFailed("MODEL_NOT_AVAILABLE", "no such voice")
        return await translate(job)

    async def scenario(stage: Stage) -> None:
        async with node(stage, fail_first):
            source = RecordingSource(speech(2), is_live=False)
            report = await interpret(source, order(stage))
        first, second = report.renditions
        assert first.reason
        assert first.has_failed
        assert second.text == "es 1"
        assert report.failures == 1
        assert report.coverage is not None
        assert report.coverage.failed_ms > 0

    play(scenario, **VOICED)


def test_silence_is_no_failure() -> None:
    async def hear_nothing(_: Job) -> Result:
        return Result.empty()

    async def scenario(stage: Stage) -> None:
        async with node(stage, hear_nothing):
            source = RecordingSource(speech(1), is_live=False)
            report = await interpret(source, order(stage))
        (one,) = report.renditions
        assert one.is_silent
        assert report.failures == 0

    play(scenario, **VOICED)


def test_when_it_is_stopped_what_was_said_is_still_answered() -> None:
    async def scenario(stage: Stage) -> None:
        stop = asyncio.Event()

        class StopsAtFirst(Notes):
            def accepted(self, utterance: TranslatedUtterance) -> None:
                stop.set()

        async with node(stage):
            report = await interpret(
                RecordingSource(speech(30)), order(stage), StopsAtFirst(), stop
            )
        assert 1 <= len(report.utterances) <= 2
        assert all(one.text for one in report.renditions)
        assert report.coverage is not None
        assert report.coverage.delivered_ms > 0

    play(scenario, **VOICED)


class Silent:
    """A microphone without speech."""

    sample_rate = RATE
    is_live = True

    async def chunks(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


class Broken(Silent):
    """A microphone that fails after the first words."""

    async def chunks(self) -> AsyncIterator[bytes]:
        yield speech(1).pcm
        raise SourceFailed("unplugged")


def test_it_can_be_stopped_while_the_source_says_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        report = await interpret(Silent(), order(stage), stop=stop)
        assert report.utterances == []
        assert report.failures == 0

    play(scenario)


def test_a_source_that_breaks_is_told_beside_what_was_said_before() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            report = await interpret(Broken(), order(stage))
        assert [one.text for one in report.renditions] == ["es 0"]
        assert isinstance(report.error, SourceFailed)
        assert report.failures == 1

    play(scenario, **VOICED)


class Faulty(Silent):
    """A source with an error that is not one of ours."""

    async def chunks(self) -> AsyncIterator[bytes]:
        yield speech(1).pcm
        raise ValueError("a bug in a driver")


def test_a_source_with_a_fault_nobody_foresaw_ends_the_run_with_that_error() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            with pytest.raises(ValueError, match="a bug in a driver"):
                await interpret(Faulty(), order(stage))

    play(scenario, **VOICED)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_may_be_given_by_its_name(kind: type[str] | type[Path], tmp_path: Path) -> None:
    write_wav(tmp_path / "talk.wav", speech(1).pcm, RATE)

    async def scenario(stage: Stage) -> None:
        async with node(stage):
            report = await interpret(kind(tmp_path / "talk.wav"), order(stage))
            assert [one.text for one in report.renditions] == ["es 0"]
            with pytest.raises(UnreadableRecording, match="No such file"):
                await interpret(kind(tmp_path / "nothing.wav"), order(stage))

    play(scenario, **VOICED)


def test_a_scheduler_that_dies_for_good_is_told_beside_what_was_said_before() -> None:
    async def scenario(stage: Stage) -> None:
        class EndsServer(Notes):
            def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
                ending.append(asyncio.create_task(stage.stop_server()))

        ending: list[asyncio.Task[None]] = []
        options = Options(open_s=1.5, resume_s=1.5)
        notes = EndsServer()
        serving = node(stage)
        await serving.__aenter__()
        try:
            report = await interpret(
                RecordingSource(speech(4)), order(stage, options=options), notes
            )
        finally:
            await serving.__aexit__(None, None, None)
        await asyncio.gather(*ending)
        assert report.renditions[0].text == "es 0"
        assert report.error is not None
        assert "the connection is lost; retrying" in notes.told
        await stage.start_server()

    play(scenario, **VOICED)


def test_a_language_that_is_none_is_refused_before_anything_is_said() -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(SessionRefused):
            await interpret(RecordingSource(speech(1)), order(stage, "not a language"))

    play(scenario)


def test_a_scheduler_that_dies_while_nothing_is_said_ends_it() -> None:
    class Waiting(Silent):
        async def chunks(self) -> AsyncIterator[bytes]:
            listening.set()
            async for chunk in super().chunks():
                yield chunk

    async def scenario(stage: Stage) -> None:
        options = Options(open_s=0.3, resume_s=0.3)
        running = asyncio.create_task(interpret(Waiting(), order(stage, options=options)))
        await listening.wait()
        await stage.stop_server()
        async with asyncio.timeout(20):
            report = await running
        assert report.error is not None
        await stage.start_server()

    listening = asyncio.Event()
    play(scenario)


def test_who_is_interrupted_has_what_came_until_then() -> None:
    async def scenario(stage: Stage) -> None:
        class QuitsAtFirst(Notes):
            def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
                interpreting.cancel()

        report = InterpretationReport()
        async with node(stage):
            interpreting = asyncio.create_task(
                interpret(RecordingSource(speech(30)), order(stage), QuitsAtFirst(), report=report)
            )
            with pytest.raises(asyncio.CancelledError):
                await interpreting
        assert [one.text for one in report.renditions] == ["es 0"]
        assert report.audio_ms > VOICE_MS

    play(scenario, **VOICED)


def test_a_report_that_keeps_no_audio_leaves_it_to_the_listeners() -> None:
    async def scenario(stage: Stage) -> None:
        class Hears(Notes):
            def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
                self.told.append(f"{len(rendition.pcm)} bytes")

        notes = Hears()
        async with node(stage):
            source = RecordingSource(speech(1), is_live=False)
            report = await interpret(source, order(stage, keeps_audio=False), notes)
        assert "3200 bytes" in notes.told
        assert [one.pcm for one in report.renditions] == [b""]

    play(scenario, **VOICED)
