"""The default node with its real engines and real recordings, in real worker processes.

Needs `lingua models install bench`. The assertions are coarse; `lingua bench speech` has figures.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from engine_node import JobSource, done, metric, run, until
from lingua_node import Job, Result
from lingua_speech.assembly import Assembly
from lingua_speech.models import default_store
from lingua_speech.presets import plan_of
from lingua_speech.scores import word_error_rate, words

pytestmark = pytest.mark.speech

BOTH_WAYS = {"src_lang": "auto", "mode": "two_way_auto", "lang_a": "en", "lang_b": "es"}


def recordings() -> dict[str, bytes]:
    """Return transcript -> pcm16 at 16 kHz of the LibriVox sentences."""
    root = default_store().path("recordings-librivox-en")
    rows = (root / "transcripts.tsv").read_text(encoding="utf-8").splitlines()
    files = {path.stem: path for path in root.rglob("*.wav")}
    return {text: pcm(files[key]) for key, text in (row.split("\t") for row in rows)}


def pcm(path: Path) -> bytes:
    with wave.open(str(path), "rb") as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
        return file.readframes(file.getnframes())


def of(audio: bytes, number: int, **fields: object) -> Job:
    named = {"job_id": f"j{number}", "session_id": f"s{number}", **fields}
    return JobSource().job(audio=audio, **named)


def slices(audio: bytes, longest_s: int = 9, looked_at_s: int = 3) -> list[bytes]:
    """Cut long speech like a session: at the quietest place before a slice gets too long."""
    step = 1280
    found = []
    while len(audio) > longest_s * 32_000:
        last = longest_s * 32_000
        places = range(last - looked_at_s * 32_000, last - step, step)
        cut = min(places, key=lambda at: loudness(audio[at : at + step])) + step // 2
        found.append(audio[:cut])
        audio = audio[cut:]
    return [*found, audio]


def loudness(piece: bytes) -> int:
    samples = memoryview(piece).cast("h")
    return sum(abs(sample) for sample in samples)


def test_real_speech_is_heard_translated_and_spoken_and_what_is_spoken_is_understood() -> None:
    async def scenario() -> None:
        async with Assembly(plan_of(["default"])) as node:
            assert node.left_out == {}
            spoken: list[Result] = []
            for number, audio in enumerate(recordings().values()):
                spoken.append(await done(node, of(audio, number)))
            pairs = zip(recordings(), (result.text_asr for result in spoken), strict=True)
            assert word_error_rate(pairs) <= 0.05
            for result in spoken:
                assert result.text_translated
                assert words(result.text_translated) != words(result.text_asr)
                assert len(result.tts_audio) > 32_000
                assert set(result.timings or ()) == {"asr_ms", "nmt_ms", "tts_ms", "total_ms"}
            # Its own Spanish speech is detected as Spanish and mostly recognised.
            back = await done(node, of(spoken[4].tts_audio, 9, **BOTH_WAYS))
            said = [(spoken[4].text_translated, back.text_asr)]
            assert word_error_rate(said) <= 0.4
            assert back.extra is not None
            scores = back.extra.language_probabilities or {}
            assert scores["es"] > 0.5
            assert set(scores) <= {"en", "es"}

    run(scenario())


def test_speech_that_comes_as_ogg_opus_is_understood_as_well() -> None:
    async def scenario() -> None:
        async with Assembly(plan_of(["default"])) as node:
            for number, (text, audio) in enumerate(recordings().items()):
                file = io.BytesIO()
                samples = np.frombuffer(audio, "<i2")
                soundfile.write(file, samples, 16_000, "OPUS", format="OGG")
                job = of(file.getvalue(), number, audio_format="opus")
                assert len(job.audio) * 4 < len(audio)
                result = await done(node, job)
                assert word_error_rate([(text, result.text_asr)]) <= 0.15
                assert result.tts_audio

    run(scenario())


def test_a_real_worker_killed_while_it_listens_costs_nothing_but_time() -> None:
    async def scenario() -> None:
        async with Assembly(plan_of(["default"])) as node:
            text, audio = next(iter(recordings().items()))
            pool = node.pools["asr"]
            before = pool.pids
            job = asyncio.create_task(done(node, of(audio, 0)))
            await until(lambda: metric(node, "jobs_running") == 1, "it listens")
            os.kill(before[0], signal.SIGKILL)
            result = await job
            assert word_error_rate([(text, result.text_asr)]) <= 0.1
            assert pool.restarts == 1
            assert pool.pids != before

    run(scenario())


def test_long_speech_in_slices_keeps_its_words() -> None:
    async def scenario() -> None:
        async with Assembly(plan_of(["default"])) as node:
            pieces = slices(b"".join(recordings().values()))
            assert len(pieces) >= 3
            jobs = [
                of(
                    piece,
                    number,
                    session_id="s",
                    turn_id="t",
                    utterance_index=number,
                    is_max_duration_triggered=number < len(pieces) - 1,
                )
                for number, piece in enumerate(pieces)
            ]
            results = await asyncio.gather(*(done(node, job) for job in jobs))
            whole = " ".join(result.text_asr for result in results)
            assert word_error_rate([(" ".join(recordings()), whole)]) <= 0.06

    run(scenario())


def test_noise_and_silence_are_nothing_said() -> None:
    async def scenario() -> None:
        async with Assembly(plan_of(["default"])) as node:
            hiss = bytes(
                (value & 0x3F) - 0x20 & 0xFF if at % 2 == 0 else 0
                for at, value in enumerate(os.urandom(64_000))
            )
            for number, audio in enumerate((bytes(64_000), hiss)):
                result = await done(node, of(audio, number))
                assert result.extra is not None
                assert result.extra.reason == "ASR_EMPTY"

    run(scenario())
