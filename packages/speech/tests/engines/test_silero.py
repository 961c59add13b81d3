"""Silero with its model, on speech and on other sounds."""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING

import numpy as np
import pytest

from engines.watches import StopAfter
from lingua_speech.engine import ModelMissing, Sound, Stopped, Unwatched
from lingua_speech.engines import silero
from lingua_speech.models import default_store
from lingua_speech.sound import Samples, hearing, pcm16, resample
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.speech


def installed(name: str) -> Path:
    store = default_store()
    if not store.has(name):
        store.install(name)
    return store.path(name)


@pytest.fixture(name="finder", scope="module")
def loaded_model() -> silero.Silero:
    """Return the speech detector; its model is installed if it is missing."""
    installed("silero-vad")
    return silero.make({})


@pytest.fixture(name="speech", scope="module")
def two_sentences() -> Samples:
    """Return one second of silence, a sentence, two seconds of silence, another, one second."""
    files = sorted((installed("recordings-librivox-en") / "wav").glob("*.wav"))
    first, second = (hearing(read(path)) for path in (files[1], files[4]))
    quiet = np.random.default_rng(1).normal(0, 0.0003, 16_000).astype(np.float32)
    return np.concatenate([quiet, first, quiet, quiet, second, quiet])


def read(path: Path) -> Sound:
    with wave.open(str(path)) as file:
        return Sound(file.readframes(file.getnframes()), file.getframerate())


def sound_of(samples: Samples, rate: int = 16_000) -> Sound:
    return Sound(pcm16(samples.astype(np.float32)), rate)


def test_each_sentence_is_found_and_the_silence_between_is_not(
    finder: silero.Silero, speech: Samples
) -> None:
    first, second = finder.spans(sound_of(speech), Unwatched())
    assert 1000 <= first.start_ms < 1400
    assert second.start_ms - first.end_ms > 1900
    assert second.end_ms <= len(speech) / 16 - 900


@pytest.mark.parametrize("rate", [8000, 24_000, 48_000])
def test_any_rate_gives_about_the_same(finder: silero.Silero, speech: Samples, rate: int) -> None:
    wanted = finder.spans(sound_of(speech), Unwatched())
    found = finder.spans(sound_of(resample(speech, 16_000, rate), rate), Unwatched())
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        # At 8 kHz, as of a telephone, little of a soft beginning remains.
        assert abs(one.start_ms - other.start_ms) <= (300 if rate == 8000 else 100)
        assert abs(one.end_ms - other.end_ms) <= 100


@pytest.mark.parametrize("samples", [0, 100, 16_000, 160_000])
def test_silence_and_noise_have_no_speech(finder: silero.Silero, samples: int) -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, samples)
    assert finder.spans(sound_of(noise), Unwatched()) == ()
    assert finder.spans(sound_of(np.zeros(samples)), Unwatched()) == ()


def test_with_enough_found_the_rest_is_not_looked_at_and_may_be_speech(speech: Samples) -> None:
    gate = silero.make({"enough_ms": "200"})
    followed = np.concatenate([speech, np.zeros(16_000)])
    (found,) = gate.spans(sound_of(followed), Unwatched())
    whole = silero.make({}).spans(sound_of(followed), Unwatched())
    assert found.start_ms == whole[0].start_ms
    assert whole[-1].end_ms < found.end_ms == len(followed) // 16


def test_speech_is_counted_over_pauses_until_there_is_enough(speech: Samples) -> None:
    never = silero.make({"enough_ms": "60000"})
    assert never.spans(sound_of(speech), Unwatched()) == silero.make({}).spans(
        sound_of(speech), Unwatched()
    )


def test_spans_are_in_order_apart_and_inside_the_sound(speech: Samples) -> None:
    finder = silero.make({"margin_ms": "1500", "silence_ms": "40", "speech_ms": "30"})
    spans = finder.spans(sound_of(speech), Unwatched())
    edges = [edge for span in spans for edge in span]
    assert edges == sorted(set(edges))
    assert 0 <= edges[0] < edges[-1] <= len(speech) / 16


def test_it_stops_when_nobody_wants_the_answer(finder: silero.Silero, speech: Samples) -> None:
    with pytest.raises(Stopped):
        finder.spans(sound_of(speech), StopAfter(2))


@pytest.mark.parametrize("options", [{"threshold": "2"}, {"speech_ms": "x"}, {"volume": "1"}])
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        silero.make(options)


def test_a_folder_without_the_model_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="lingua models install"):
        silero.make({"dir": str(tmp_path)})


def test_it_knows_any_language(finder: silero.Silero) -> None:
    about = finder.about()
    assert (about.engine, about.licence, about.languages) == ("silero", "MIT", ())
