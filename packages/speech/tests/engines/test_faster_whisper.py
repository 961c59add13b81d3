"""faster-whisper with a Whisper of one random layer: real loading, decoding, language scores."""

from __future__ import annotations

import socket
from pathlib import Path

import numpy as np
import pytest

from engines import tiny_models
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
from lingua_speech.engines.faster_whisper import FasterWhisper, make
from lingua_speech.models import default_store
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.speech


@pytest.fixture(name="folder", scope="module")
def tiny_whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = default_store().path("whisper-base") / "tokenizer.json"
    return tiny_models.whisper(tmp_path_factory.mktemp("whisper") / "tiny", tokenizer)


@pytest.fixture(name="whisper", scope="module")
def loaded(folder: Path) -> FasterWhisper:
    # Retries are random, so their result is never the same.
    return make({"model": str(folder), "device": "cpu", "compute_type": "int8", "retries": "0"})


def noise(seconds: float = 1.0, rate: int = 16_000, seed: int = 1) -> Sound:
    samples = np.random.default_rng(seed).standard_normal(int(rate * seconds)) * 3_000
    return Sound(samples.astype("<i2").tobytes(), rate)


def test_a_known_language_is_used_and_something_is_heard(whisper):
    watch = RecordingWatch()
    heard = whisper.recognise(noise(), Hint(language="es-mx"), watch)
    assert heard.language == "es-mx"
    assert heard.scores == {}
    assert heard.text
    assert heard.translation == ""
    assert 0 < heard.confidence <= 1
    assert watch.partials[-1] == heard.text


def test_scores_are_of_the_allowed_languages_alone_and_sum_to_one(whisper):
    _, _, every = whisper._model.detect_language(
        np.frombuffer(noise().pcm, "<i2").astype(np.float32) / 32_768
    )
    known = dict(every)
    heard = whisper.recognise(noise(), Hint(allowed=("en-us", "es")), Unwatched())
    assert set(heard.scores) == {"en-us", "es"}
    assert sum(heard.scores.values()) == pytest.approx(1)
    share = known["en"] / (known["en"] + known["es"])
    assert heard.scores["en-us"] == pytest.approx(share, rel=1e-3)
    assert heard.language == max(heard.scores, key=heard.scores.__getitem__)


def test_a_language_with_two_codes_is_known_by_both(whisper):
    scores = whisper.recognise(noise(), Hint(allowed=("nb", "en")), Unwatched()).scores
    assert set(scores) == {"nb", "en"}
    assert whisper.recognise(noise(), Hint(language="jv"), Unwatched()).language == "jv"


def test_without_a_hint_every_language_is_a_candidate(whisper):
    heard = whisper.recognise(noise(), Hint(), Unwatched())
    assert len(heard.scores) == 99
    assert "jv" in heard.scores
    assert heard.language == max(heard.scores, key=heard.scores.__getitem__)


def test_a_translation_is_given_where_it_is_asked_for(whisper):
    asked = whisper.recognise(noise(), Hint(language="es", translate_to="en"), Unwatched())
    plain = whisper.recognise(noise(), Hint(language="es"), Unwatched())
    assert asked.text == plain.text
    assert asked.translation
    assert asked.translation != asked.text
    english = whisper.recognise(noise(), Hint(language="en", translate_to="en"), Unwatched())
    assert english.translation == ""


def test_what_was_said_before_is_shown_to_the_model(whisper):
    alone = whisper.recognise(noise(), Hint(language="en"), Unwatched())
    after = whisper.recognise(noise(), Hint(language="en", context="the train"), Unwatched())
    assert after.text != alone.text


def test_another_sample_rate_is_heard_too(whisper):
    assert whisper.recognise(noise(rate=8_000), Hint(language="en"), Unwatched()).text


def test_no_sound_is_no_text(whisper):
    assert whisper.recognise(Sound(b"", 16_000), Hint(), Unwatched()).text == ""


def test_it_stops_before_the_next_step(whisper):
    with pytest.raises(Stopped):
        whisper.recognise(noise(), Hint(language="en"), StopAfter(0))
    watch = StopAfter(1)
    with pytest.raises(Stopped):
        whisper.recognise(noise(), Hint(allowed=("en", "es")), watch)
    assert watch.left == -1


def test_a_language_it_does_not_know_is_refused(whisper):
    for hint in (Hint(language="xx"), Hint(allowed=("xx", "yy"))):
        with pytest.raises(EngineError, match="cannot recognise 'xx'"):
            whisper.recognise(noise(), hint, Unwatched())


def test_it_says_what_it_can(folder):
    about = plugins.make(Spec.parse(f"asr=faster-whisper:model={folder},device=cpu")).about()
    assert about.model == "tiny"
    assert about.device == "cpu"
    assert {"en", "es", "jv", "no", "nb"} <= set(about.languages)
    assert ("es", "en") in about.pairs
    assert ("en", "en") not in about.pairs


def test_a_name_that_is_no_folder_is_never_looked_up_in_a_hub(folder, tmp_path, monkeypatch):
    def no_network(*_: object) -> None:
        raise AssertionError("it reached for the network")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    for name in ("large-v3", "Systran/faster-whisper-base"):
        with pytest.raises(ModelMissing, match="nothing is fetched from a hub"):
            make({"model": name})
    for file in folder.iterdir():
        if file.name != "tokenizer.json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ModelMissing, match=r"no tokenizer\.json"):
        make({"model": str(tmp_path)})


def test_what_is_broken_or_impossible_is_told(folder, tmp_path):
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.bin").write_bytes(b"nonsense")
    with pytest.raises(ModelMissing, match="cannot be loaded"):
        make({"model": str(tmp_path), "device": "cpu"})
    with pytest.raises(ConfigError, match="device"):
        make({"model": str(folder), "device": "tpu"})
    with pytest.raises(ConfigError, match="FOLDER"):
        make({})
