"""The pipeline with test engines in real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from engine_node import (
    JobSource,
    as_flac,
    assembled,
    done,
    hints,
    is_met,
    metric,
    run,
    spoken,
    until,
)
from engines.tiny_models import kokoro
from lingua_node import JobFailed, Result
from lingua_speech.abilities import LoadedEngine
from lingua_speech.host import WorkerPool, WorkerPoolRules, messages
from lingua_speech.metrics import NodeMetrics
from lingua_speech.pipeline_stage import PipelineStage
from lingua_speech.plugins import Spec
from lingua_wire.codes import RETRYABLE_NODE_ERRORS
from lingua_wire.shared import PipelineConfig, Term

pytestmark = pytest.mark.stress

TEXT_ONLY = PipelineConfig(use_asr=True, use_nmt=True, use_tts=False)
# The beginning of a WebM file.
EBML = b"\x1a\x45\xdf\xa3" + bytes(60)
HEARD_ONLY = PipelineConfig(use_asr=True, use_nmt=False, use_tts=False)


@pytest.fixture(autouse=True)
def engines(stage_engines: None) -> None:
    """Install the test engines."""


def test_a_job_is_heard_translated_and_spoken_with_the_time_of_each_stage() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            source = JobSource()
            result = await done(node, source.job("good morning"))
            assert result.text_asr == "good morning"
            assert result.text_translated == "en in es: good morning"
            assert len(result.tts_audio) == len(result.text_translated) * 20 * 32
            assert result.tts_format == "pcm16"
            assert result.quality_score == 0.75
            timings = dict(result.timings or {})
            assert set(timings) == {"asr_ms", "nmt_ms", "tts_ms", "total_ms"}
            assert timings["total_ms"] >= timings["asr_ms"] + timings["nmt_ms"]
            assert metric(node, "jobs_total", outcome="done") == 1
            assert metric(node, "engine_seconds_count", role="asr") == 1

    run(scenario())


def test_only_the_stages_that_are_wanted_are_run(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "mt"
        async with assembled("asr=scribe", f"mt=marker:log={log}", "tts=tones") as node:
            result = await done(node, JobSource().job(pipeline=TEXT_ONLY))
            assert (bool(result.text_translated), result.tts_audio) == (True, b"")
            assert set(result.timings or ()) == {"asr_ms", "nmt_ms", "total_ms"}
            log.unlink()
            result = await done(node, JobSource().job(pipeline=HEARD_ONLY, session_id="s2"))
            assert (result.text_asr, result.text_translated) == ("hello", "")
            # The same language needs no translation, even if one is requested.
            result = await done(node, JobSource().job(tgt_lang="en-us", session_id="s3"))
            assert (result.text_translated, bool(result.tts_audio)) == ("hello", True)
            assert not log.exists()

    run(scenario())


def test_silence_and_no_audio_end_as_nothing_said() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            for audio in (b"", bytes(32_000)):
                result = await done(node, JobSource().job(audio=audio))
                assert result.extra is not None
                assert (result.extra.reason, result.text_asr) == ("ASR_EMPTY", "")
                assert "total_ms" in (result.timings or {})
            assert metric(node, "jobs_total", outcome="silent") == 2

    run(scenario())


def test_audio_that_cannot_be_read_and_languages_not_served_fail_for_good_or_elsewhere() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            for audio in (spoken("hello"), b"fLaC" + bytes(100)):
                with pytest.raises(JobFailed) as opus:
                    await done(node, JobSource().job(audio_format="opus", audio=audio))
                assert opus.value.code == "UNSUPPORTED_FEATURE"
                assert opus.value.code not in RETRYABLE_NODE_ERRORS
            # Larger than a frame; it is as large for every node.
            with pytest.raises(JobFailed) as huge:
                await done(node, JobSource().job(audio=b"\1" * (messages.FRAME_BYTES_MAX + 2)))
            assert huge.value.code not in RETRYABLE_NODE_ERRORS
            for fields in ({"tgt_lang": "fr"}, {"src_lang": "de"}, {"src_lang": "fr"}):
                with pytest.raises(JobFailed) as other:
                    await done(node, JobSource().job(**fields))
                assert other.value.code == "MODEL_NOT_AVAILABLE"
                # The services of this node work and must stay available for other jobs.
                assert other.value.details is None

    run(scenario())


def test_audio_that_says_what_it_is_is_decoded_in_the_recognisers_process() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            file = as_flac(spoken("good morning", 1000))
            result = await done(node, JobSource().job(audio_format="opus", audio=file))
            assert result.text_asr == "good morning"
            assert metric(node, "engine_seconds_count", role="file") == 1
            # The decoded length counts, not the number of bytes.
            assert metric(node, "audio_seconds_total") == 1.0
            assert (
                await done(node, JobSource().job(audio_format="opus", audio=b""))
            ).text_asr == ""

    run(scenario())


def test_a_decoder_that_another_node_may_have_is_missed_without_blaming_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with assembled() as node:
            with pytest.raises(JobFailed) as failed:
                await done(node, JobSource().job(audio_format="opus", audio=EBML))
            assert (failed.value.code, failed.value.details) == ("MODEL_NOT_AVAILABLE", None)
            assert "ffmpeg" in failed.value.message

    monkeypatch.setenv("PATH", str(tmp_path))
    run(scenario())


@pytest.mark.parametrize("word", ["asr!slow!once!met", "tts!slow!once!met"])
def test_a_job_ends_before_the_scheduler_gives_it_up_and_costs_no_worker(word: str) -> None:
    async def scenario() -> None:
        async with assembled(attempt_s=5) as node:
            before = {name: pool.pids for name, pool in node.pools.items()}
            with pytest.raises(JobFailed) as late:
                await done(node, JobSource().job(word))
            assert late.value.code == "JOB_TIMEOUT"
            assert late.value.code in RETRYABLE_NODE_ERRORS
            assert (await done(node, JobSource().job("next"))).text_asr == "next"
            assert {name: pool.pids for name, pool in node.pools.items()} == before
            assert metric(node, "jobs_total", outcome="JOB_TIMEOUT") == 1

    run(scenario())


@pytest.mark.parametrize(("deadline_ms", "within_s"), [(5000, 3), (1000, 0.5)])
def test_a_job_ends_by_what_the_scheduler_says_whatever_the_engines_file_has(
    deadline_ms: int, within_s: float
) -> None:
    async def scenario() -> None:
        async with assembled(attempt_s=3600) as node:
            with pytest.raises(JobFailed) as late:
                await done(node, JobSource().job("asr!slow!once!told", deadline_ms=deadline_ms))
            assert late.value.code == "JOB_TIMEOUT"
            words = late.value.message.split()
            # Some of the time passed before the work began.
            assert within_s / 2 < float(words[-2]) <= within_s

    run(scenario())


def test_more_speech_than_a_message_may_hold_is_left_out_and_the_text_is_told() -> None:
    async def scenario() -> None:
        async with assembled("asr=scribe", "mt=marker", "tts=echo") as node:
            result = await done(node, JobSource().job(" ".join(f"word{n}" for n in range(2000))))
            assert (result.tts_audio, result.reason_codes) == (b"", ("too_long_to_speak",))
            assert result.text_translated.startswith("en in es: word0 word1")

    run(scenario())


def test_a_language_without_a_voice_is_not_spoken_here() -> None:
    async def scenario() -> None:
        async with assembled("asr=scribe", "mt=marker", "tts=tones:languages=en") as node:
            with pytest.raises(JobFailed) as failed:
                await done(node, JobSource().job())
            assert failed.value.code == "MODEL_NOT_AVAILABLE"
            result = await done(node, JobSource().job(pipeline=TEXT_ONLY))
            assert result.text_translated == "en in es: hello"

    run(scenario())


def test_two_ways_go_into_whichever_language_was_not_spoken() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            both = {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "en", "lang_b": "es"}
            for language, other in (("en", "es"), ("es", "en")):
                result = await done(node, JobSource().job(f"<{language}>words", **both))
                assert result.text_asr == "words"
                assert result.text_translated == f"{language} in {other}: words"
                assert result.extra is not None
                assert result.extra.language_probabilities == {language: 0.9}

    run(scenario())


def test_languages_of_a_country_are_known_again_as_who_hears_them_names_them() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            both = {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "en-us", "lang_b": "es"}
            result = await done(node, JobSource().job("<en>words", **both))
            assert result.text_translated == "en in es: words"
            listed = {"src_lang": "auto", "auto_langs": ("en-gb", "es-mx")}
            result = await done(node, JobSource().job("<es>palabras", tgt_lang="en-us", **listed))
            assert result.text_translated == "es in en: palabras"

    run(scenario())


def test_an_unknown_language_is_found_out_among_those_that_can_be_translated(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        scribe = f"asr=scribe:languages=en+es+fr,log={log}"
        async with assembled(scribe, "mt=marker:pairs=en>es+fr>es", "tts=tones") as node:
            await done(node, JobSource().job("<fr>mots", src_lang="auto"))
            listed = {"src_lang": "auto", "auto_langs": ("en", "de")}
            await done(node, JobSource().job("<en>words", session_id="s2", **listed))
            told = hints(log)
        # Spanish into Spanish is served, too; German is not, so only English remains.
        assert (told[0].language, set(told[0].allowed)) == ("", {"en", "es", "fr"})
        assert (told[1].language, told[1].allowed) == ("en", ())

    run(scenario())


def test_a_recogniser_that_cannot_tell_languages_is_helped_by_one_who_reads() -> None:
    async def scenario() -> None:
        auto = {"src_lang": "auto", "auto_langs": ("en", "es"), "tgt_lang": "es"}
        async with assembled("asr=scribe:deaf=1", "mt=marker", "tts=tones", "lid=letters") as node:
            result = await done(node, JobSource().job("some", **auto))
            assert result.text_translated == "some"
            result = await done(node, JobSource().job("other", **auto))
            assert result.text_translated == "en in es: other"
            assert result.extra is not None
            assert result.extra.language_probabilities == {"en": 0.8}
        async with assembled("asr=scribe:deaf=1", "mt=marker", "tts=tones") as node:
            with pytest.raises(JobFailed) as failed:
                await done(node, JobSource().job("some", **auto))
            assert failed.value.code not in RETRYABLE_NODE_ERRORS

    run(scenario())


def test_a_direction_nobody_translates_is_left_to_the_recogniser(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        scribe = f"asr=scribe:languages=en+es+fr,itself=fr>en+es>en,log={log}"
        async with assembled(scribe, "mt=marker", "tts=tones") as node:
            result = await done(node, JobSource().job("mots", src_lang="fr", tgt_lang="en"))
            assert result.text_translated == "en by scribe: mots"
            # Not if there is a translator for the direction.
            result = await done(node, JobSource().job("<es>voces", src_lang="es", tgt_lang="en"))
            assert result.text_translated == "es in en: voces"
            # If the language must be detected first, the recogniser is called twice.
            auto = {"src_lang": "auto", "auto_langs": ("fr", "es"), "tgt_lang": "en"}
            result = await done(node, JobSource().job("<fr>autres", **auto))
            assert result.text_translated == "en by scribe: autres"
            assert [hint.translate_to for hint in hints(log)] == ["en", "", "", "en"]

    run(scenario())


def test_one_recognition_serves_all_languages_of_an_utterance(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        marker = "mt=marker:pairs=en>es+en>fr+en>de"
        async with assembled(
            f"asr=scribe:log={log}", marker, "tts=tones:languages=es+fr+de"
        ) as node:
            jobs = [JobSource().job(job_id=code, tgt_lang=code) for code in ("es", "fr", "de")]
            results = await asyncio.gather(*(done(node, job) for job in jobs))
            assert {result.text_translated for result in results} == {
                "en in es: hello",
                "en in fr: hello",
                "en in de: hello",
            }
            # The same words in another session are not shared.
            await done(node, JobSource().job(session_id="s2"))
            assert len(hints(log)) == 2
            assert metric(node, "recognitions_shared_total") == 2

    run(scenario())


def test_partials_are_told_as_often_as_wanted_and_the_whole_at_the_end() -> None:
    async def scenario() -> None:
        async with assembled("asr=scribe:word_s=0.15", "mt=marker", "tts=tones") as node:
            text = "one two three four five"
            source = JobSource()
            await done(node, source.job(text, partial_update_interval_ms=1))
            *parts, whole = source.partials()
            assert whole == (text, True)
            assert len(parts) >= 2
            assert all(text.startswith(part) and not is_final for part, is_final in parts)
            seldom = JobSource()
            job = seldom.job(text, session_id="s2", partial_update_interval_ms=60_000)
            await done(node, job)
            assert [is_final for _, is_final in seldom.partials()] == [False, True]
            never = JobSource()
            await done(node, never.job(text, session_id="s3", enable_streaming_asr=False))
            assert never.partials() == []

    run(scenario())


def test_a_cancelled_job_stops_its_engine_and_the_worker_goes_on() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            before = node.pools["asr"].pids
            job = asyncio.create_task(done(node, JobSource().job("asr!slow!once!met")))
            await until(is_met, "the engine works")
            job.cancel()
            await asyncio.wait([job])
            assert job.cancelled()
            began = time.monotonic()
            assert (await done(node, JobSource().job("next"))).text_asr == "next"
            assert time.monotonic() - began < 30
            assert node.pools["asr"].pids == before
            assert metric(node, "jobs_total", outcome="cancelled") == 1

    run(scenario())


def test_slices_of_a_turn_are_recognised_in_order_knowing_the_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        async with assembled(f"asr=scribe:word_s=0.05,log={log}", "mt=marker", "tts=tones") as node:
            slices = [
                JobSource().job(
                    words,
                    job_id=f"j{at}",
                    utterance_index=at,
                    turn_id="t",
                    is_max_duration_triggered=at < 2,
                    pipeline=HEARD_ONLY,
                )
                for at, words in enumerate(("We went on.", "And then it...", "Was over."))
            ]
            results = await asyncio.gather(*(done(node, job) for job in slices))
            told = hints(log)
        assert [hint.context for hint in told] == ["", "We went on", "and then it"]
        assert [hint.continues for hint in told] == [False, True, True]
        # Neither a capital nor a full stop in mid-sentence.
        whole = " ".join(result.text_asr for result in results)
        assert whole == "We went on and then it was over."

    run(scenario())


def test_what_was_said_before_in_the_session_is_context_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "asr"
        async with assembled(f"asr=scribe:log={log}", "mt=marker", "tts=tones") as node:
            before = "User: first\nTarget: primero\nUser: second"
            await done(node, JobSource().job(context_text=before))
            await done(node, JobSource().job("<en>again", src_lang="auto", context_text=before))
            told = hints(log)
        assert (told[0].context, told[0].continues) == ("first\nsecond", False)
        # It would mislead if the language is to be detected.
        assert told[1].context == ""

    run(scenario())


def test_speech_comes_at_the_one_rate_whatever_the_voice_speaks_at() -> None:
    async def scenario() -> None:
        async with assembled("asr=scribe", "mt=marker", "tts=tones:rate=22050") as node:
            result = await done(node, JobSource().job())
            expected = len(result.text_translated) * 20 * 32
            assert abs(len(result.tts_audio) - expected) <= 64

    run(scenario())


def test_silence_around_speech_is_cut_but_not_where_speech_goes_on() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            audio = bytes(32_000) + spoken("late", 100) + bytes(32_000)
            for fields in ({}, {"is_max_duration_triggered": True, "turn_id": "t"}):
                job = JobSource().job(audio=audio, pipeline=HEARD_ONLY, **fields)
                assert "late" in (await done(node, job)).text_asr.lower()

    run(scenario())


def test_what_an_engine_reports_becomes_what_the_scheduler_is_told() -> None:
    async def scenario() -> None:
        async with assembled() as node:
            reports = []
            for role, deed in (("asr", "missing"), ("mt", "missing"), ("tts", "fail")):
                text = f"{role}!{deed}!once!{role}"
                with pytest.raises(JobFailed) as failed:
                    await done(node, JobSource().job(text))
                reports.append((failed.value.code, failed.value.details))
                # It recovers, and no error is kept for the next job of the same speech.
                assert (await done(node, JobSource().job(text))).text_asr == text
            assert reports == [
                ("MODEL_NOT_AVAILABLE", {"service_id": "scribe-m"}),
                ("MODEL_NOT_AVAILABLE", {"service_id": "marker"}),
                ("PROCESSING_ERROR", None),
            ]

    run(scenario())


def test_more_calls_than_may_wait_are_refused_as_too_many() -> None:
    async def scenario() -> None:
        pool = WorkerPool([Spec.parse("mt=marker")], WorkerPoolRules(queue_max=1))
        await pool.start()
        try:
            stage = PipelineStage("nmt", pool, NodeMetrics())
            engine = LoadedEngine(0, pool.abouts[0], "mt")
            slow = "mt!slow!once!met"
            calls = [
                asyncio.create_task(stage.call(engine, text, "en", "es", within_s=60))
                for text in (slow, "waits")
            ]
            await until(lambda: pool.waiting == 1, "one waits")
            with pytest.raises(JobFailed) as refused:
                await stage.call(engine, "too many", "en", "es", within_s=60)
            assert refused.value.code == "NODE_OVERLOADED"
            calls[0].cancel()
            assert await calls[1] == "en in es: waits"
        finally:
            await pool.close()

    run(scenario())


# A slow voice


def is_by_tones(result: Result) -> bool:
    """Tell whether the quick voice spoke: the length of its tones follows the text."""
    return len(result.tts_audio) == len(result.text_translated) * 20 * 32


LONG = "good morning to everybody who has come here today from far away"


def with_slow_voice(folder: Path) -> tuple[str, ...]:
    kokoro(folder / "kokoro", ("ef_dora",))
    slow = f"tts=kokoro:dir={folder / 'kokoro'},languages=es,chars_max=60"
    return "asr=scribe", "mt=marker", slow, "tts=tones"


def test_a_slow_voice_speaks_but_what_is_long_is_left_to_a_quick_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with assembled(*with_slow_voice(tmp_path)) as node:
            assert set(node.pools) == {"asr", "nmt", "tts", "natural"}
            assert not is_by_tones(await done(node, JobSource().job("good morning")))
            assert is_by_tones(await done(node, JobSource().job(LONG)))
            # It has no English.
            back = JobSource().job("<es>hola", src_lang="es", tgt_lang="en")
            assert is_by_tones(await done(node, back))

    run(scenario())


def test_who_would_wait_for_a_slow_voice_hears_a_quick_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with assembled(*with_slow_voice(tmp_path)) as node:
            slow = node.pools["natural"]
            (pid,) = slow.pids
            os.kill(pid, signal.SIGSTOP)
            jobs = [JobSource().job("good morning", session_id=f"s{number}") for number in range(3)]
            held = [asyncio.create_task(done(node, one)) for one in jobs[:2]]
            await until(lambda: slow.waiting, "one waits behind the other")
            assert is_by_tones(await done(node, jobs[2]))
            os.kill(pid, signal.SIGCONT)
            assert [is_by_tones(result) for result in await asyncio.gather(*held)] == [False, False]

    run(scenario())


def test_while_a_slow_voice_is_away_a_quick_one_speaks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with assembled(*with_slow_voice(tmp_path)) as node:
            slow = node.pools["natural"]
            os.kill(slow.pids[0], signal.SIGKILL)
            await until(lambda: not slow.is_ready, "it is missed")
            assert is_by_tones(await done(node, JobSource().job("good morning")))
            await until(lambda: slow.is_ready, "it is back")
            assert not is_by_tones(await done(node, JobSource().job("good morning")))

    run(scenario())


def test_terms_of_a_jobs_glossary_come_through_whatever_translator_there_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "mt"
        async with assembled("asr=scribe", f"mt=marker:log={log}", "tts=tones") as node:
            called = {"es": "libro mayor", "en": "ledger"}
            terms = (Term(term="ledger", translations=called), Term(term="Mr. Ö"))
            job = JobSource().job("the ledger of Mr. Ö", glossary=terms, pipeline=TEXT_ONLY)
            result = await done(node, job)
            assert result.text_asr == "the ledger of Mr. Ö"
            assert result.text_translated == "en in es: the libro mayor of Mr. Ö"
            other = JobSource().job(
                "el ledger",
                glossary=terms,
                pipeline=TEXT_ONLY,
                session_id="s2",
                src_lang="es",
                tgt_lang="en",
            )
            assert (await done(node, other)).text_translated == "es in en: el ledger"

    run(scenario())
