"""A node put together from engines in real processes: what it declares, what is left out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from lingua_scheduler.node import JobFailed
from lingua_scheduler.speech import calibrate, plugins
from lingua_scheduler.speech.assembly import memory_mb
from lingua_scheduler.speech.engine import ModelMissing, Sound
from lingua_scheduler.speech.metrics_page import metrics_page
from speech.engines.tiny_models import kokoro
from speech.stages import Desk, assembled, done, run, spoken

pytestmark = pytest.mark.stress

URL = "ws://127.0.0.1:1/ws/node"


@pytest.fixture(autouse=True)
def engines(stage_engines: None) -> None:
    """Have the test engines."""


def test_a_node_declares_what_its_engines_have() -> None:
    async def scenario() -> None:
        ear = "asr=ear:languages=en+es+fr"
        async with assembled(ear, "vad=gate", "mt=pen:pairs=en>es+de>en", "tts=mouth") as made:
            said = made.node(URL, node_id="n1", max_jobs=3).registration
        languages = said.language_capabilities
        assert languages is not None
        pairs = {f"{pair.src}>{pair.tgt}" for pair in languages.supported_language_pairs or ()}
        # German can be translated, but not heard.
        assert pairs == {"en>en", "es>es", "fr>fr", "en>es"}
        assert languages.asr_languages == ("en", "es", "fr")
        assert languages.tts_languages == ("en", "es")
        services = {one.service_id: (one.type, one.engine) for one in said.installed_services or ()}
        assert services == {
            "ear-m": ("asr", "ear"),
            "pen": ("nmt", "pen"),
            "mouth": ("tts", "mouth"),
        }
        assert {model.model_id: model.version for model in said.installed_models} == {
            "ear-m": "1", "gate": "1", "pen": "2", "mouth": "3",
        }  # fmt: skip
        assert said.max_jobs == 3

    run(scenario())


def test_what_cannot_be_loaded_is_left_out_and_told() -> None:
    async def scenario() -> None:
        gone = "only_if=/no/such/model"
        async with assembled(
            "asr=ear", f"mt=pen:{gone}", f"tts=teller:{gone}", "tts=mouth"
        ) as made:
            assert set(made.left_out) == {f"mt=pen:{gone}", f"tts=teller:{gone}"}
            assert all("lingua models install" in why for why in made.left_out.values())
            said = made.node(URL).registration
            assert [one.type for one in said.installed_services or ()] == ["asr", "tts"]
            assert [loaded.spec.name for loaded in made.loaded()] == ["ear", "mouth"]
            with pytest.raises(JobFailed):
                await done(made, Desk().job())

    run(scenario())


def test_without_a_recogniser_there_is_no_node() -> None:
    async def scenario() -> None:
        with pytest.raises(ModelMissing):
            async with assembled("asr=ear:only_if=/no/such/model", "vad=gate", "mt=pen"):
                raise AssertionError("it should not start")

    run(scenario())


def test_a_recogniser_that_translates_by_itself_is_ready_and_not_ready_as_both() -> None:
    async def scenario() -> None:
        async with assembled("asr=ear:itself=es>en") as made:
            node = made.node(URL)
            assert [one.type for one in node.registration.capability_by_type] == ["asr", "nmt"]
            await made.crews["asr"].close()
            made._tell_ready("asr")
            assert [one.ready for one in node.registration.capability_by_type] == [False, False]

    run(scenario())


def test_voices_of_two_crews_are_preferred_in_the_order_of_the_plan(tmp_path: Path) -> None:
    kokoro(tmp_path / "kokoro", ("ef_dora",))
    slow = f"tts=kokoro:dir={tmp_path / 'kokoro'},languages=es"

    async def scenario() -> None:
        for order in (("tts=mouth", slow), (slow, "tts=mouth")):
            async with assembled("asr=ear", "mt=pen", *order) as made:
                names = [one.about.engine for one in made.abilities.engines("tts")]
                assert names == [plugins.Spec.parse(word).name for word in order]
                # The quick one alone decides whether anybody speaks.
                node = made.node(URL)
                await made.crews["natural"].close()
                made._tell_ready("natural")
                ready = {one.type: one.ready for one in node.registration.capability_by_type}
                assert ready["tts"]
                assert await made.sample() is not None

    run(scenario())


def test_a_slow_voice_alone_is_what_speaks(tmp_path: Path) -> None:
    kokoro(tmp_path / "kokoro", ("ef_dora",))

    async def scenario() -> None:
        voice = f"tts=kokoro:dir={tmp_path / 'kokoro'},languages=es,chars_max=5"
        async with assembled("asr=ear", "mt=pen", voice) as made:
            assert (await done(made, Desk().job("good morning"))).tts_audio
            node = made.node(URL)
            await made.crews["natural"].close()
            made._tell_ready("natural")
            ready = {one.type: one.ready for one in node.registration.capability_by_type}
            assert not ready["tts"]

    run(scenario())


def test_several_workers_work_at_once() -> None:
    async def scenario() -> None:
        async with assembled(workers={"asr": 2}) as made:
            assert {name: len(crew.pids) for name, crew in made.crews.items()} == {
                "asr": 2, "nmt": 1, "tts": 1,
            }  # fmt: skip
            assert memory_mb(made.crews["asr"]) > 10
            slow = Desk().job("asr!slow!once!met")
            waiting = asyncio.create_task(done(made, slow))
            result = await done(made, Desk().job("quick", session_id="s2"))
            assert (result.text_asr, waiting.done()) == ("quick", False)
            waiting.cancel()
            await asyncio.wait([waiting])

    run(scenario())


def test_a_node_measures_itself_with_its_own_voice_or_a_recording() -> None:
    async def scenario() -> None:
        async with assembled("asr=ear", "mt=pen", "tts=teller") as made:
            sample = await made.sample()
            assert sample is not None
            assert (sample.source, sample.target, sample.speaks) == ("en", "es", True)
            found = await calibrate.measure(made.rehearsal().handle, sample)
            assert found.slots == slots_in(found) >= 1
            # Nobody asked for these jobs.
            assert made.meters.job_seconds.count == 0
        async with assembled("asr=ear") as voiceless:
            assert await voiceless.sample() is None
            recording = Sound(spoken("hello", 1000), 16_000)
            sample = await voiceless.sample(recording)
            assert sample is not None
            assert (sample.source, sample.target, sample.speaks) == ("en", "en", False)
            await calibrate.measure(voiceless.pipeline.handle, sample)

    run(scenario())


def slots_in(found: calibrate.Calibration) -> int:
    return max(one.jobs for one in found.rounds if one.slowest_rtf <= calibrate.MAX_RTF)


def test_its_metrics_are_shown_over_http() -> None:
    async def scenario() -> None:
        async with assembled() as made, metrics_page(made.meters, "127.0.0.1", 0) as url:
            await done(made, Desk().job())
            with pytest.raises(JobFailed):
                await done(made, Desk().job(audio_format="opus"))
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                text = await answer.text()
                assert answer.status == 200
        for line in (
            'lingua_node_jobs_total{outcome="done"} 1',
            'lingua_node_jobs_total{outcome="UNSUPPORTED_FEATURE"} 1',
            'lingua_node_engine_seconds_count{role="vad"} 1',
            'lingua_node_ready{stage="nmt"} 1',
            'lingua_node_worker_restarts_total{stage="asr"} 0',
            'lingua_node_queue{stage="tts"} 0',
            "lingua_node_real_time_factor ",
        ):
            assert line in text, line

    run(scenario())
