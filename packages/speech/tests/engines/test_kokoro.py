"""Kokoro: odd texts, long sentences, stopping between sentences; on a small network.

How well the real network is understood is measured by `lingua bench speech --voices`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engines.kokoro.spelling import SENTENCES, written
from engines.tiny_models import KOKORO_HOP, kokoro
from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, ModelMissing, Sound, Stopped, Unwatched
from lingua_speech.engines import espeak
from lingua_speech.engines.kokoro import LETTERS_MAX, VOICES, Kokoro, make
from lingua_speech.models import ModelStore
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


NAMES = tuple({name for name, _ in VOICES.values()} | {"pm_alex"})


@pytest.fixture(name="folder", scope="module")
def a_small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kokoro(tmp_path_factory.mktemp("kokoro") / "model", NAMES)


@pytest.fixture(name="voice", scope="module")
def one_for_all(folder: Path) -> Kokoro:
    return make({"dir": str(folder), "threads": "1"})


def said(voice: Kokoro, text: str, language: str = "en") -> Sound:
    return voice.speak(text, language, Unwatched())


def loudest(sound: Sound) -> float:
    return float(np.abs(np.frombuffer(sound.pcm, "<i2").astype(float)).max()) / 32_768


def test_it_says_what_it_is_and_speaks_each_of_its_languages(voice: Kokoro) -> None:
    about = voice.about()
    assert set(about.languages) == set(VOICES)
    assert about.chars_max == 240
    for language, sentence in SENTENCES.items():
        sound = said(voice, sentence, language)
        assert sound.sample_rate == 24_000
        assert sound.duration_ms > 10 * KOKORO_HOP / 24


def test_the_manner_of_speaking_is_that_for_the_length_of_the_text(voice: Kokoro) -> None:
    letters = len(written("Good morning.", "en"))
    assert loudest(said(voice, "Good morning.")) == pytest.approx(letters / 1000, rel=0.02)


@pytest.mark.parametrize("text", ["", " ", "…", "\x00", "😀 🎉", "!?", "\u200d"])
def test_nothing_to_say_is_no_sound(voice: Kokoro, text: str) -> None:
    assert said(voice, text, "pt") == Sound(b"", 24_000)


@pytest.mark.parametrize(
    "text",
    [
        "uma palavra " * 200,
        "x" * 3_000,
        "9" * 700,
        "漢字 и что-то ещё, 😀 [[w'0n]] <break time='30s'/> ^^ ((a)) \\",
        "a^b^c «d» “e” ¿f? ¡g!",
        "https://example.org/a/b?c=d&e=f#g",
        "a, " * 300,
    ],
)
def test_odd_texts_are_spoken_somehow(voice: Kokoro, text: str) -> None:
    assert said(voice, text, "pt").duration_ms > 25


def test_a_sentence_of_too_many_letters_is_said_in_pieces(voice: Kokoro) -> None:
    # Digits are few characters but many letters of the alphabet.
    text = "7777777 " * 24
    assert len(written(text, "pt")) > LETTERS_MAX
    whole_ms = len(written(text, "pt")) * KOKORO_HOP / 24
    assert said(voice, text, "pt").duration_ms > 0.9 * whole_ms


def test_it_stops_between_two_sentences(voice: Kokoro) -> None:
    watch = StopAfter(2)
    with pytest.raises(Stopped):
        voice.speak("One. Two. Three. Four.", "en", watch)
    assert watch.left == -1


def test_it_shares_its_library_with_the_other_voice(voice: Kokoro) -> None:
    other = espeak.make({})
    alone = other.speak("Guten Morgen zusammen.", "de", Unwatched())
    ours = said(voice, SENTENCES["pt"], "pt")
    again = other.speak("Guten Morgen zusammen.", "de", Unwatched())
    assert again.duration_ms == pytest.approx(alone.duration_ms, rel=0.05)
    assert said(voice, SENTENCES["pt"], "pt") == ours


def test_a_language_of_a_region_is_that_language_and_others_are_refused(voice: Kokoro) -> None:
    assert said(voice, "Hola.", "es-mx") == said(voice, "Hola.", "es")
    with pytest.raises(EngineError, match="no voice for 'de'"):
        said(voice, "Guten Tag.", "de")


def test_languages_and_voices_may_be_chosen(folder: Path) -> None:
    chosen = plugins.make(Spec.parse(f"tts=kokoro:dir={folder},languages=pt,voice.pt=pm_alex"))
    assert chosen.about().languages == ("pt", "pt-br")
    chosen.close()
    assert chosen.about().languages == ()


@pytest.mark.parametrize(
    "option", ["languages=de", "speed=9", "threads=-1", "chars_max=x", "colour=red"]
)
def test_options_that_cannot_be_are_refused(folder: Path, option: str) -> None:
    with pytest.raises(ConfigError):
        plugins.make(Spec.parse(f"tts=kokoro:dir={folder},{option}"))


def test_what_is_missing_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    assert not ModelStore(tmp_path).has("kokoro")
    with pytest.raises(ModelMissing, match="lingua models install kokoro"):
        make({})
    with pytest.raises(ModelMissing, match=r"no voice 'nobody'.*pf_dora"):
        make({"dir": str(folder), "voice.pt": "nobody"})


@pytest.mark.parametrize("file", ["kokoro.onnx", "tokenizer.json", "voices/pf_dora.bin"])
def test_a_file_that_is_broken_or_gone_is_named(tmp_path: Path, file: str) -> None:
    broken = kokoro(tmp_path / "model", NAMES) / file
    broken.write_bytes(b"nonsense")
    with pytest.raises(ModelMissing, match=broken.name):
        make({"dir": str(tmp_path / "model")})
    broken.unlink()
    with pytest.raises(ModelMissing, match=broken.stem):
        make({"dir": str(tmp_path / "model")})
