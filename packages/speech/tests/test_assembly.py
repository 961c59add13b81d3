"""A node assembled from engines in real processes: its declarations, and engines left out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine_node import JobSource, assembled, done, metric, run, spoken
from engines.tiny_models import kokoro
from lingua_node import JobFailed
from lingua_speech import calibrate, plugins
from lingua_speech.assembly import memory_mb
from lingua_speech.engine import ModelMissing, Sound

pytestmark = pytest.mark.stress

URL = "ws://127.0.0.1:1/ws/node"


@pytest.fixture(autouse=True)
def engines(stage_engines: None) -> None:
    """Install the test engines."""


def test_a_node_declares_what_its_engines_have() -> None:
    async def scenario() -> None:
        scribe = "asr=scribe:languages=en+es+fr"
        async with assembled(
            scribe, "vad=gate", "mt=marker:pairs=en>es+de>en", "tts=tones"
        ) as made:
            said = made.node(URL, node_id="n1", max_jobs=3).registration
        languages = said.language_capabilities
        assert languages is not None
        pairs = {f"{pair.src}>{pair.tgt}" for pair in languages.supported_language_pairs or ()}
        # German can be translated, but not recognised.
        assert pairs == {"en>en", "es>es", "fr>fr", "en>es"}
        assert languages.asr_languages == ("en", "es", "fr")
        assert languages.tts_languages == ("en", "es")
        services = {one.service_id: (one.type, one.engine) for one in said.installed_services or ()}
        assert services == {
            "scribe-m": ("asr", "scribe"),
            "marker": ("nmt", "marker"),
            "tones": ("tts", "tones"),
        }
        assert {model.model_id: model.version for model in said.installed_models} == {
            "scribe-m": "1",
            "gate": "1",
            "marker": "2",
            "tones": "3",
        }
        assert said.max_jobs == 3

    run(scenario())


def test_what_cannot_be_loaded_is_left_out_and_told() -> None:
    async def scenario() -> None:
        gone = "only_if=/no/such/model"
        async with assembled(
            "asr=scribe", f"mt=marker:{gone}", f"tts=echo:{gone}", "tts=tones"
        ) as made:
            assert set(made.left_out) == {f"mt=marker:{gone}", f"tts=echo:{gone}"}
            assert all("lingua models install" in why for why in made.left_out.values())
            said = made.node(URL).registration
            assert [one.type for one in said.installed_services or ()] == ["asr", "tts"]
            assert [loaded.spec.name for loaded in made.loaded()] == ["scribe", "tones"]
            with pytest.raises(JobFailed):
                await done(made, JobSource().job())

    run(scenario())


def test_without_a_recogniser_there_is_no_node() -> None:
    async def scenario() -> None:
        with pytest.raises(ModelMissing):
            async with assembled("asr=scribe:only_if=/no/such/model", "vad=gate", "mt=marker"):
                raise AssertionError("it should not start")

    run(scenario())


def test_a_recogniser_that_translates_by_itself_is_ready_and_not_ready_as_both() -> None:
    async def scenario() -> None:
        async with assembled("asr=scribe:itself=es>en") as made:
            node = made.node(URL)
            assert [one.type for one in node.registration.capability_by_type] == ["asr", "nmt"]
            await made.pools["asr"].close()
            made._report_readiness("asr")
            assert [one.ready for one in node.registration.capability_by_type] == [False, False]

    run(scenario())


def test_voices_of_two_crews_are_preferred_in_the_order_of_the_plan(tmp_path: Path) -> None:
    kokoro(tmp_path / "kokoro", ("ef_dora",))
    slow = f"tts=kokoro:dir={tmp_path / 'kokoro'},languages=es"

    async def scenario() -> None:
        for order in (("tts=tones", slow), (slow, "tts=tones")):
            async with assembled("asr=scribe", "mt=marker", *order) as made:
                names = [one.about.engine for one in made.abilities.engines("tts")]
                assert names == [plugins.Spec.parse(word).name for word in order]
                # The quick voice alone decides whether `tts` is ready.
                node = made.node(URL)
                await made.pools["natural"].close()
                made._report_readiness("natural")
                ready = {one.type: one.ready for one in node.registration.capability_by_type}
                assert ready["tts"]
                assert await made.sample() is not None

    run(scenario())


def test_a_slow_voice_alone_is_what_speaks(tmp_path: Path) -> None:
    kokoro(tmp_path / "kokoro", ("ef_dora",))

    async def scenario() -> None:
        voice = f"tts=kokoro:dir={tmp_path / 'kokoro'},languages=es,chars_max=5"
        async with assembled("asr=scribe", "mt=marker", voice) as made:
            assert (await done(made, JobSource().job("good morning"))).tts_audio
            node = made.node(URL)
            await made.pools["natural"].close()
            made._report_readiness("natural")
            ready = {one.type: one.ready for one in node.registration.capability_by_type}
            assert not ready["tts"]

    run(scenario())


def test_several_workers_work_at_once() -> None:
    async def scenario() -> None:
        async with assembled(workers={"asr": 2}) as made:
            assert {name: len(pool.pids) for name, pool in made.pools.items()} == {
                "asr": 2,
                "nmt": 1,
                "tts": 1,
            }
            assert memory_mb(made.pools["asr"]) > 10
            slow = JobSource().job("asr!slow!once!met")
            waiting = asyncio.create_task(done(made, slow))
            result = await done(made, JobSource().job("quick", session_id="s2"))
            assert (result.text_asr, waiting.done()) == ("quick", False)
            waiting.cancel()
            await asyncio.wait([waiting])

    run(scenario())


def test_a_node_measures_itself_with_its_own_voice_or_a_recording() -> None:
    async def scenario() -> None:
        async with assembled("asr=scribe", "mt=marker", "tts=echo") as made:
            sample = await made.sample()
            assert sample is not None
            assert (sample.source, sample.target, sample.speaks) == ("en", "es", True)
            found = await calibrate.measure(made.rehearsal().handle, sample)
            assert found.slots == slots_in(found) >= 1
            # Jobs of the calibration are not counted.
            assert metric(made, "job_seconds_count") == 0
        async with assembled("asr=scribe") as voiceless:
            assert await voiceless.sample() is None
            recording = Sound(spoken("hello", 1000), 16_000)
            sample = await voiceless.sample(recording)
            assert sample is not None
            assert (sample.source, sample.target, sample.speaks) == ("en", "en", False)
            await calibrate.measure(voiceless.pipeline.handle, sample)

    run(scenario())


def slots_in(found: calibrate.Calibration) -> int:
    return max(one.jobs for one in found.rounds if one.slowest_rtf <= calibrate.MAX_RTF)
