"""Which voice a default node takes by itself: by what is installed, and how fast it is here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lingua_scheduler.models import Store
from lingua_scheduler.speech import calibrate
from lingua_scheduler.speech.calibrate import Calibration, Round
from lingua_scheduler.speech.engines.kokoro import VOICES
from lingua_scheduler.speech.plugins import Spec
from lingua_scheduler.speech.presets import Plan, plan_of
from lingua_scheduler.speech.voices import MAX_RTF, NATURAL_WRONG, badly_said, chosen
from speech.engines.tiny_models import kokoro

pytestmark = pytest.mark.stress

DEFAULT = plan_of(["default"])
NATURAL = Spec("tts", "kokoro", {"languages": "+".join(badly_said(DEFAULT))})


@pytest.fixture(name="store")
def a_folder_with_the_voice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Have a small network where the real one would be installed."""
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path))
    kokoro(tmp_path / "kokoro", tuple({name for name, _ in VOICES.values()}))
    (tmp_path / "kokoro" / "manifest.json").write_text("{}")
    return Store(tmp_path)


def choose(store: Store, plan: Plan | None = None, *, again: bool = False) -> tuple[Plan, str]:
    return asyncio.run(chosen(plan or DEFAULT, store, again=again))


def kept_as(store: Store, rtf: float) -> None:
    """Have it measured before."""
    key = calibrate.key_of([str(NATURAL)], 0, MAX_RTF)
    assert calibrate.keep(store.root, key, Calibration(1, (Round(1, rtf),), 3.0))


def test_a_quick_one_is_taken_for_what_the_others_say_badly_and_measured_once(
    store: Store,
) -> None:
    plan, told = choose(store)
    assert (plan.specs[0], told) == (NATURAL, "")
    assert plan.specs[1:] == DEFAULT.specs
    # The second time nothing is loaded: what was measured is kept.
    (store.root / "kokoro" / "kokoro.onnx").unlink()
    assert choose(store) == (plan, "")


def test_a_slow_one_is_not_taken_and_that_is_told(store: Store) -> None:
    kept_as(store, MAX_RTF + 0.1)
    plan, told = choose(store)
    assert plan == DEFAULT
    assert f"{MAX_RTF + 0.1:.2f} of the length" in told
    assert "--voice natural" in told
    # The small network is quick when it is measured again.
    assert choose(store, again=True)[0].specs[0] == NATURAL


def test_one_that_is_not_installed_is_none(tmp_path: Path) -> None:
    assert choose(Store(tmp_path)) == (DEFAULT, "")


def test_one_that_does_not_work_is_told_and_costs_nothing_else(store: Store) -> None:
    (store.root / "kokoro" / "kokoro.onnx").write_bytes(b"nonsense")
    plan, told = choose(store)
    assert plan == DEFAULT
    assert "does not work here" in told


def test_who_names_the_engines_has_these_voices_alone(store: Store) -> None:
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
    assert badly_said(plan_of(["asr=whisper", *words])) == languages


def test_every_natural_language_has_a_sentence_to_measure_with() -> None:
    assert set(NATURAL_WRONG) <= set(calibrate.SENTENCES)
    assert set(NATURAL_WRONG) <= set(VOICES)
