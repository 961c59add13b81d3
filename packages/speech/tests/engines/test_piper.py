"""Piper with a small generated voice: real loading, phonemes and synthesis."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from engines import tiny_models
from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, ModelMissing, Sound, Stopped, Unwatched
from lingua_speech.engines import espeak
from lingua_speech.engines.piper import Piper, make
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.fixture(name="voices", scope="module")
def two_voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a Spanish voice and an English one with three speakers."""
    folder = tmp_path_factory.mktemp("voices")
    tiny_models.voice(folder / "es.onnx", "es_ES")
    tiny_models.voice(folder / "en.onnx", "en_US", speakers=3)
    return folder


@pytest.fixture(name="piper", scope="module")
def both(voices: Path) -> Piper:
    return make({"voice": str(voices / "es.onnx"), "voice.en": str(voices / "en.onnx")})


def said(piper: Piper, text: str, language: str = "es") -> Sound:
    return piper.speak(text, language, Unwatched())


def test_it_speaks_with_the_voice_of_each_language(piper):
    spanish, english = said(piper, "Buenos días, amigo"), said(piper, "Good morning", "en")
    assert spanish.sample_rate == english.sample_rate == 16_000
    # A phoneme and the pad after it take 16 ms each.
    assert 400 < english.duration_ms < spanish.duration_ms < 1_200
    assert np.abs(np.frombuffer(spanish.pcm, "<i2")).max() > 20_000


def test_its_languages_are_those_its_voices_name(voices, piper):
    assert piper.about().languages == ("en", "es", "es-es")
    engine = plugins.make(Spec.parse(f"tts=piper:voice={voices / 'es.onnx'}"))
    assert engine.about().languages == ("es", "es-es")
    assert engine.about().model == "es"


def test_sentences_are_spoken_one_by_one_with_a_pause(piper):
    one = said(piper, "Buenos días.").duration_ms
    assert said(piper, "Buenos días. Buenos días.").duration_ms == pytest.approx(
        2 * one + 250, 0.05
    )


def test_nothing_to_say_is_no_sound(piper):
    for text in ("", " ", "...", "\x00"):
        assert said(piper, text) == Sound(b"", 16_000)


def test_a_text_cannot_smuggle_phonemes_in(piper):
    # As phonemes this would be one sound; as text it is spelt out.
    assert said(piper, "[[a]]").duration_ms == said(piper, "((a))").duration_ms


def test_it_stops_between_sentences(piper):
    watch = StopAfter(4)
    with pytest.raises(Stopped):
        piper.speak("Una frase. " * 30, "es", watch)
    assert watch.left == -1


def test_a_slower_voice_takes_longer(voices, piper):
    slow = make({"voice": str(voices / "es.onnx"), "length_scale": "2"})
    ratio = said(slow, "Buenos días, amigo").duration_ms
    assert ratio / said(piper, "Buenos días, amigo").duration_ms == pytest.approx(2, rel=0.1)


def test_a_speaker_is_chosen_by_number_or_name(voices):
    file = str(voices / "en.onnx")
    by_name, by_number = (
        make({"voice": file, "speaker": "p2"}),
        make({"voice": file, "speaker": "2"}),
    )
    assert said(by_name, "Hello", "en") == said(by_number, "Hello", "en")
    with pytest.raises(ConfigError, match="no speaker 'p9'"):
        make({"voice": file, "speaker": "p9"})


def test_espeak_in_the_same_process_is_not_disturbed(piper):
    other = espeak.make({})
    before = said(piper, "Buenos días")
    alone = other.speak("Hello there", "en", Unwatched()).duration_ms
    assert said(piper, "Buenos días") == before
    assert other.speak("Hello there", "en", Unwatched()).duration_ms == pytest.approx(
        alone, rel=0.03
    )


def test_a_language_without_a_voice_is_refused(piper):
    with pytest.raises(EngineError, match="no voice for 'de'"):
        said(piper, "Hallo", "de")


def test_what_is_missing_or_broken_is_told(voices, tmp_path):
    with pytest.raises(ConfigError, match="needs voice="):
        make({})
    with pytest.raises(ModelMissing, match="two files"):
        make({"voice": str(tmp_path / "none.onnx")})
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"this is no model")
    broken.with_name("broken.onnx.json").write_text((voices / "es.onnx.json").read_text())
    with pytest.raises(ModelMissing, match="cannot be loaded"):
        make({"voice": str(broken)})
    broken.with_name("broken.onnx.json").write_text("{")
    with pytest.raises(ModelMissing, match="not a description"):
        make({"voice": str(broken)})


def test_a_voice_that_does_not_say_its_language_needs_to_be_told(voices, tmp_path):
    config = json.loads((voices / "es.onnx.json").read_text())
    nameless = tmp_path / "x.onnx"
    nameless.write_bytes((voices / "es.onnx").read_bytes())
    del config["language"]
    config["espeak"]["voice"] = "?"
    nameless.with_name("x.onnx.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"voice\.LANG"):
        make({"voice": str(nameless)})
