"""Listening with test engines in real worker processes: captions, head starts, failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine_node import JobSource, assembled, done, hints, is_met, metric, run, until
from lingua_node import Job, Stream
from lingua_speech.assembly import Assembly
from lingua_speech.listening import listener as module
from lingua_wire.from_node import FromNode, JobAudioPart, StreamPartial
from lingua_wire.shared import PipelineConfig, Term
from lingua_wire.to_node import StreamOpen

pytestmark = pytest.mark.stress

WORD_BYTES = 32 * 400
PIECE_BYTES = 32 * 200
QUIET = bytes(32 * 200)
ALL = PipelineConfig(use_asr=True, use_nmt=True, use_tts=True)


@pytest.fixture(autouse=True)
def engines(stage_engines: None) -> None:
    """Install the test engines."""


def slowly(text: str) -> bytes:
    """Return audio that contains a text, 400 ms for each word."""
    return b"".join(word.encode().ljust(WORD_BYTES) for word in text.split())


class Speaker:
    """Speaks into the listener of a node and collects its partials."""

    def __init__(self, assembly: Assembly, **fields: Any) -> None:
        self.sent: list[FromNode] = []
        filled: dict[str, Any] = {
            "stream_id": "st1",
            "session_id": "s1",
            "src_lang": "en",
            "tgt_langs": ("es",),
            "pipeline": ALL,
            "audio_format": "pcm16",
            "sample_rate": 16_000,
            "trace_id": "t1",
            **fields,
        }
        self.stream = Stream(StreamOpen(**filled), self.sent.append)
        self.task = asyncio.create_task(assembly.listener().listen(self.stream))
        self.assembly = assembly

    def partials(self) -> list[StreamPartial]:
        return [one for one in self.sent if isinstance(one, StreamPartial)]

    async def say(self, audio: bytes, *, reports: int = 0) -> None:
        """Add audio piece by piece, then wait for so many partials in all."""
        for at in range(0, len(audio), PIECE_BYTES):
            self.stream.add(audio[at : at + PIECE_BYTES])
            await asyncio.sleep(0)
        await until(lambda: len(self.partials()) >= reports, "a partial")

    def job(self, source: JobSource | None = None, **fields: Any) -> Job:
        made = (source or JobSource()).job(audio=self.stream.audio, **fields)
        made.stream = self.stream
        return made

    async def prepared(self) -> None:
        """Wait until a translation and its speech are prepared."""

        def is_prepared() -> bool:
            tasks = self.stream.head_start._prepared.values()
            return len(tasks) >= 2 and all(task.done() for task in tasks)

        await until(is_prepared, "what the job needs")


def test_the_text_so_far_is_reported_and_becomes_stable() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            said = "good morning every body the meeting"
            for count, word in enumerate(said.split()):
                await speaker.say(slowly(word), reports=max(0, count - 1))
            partials = speaker.partials()
            assert [one.revision for one in partials] == list(range(1, len(partials) + 1))
            assert partials[0].stable == ""
            assert all(said.startswith(f"{one.stable} {one.unstable}".strip()) for one in partials)
            last = partials[-1]
            assert last.stable.startswith("good morning")
            assert (last.src_lang, last.is_complete) == ("en", None)
            into = last.translations[0]
            assert into.tgt_lang == "es"
            assert f"{into.stable} {into.unstable}".strip().startswith("en in es: good morning")
            speaker.stream.cut(None)
            await speaker.task
            assert metric(node, "streams_total", outcome="ended") == 1

    run(scenario())


def test_a_pass_at_the_pause_is_all_that_the_job_needs(tmp_path: Path) -> None:
    async def scenario() -> None:
        heard, translated = tmp_path / "asr", tmp_path / "mt"
        engines = (
            f"asr=scribe:log={heard}",
            "vad=gate",
            f"mt=marker:log={translated}",
            "tts=tones",
        )
        async with assembled(*engines) as node:
            speaker = Speaker(node)
            await speaker.say(slowly("good morning every body") + QUIET, reports=1)
            await speaker.prepared()
            assert speaker.partials()[-1].is_complete is None
            speaker.stream.add(QUIET)
            speaker.stream.cut(None)
            await speaker.task
            before = (len(hints(heard)), translated.read_bytes())
            result = await done(node, speaker.job())
            assert result.text_asr == "good morning every body"
            assert result.text_translated == "en in es: good morning every body"
            assert (len(hints(heard)), translated.read_bytes()) == before
            assert metric(node, "head_starts_total", outcome="used") == 1
            # And it is what a job without the stream gives.
            plain = await done(node, JobSource().job(audio=speaker.stream.audio, session_id="s2"))
            assert plain.text_translated == result.text_translated
            assert plain.tts_audio == result.tts_audio

    run(scenario())


def test_stable_words_are_not_searched_again_except_for_the_job(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        async with assembled(f"asr=scribe:log={log}", "vad=gate", "mt=marker") as node:
            speaker = Speaker(
                node, pipeline=PipelineConfig(use_asr=True, use_nmt=True, use_tts=False)
            )
            pairs = ("good morning", "every body", "the meeting", "begins at", "ten today")
            pairs += ("with our", "first talk")
            # A pass for each pair: the last has heard all of it, but only the end was searched.
            for count, pair in enumerate(pairs, 1):
                await speaker.say(slowly(pair), reports=count)
            said, passes = " ".join(pairs), hints(log)
            assert all(one.is_draft for one in passes)
            assert passes[0].known == ""
            assert passes[-1].known.startswith("good morning every")
            # The last stable words are: what follows them tells where a sentence ended.
            stable = speaker.partials()[len(passes) - 2].stable.split()
            assert passes[-1].known.split() == stable[: -module.SEARCHED_AGAIN]
            speaker.stream.add(QUIET)
            await until(lambda: not hints(log)[-1].is_draft, "a whole pass at the pause")
            await until(speaker.stream.head_start.hearings[-1].task.done, "its end")
            speaker.stream.cut(None)
            await speaker.task
            before = len(hints(log))
            result = await done(node, speaker.job(pipeline=speaker.stream.open.pipeline))
            assert result.text_asr == said
            assert len(hints(log)) == before

    run(scenario())


def test_a_job_waits_for_the_pass_that_is_under_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        async with assembled(f"asr=scribe:log={log},word_s=0.1", "vad=gate", "mt=marker") as node:
            speaker = Speaker(
                node, pipeline=PipelineConfig(use_asr=True, use_nmt=True, use_tts=False)
            )
            speaker.stream.add(slowly("one two three") + QUIET)
            await until(log.exists, "the pass")
            assert speaker.stream.head_start.hearings[0].is_usable
            speaker.stream.cut(None)
            result = await done(node, speaker.job(pipeline=speaker.stream.open.pipeline))
            assert result.text_asr == "one two three"
            assert len(hints(log)) == 1

    run(scenario())


def test_voice_after_the_last_pass_makes_the_job_do_the_usual_work(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("good morning") + QUIET, reports=1)
            speaker.stream.add(slowly("friends") + QUIET)
            speaker.stream.cut(None)
            result = await done(node, speaker.job())
            assert result.text_asr == "good morning friends"

    run(scenario())


def test_a_slice_of_longer_speech_is_recognised_as_usual() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("good morning") + QUIET, reports=1)
            speaker.stream.cut(None)
            job = speaker.job(turn_id="t", is_max_duration_triggered=True)
            assert (await done(node, job)).text_asr == "good morning"
            assert metric(node, "head_starts_total", outcome="used") == 0

    run(scenario())


def test_another_glossary_makes_the_prepared_translation_useless() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("good morning") + QUIET, reports=1)
            speaker.stream.cut(None)
            terms = (Term(term="morning", translations={"es": "mañana"}),)
            result = await done(node, speaker.job(glossary=terms))
            assert result.text_translated == "en in es: good mañana"
            assert metric(node, "head_starts_total", outcome="used") == 1

    run(scenario())


def test_the_end_of_a_sentence_is_hinted_and_its_job_is_prepared() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("we begin at ten."), reports=1)
            await speaker.say(QUIET + slowly("there is a"), reports=2)
            await speaker.say(slowly("lot to"), reports=3)
            await until(lambda: speaker.partials()[-1].sentence_end_ms, "the hint")
            (end_ms,) = {one.sentence_end_ms for one in speaker.partials()} - {None}
            assert 1600 <= end_ms <= 1800
            heard_ms = [one.upto_ms for one in speaker.stream.head_start.hearings]
            assert heard_ms.count(end_ms) == 1
            speaker.stream.cut(32 * end_ms)
            job = JobSource().job(audio=speaker.stream.audio[: 32 * end_ms])
            job.stream = speaker.stream
            assert (await done(node, job)).text_asr == "we begin at ten."
            assert metric(node, "head_starts_total", outcome="used") == 1

    run(scenario())


def test_a_job_stops_a_pass_for_captions(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        async with assembled(f"asr=scribe:log={log}", "mt=marker", "tts=tones") as node:
            speaker = Speaker(node)
            await speaker.say(slowly("asr!slow!once!met and more"))
            await until(is_met, "the slow pass")
            result = await done(node, JobSource().job("urgent", session_id="s2"))
            assert result.text_asr == "urgent"
            await until(
                lambda: metric(node, "stream_passes_total", outcome="preempted") == 1, "the stop"
            )
            speaker.stream.cut(None)
            await speaker.task

    run(scenario())


def test_a_pause_stops_a_pass_that_has_not_all_of_the_voice() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("asr!slow!once!met and"))
            await until(is_met, "the slow pass")
            await speaker.say(slowly("more") + QUIET, reports=1)
            assert metric(node, "stream_passes_total", outcome="abandoned") == 1
            assert speaker.partials()[0].unstable.endswith("and more")
            speaker.stream.cut(None)
            await speaker.task

    run(scenario())


@pytest.mark.parametrize("deed", ["kill", "fail"])
def test_a_pass_that_fails_ends_the_stream_and_no_job(deed: str) -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly(f"asr!{deed}!once!{deed}ed good morning"))
            await speaker.task
            assert metric(node, "streams_total", outcome="failed") == 1
            speaker.stream.cut(None)
            result = await done(node, speaker.job())
            assert result.text_asr.endswith("good morning")
            assert metric(node, "second_tries_total", stage="asr") == 0

    run(scenario())


def test_after_a_failed_pass_nobody_is_listened_to_for_a_while() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            listener = node.listener()
            for name in ("a", "b"):
                speaker = Speaker(node, stream_id=name)
                speaker.task.cancel()
                speaker.task = asyncio.create_task(listener.listen(speaker.stream))
                speaker.stream.add(slowly("asr!fail!once!rest good morning") + QUIET)
                await speaker.task
            assert metric(node, "streams_total", outcome="failed") == 2
            assert metric(node, "stream_passes_total", outcome="failed") == 1

    run(scenario())


def test_a_dropped_stream_leaves_the_worker_to_others() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("asr!slow!once!met good morning"))
            await until(is_met, "the slow pass")
            speaker.task.cancel()
            await asyncio.wait({speaker.task})
            result = await done(node, JobSource().job("others", session_id="s2"))
            assert result.text_asr == "others"
            assert metric(node, "streams_total", outcome="dropped") == 1
            assert metric(node, "worker_restarts_total", stage="asr") == 0

    run(scenario())


def test_slow_passes_end_listening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOW_S", 0.0)

    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node)
            await speaker.say(slowly("good morning"), reports=1)
            await speaker.say(slowly("every body"))
            await speaker.task
            assert metric(node, "streams_total", outcome="shed") == 1

    run(scenario())


@pytest.mark.parametrize(("wanted", "least"), [(None, 600), (100, 600), (1000, 600), (1500, 1500)])
def test_whoever_wants_fewer_captions_gets_fewer(wanted: int | None, least: int) -> None:
    assert module._least_ms(wanted) == least


def test_passes_become_rarer_when_they_take_long() -> None:
    pace = module.Pace(700)
    pace.note(0.2, 700)
    assert pace.every_ms == 700
    pace.note(1.0, 700)
    assert pace.every_ms == 2000
    assert pace.slow == 0
    pace.note(3.0, 700)
    assert pace.slow == 1


def test_a_language_that_is_not_served_is_left_out_and_without_any_the_node_gives_up() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node, tgt_langs=("fr", "es"))
            await speaker.say(slowly("good morning"), reports=1)
            assert [one.tgt_lang for one in speaker.partials()[0].translations] == ["es"]
            speaker.stream.cut(None)
            await speaker.task
            unserved = Speaker(node, tgt_langs=("fr",))
            await unserved.task
            assert not unserved.partials()

    run(scenario())


def test_the_language_is_detected_if_it_is_not_known() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            speaker = Speaker(node, mode="two_way_auto", lang_a="en", lang_b="es", src_lang="auto")
            await speaker.say(slowly("<es>hola a todos") + QUIET, reports=1)
            *_, partial = speaker.partials()
            assert partial.src_lang == "es"
            assert [one.tgt_lang for one in partial.translations] == ["en"]
            speaker.stream.cut(None)
            job = speaker.job(mode="two_way_auto", lang_a="en", lang_b="es", src_lang="auto")
            assert (await done(node, job)).text_translated == "es in en: hola a todos"
            assert metric(node, "head_starts_total", outcome="used") == 1

    run(scenario())


def test_speech_is_sent_sentence_by_sentence_to_those_who_want_parts() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            source = JobSource()
            job = source.job("We begin. There is a lot.", tts_parts=True)
            result = await done(node, job)
            parts = [one.audio for one in source.sent if isinstance(one, JobAudioPart)]
            assert len(parts) == 2
            assert b"".join(parts) == result.tts_audio

    run(scenario())
