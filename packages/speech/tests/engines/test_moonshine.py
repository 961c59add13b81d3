"""Moonshine on real English recordings (LibriVox)."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from engines.watches import RecordingWatch, StopAfter
from lingua_speech import plugins
from lingua_speech.engine import (
    EngineError,
    Hint,
    ModelMissing,
    Sound,
    Stopped,
    Unwatched,
)
from lingua_speech.engines.moonshine import Moonshine, make
from lingua_speech.models import default_store
from lingua_speech.plugins import Spec
from lingua_speech.scores import word_error_rate, words
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.speech


@pytest.fixture(name="recordings", scope="module")
def librivox() -> list[tuple[Sound, str]]:
    """Return five recorded sentences of Jane Austen with their transcripts."""
    root = default_store().path("recordings-librivox-en")
    lines = (root / "transcripts.tsv").read_text("utf-8").splitlines()
    found = [(key, text) for key, _, text in (line.partition("\t") for line in lines)]
    return [(read(next(root.glob(f"wav/**/{key}.wav"))), text) for key, text in found]


@pytest.fixture(name="moonshine", scope="module")
def loaded() -> Moonshine:
    return make({})


def read(path: Path) -> Sound:
    with wave.open(str(path)) as file:
        return Sound(file.readframes(file.getnframes()), file.getframerate())


def heard(moonshine: Moonshine, sound: Sound) -> str:
    return moonshine.recognise(sound, Hint(language="en"), Unwatched()).text


def test_real_speech_is_understood(moonshine, recordings):
    assert len(recordings) == 5
    pairs = [(text, heard(moonshine, sound)) for sound, text in recordings]
    rate = word_error_rate(pairs)
    print(f"moonshine, LibriVox, 5 utterances: word error rate {rate:.1%}")
    assert rate <= 0.08


def test_one_recording_leaves_nothing_behind_for_the_next(moonshine, recordings):
    sound, text = recordings[-1]
    first = heard(moonshine, sound)
    heard(moonshine, recordings[0][0])
    assert heard(moonshine, sound) == first
    assert words(first)[0] == words(text)[0]


def test_long_speech_is_heard_to_its_end_and_shown_as_it_comes(moonshine, recordings):
    pause = bytes(16_000)
    pcm = pause.join(sound.pcm for sound, _ in recordings) + pause
    text = " ".join(text for _, text in recordings)
    watch = RecordingWatch()
    found = moonshine.recognise(Sound(pcm * 2, 16_000), Hint(language="en"), watch)
    assert word_error_rate([(f"{text} {text}", found.text)]) <= 0.1
    assert len(watch.partials) >= 3
    assert watch.partials[-1] == found.text


def test_silence_and_no_sound_are_no_text(moonshine):
    assert heard(moonshine, Sound(b"", 16_000)) == ""
    assert heard(moonshine, Sound(bytes(64_000), 16_000)) == ""
    assert heard(moonshine, Sound(bytes(10), 8_000)) == ""


def test_it_stops_between_pieces(moonshine, recordings):
    sound = Sound(b"".join(sound.pcm for sound, _ in recordings) * 2, 16_000)
    watch = StopAfter(1)
    with pytest.raises(Stopped):
        moonshine.recognise(sound, Hint(), watch)
    assert watch.left == -1


def test_it_is_for_english_only():
    engine = plugins.make(Spec.parse("asr=moonshine"))
    assert engine.about().languages == ("en",)
    with pytest.raises(EngineError, match="cannot recognise 'es'"):
        engine.recognise(Sound(bytes(3_200), 16_000), Hint(language="es"), Unwatched())
    engine.close()


def test_what_is_missing_or_broken_is_told(tmp_path):
    with pytest.raises(ModelMissing, match=r"0\.0\.73 has the weights"):
        make({"model": str(tmp_path)})
    (tmp_path / "encoder_model.ort").write_bytes(b"nonsense")
    with pytest.raises(ModelMissing, match="cannot be loaded"):
        make({"model": str(tmp_path)})
    with pytest.raises(ConfigError, match="arch"):
        make({"arch": "huge"})
