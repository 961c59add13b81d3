"""The voices of a default node without `--voice`: by installation and by speed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engines.tiny_models import kokoro
from lingua_speech import calibrate
from lingua_speech.calibrate import Calibration, Round
from lingua_speech.engines.kokoro import VOICES
from lingua_speech.models import ModelStore
from lingua_speech.plugins import Spec
from lingua_speech.presets import EnginePlan, plan_of
from lingua_speech.voices import MAX_RTF, NATURAL_ERRORS, poorly_spoken, with_natural_voice

pytestmark = pytest.mark.stress

DEFAULT = plan_of(["default"])
NATURAL = Spec("tts", "kokoro", {"languages": "+".join(poorly_spoken(DEFAULT))})


@pytest.fixture(name="store")
def a_folder_with_the_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    """Install a small network in place of the real one."""
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    kokoro(tmp_path / "kokoro", tuple({name for name, _ in VOICES.values()}))
    (tmp_path / "kokoro" / "manifest.json").write_text("{}")
    return ModelStore(tmp_path)


def choose(
    store: ModelStore, plan: EnginePlan | None = None, *, again: bool = False
) -> tuple[EnginePlan, str]:
    return asyncio.run(with_natural_voice(plan or DEFAULT, store, again=again))


def kept_as(store: ModelStore, rtf: float) -> None:
    """Store an earlier measurement."""
    key = calibrate.key_of([str(NATURAL)], 0, MAX_RTF)
    assert calibrate.store(store.root, key, Calibration(1, (Round(1, rtf),), 3.0))


def test_a_quick_one_is_taken_for_what_the_others_say_badly_and_measured_once(
    store: ModelStore,
) -> None:
    plan, told = choose(store)
    assert (plan.specs[0], told) == (NATURAL, "")
    assert plan.specs[1:] == DEFAULT.specs
    # The second time nothing is loaded: the measurement is stored.
    (store.root / "kokoro" / "kokoro.onnx").unlink()
    assert choose(store) == (plan, "")


def test_a_slow_one_is_not_taken_and_that_is_told(store: ModelStore) -> None:
    kept_as(store, MAX_RTF + 0.1)
    plan, told = choose(store)
    assert plan == DEFAULT
    assert f"{MAX_RTF + 0.1:.2f} of the length" in told
    assert "--voice natural" in told
    # The small network is fast when it is measured again.
    assert choose(store, again=True)[0].specs[0] == NATURAL


def test_one_that_is_not_installed_is_none(tmp_path: Path) -> None:
    assert choose(ModelStore(tmp_path)) == (DEFAULT, "")


def test_one_that_does_not_work_is_told_and_costs_nothing_else(store: ModelStore) -> None:
    (store.root / "kokoro" / "kokoro.onnx").write_bytes(b"nonsense")
    plan, told = choose(store)
    assert plan == DEFAULT
    assert "does not work here" in told


def test_who_names_the_engines_has_these_voices_alone(store: ModelStore) -> None:
    named = plan_of(["asr=whisper", "tts=espeak"])
    assert choose(store, named) == (named, "")


@pytest.mark.parametrize(
    ("words", "languages"),
    [
        (("tts=pico", "tts=espeak"), ("pt",)),
        (("tts=espeak",), ("es", "fr", "it", "pt")),
        ((), ("en", "es", "fr", "it", "pt")),
    ],
)
def test_it_is_worth_its_time_where_the_quick_ones_are_much_worse(
    words: tuple[str, ...], languages: tuple[str, ...]
) -> None:
    assert poorly_spoken(plan_of(["asr=whisper", *words])) == languages


def test_every_natural_language_has_a_sentence_to_measure_with() -> None:
    assert set(NATURAL_ERRORS) <= set(calibrate.SENTENCES)
    assert set(NATURAL_ERRORS) <= set(VOICES)
