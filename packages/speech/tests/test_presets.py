"""The values of `--engines`: a preset, words, a file; and invalid ones."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from lingua_speech.models import ModelStore
from lingua_speech.plugins import Spec
from lingua_speech.presets import Voice, missing_models, plan_of
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

FILE = """
[[engine]]
role = "asr"
name = "whisper"
options = { model = "small", threads = 2, fast = true }

[[engine]]
role = "mt"
name = "apertium"

[crew]
workers = { asr = 2 }
memory_mb = 3000
load_s = 60
"""


def test_words_are_engines_and_each_belongs_to_a_stage() -> None:
    plan = plan_of(["asr=whisper:model=small", "vad=silero", "mt=apertium", "tts=espeak"])
    assert [spec.name for spec in plan.of("asr")] == ["whisper", "silero"]
    assert [spec.name for spec in plan.of("nmt")] == ["apertium"]
    assert [spec.name for spec in plan.of("tts")] == ["espeak"]
    assert plan.groups == ()


def test_the_default_has_the_better_voice_only_where_its_library_is() -> None:
    plan = plan_of(["default"])
    voices = [spec.name for spec in plan.of("tts")]
    assert voices == (["pico", "espeak"] if find_spec("ttspico") else ["espeak"])
    assert plan.specs[0] == Spec("asr", "whisper", {"model": "base"})


@pytest.mark.parametrize(("voice", "first"), [(None, ""), ("fast", ""), ("natural", "kokoro")])
def test_a_voice_is_chosen_by_a_word(voice: Voice | None, first: str) -> None:
    plan = plan_of(["default"], voice)
    usual = [spec.name for spec in plan_of(["default"]).of("tts")]
    assert [spec.name for spec in plan.of("tts")] == usual
    assert [spec.name for spec in plan.of("natural")] == ([first] if first else [])
    assert plan.groups == (("default", "natural") if first else ("default",))


def test_the_natural_voice_has_to_be_installed(tmp_path: Path) -> None:
    assert "kokoro" in missing_models(plan_of(["default"], "natural"), ModelStore(tmp_path))
    assert "kokoro" not in missing_models(plan_of(["default"]), ModelStore(tmp_path))


def test_a_voice_is_named_by_a_word_only_where_the_engines_are_not() -> None:
    with pytest.raises(ConfigError, match="tts=kokoro") as refused:
        plan_of(["asr=whisper", "tts=espeak"], "natural")
    assert refused.value.path == "--voice"


def test_models_of_the_default_that_are_not_installed_are_named(tmp_path: Path) -> None:
    missing = missing_models(plan_of(["default"]), ModelStore(tmp_path))
    assert {"whisper-base", "silero-vad", "apertium", "apertium-eng-spa"} <= set(missing)
    assert missing_models(plan_of(["asr=whisper"]), ModelStore(tmp_path)) == ()


def test_a_file_says_the_same_and_more(tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(FILE)
    plan = plan_of([str(path)])
    options = {"model": "small", "threads": "2", "fast": "true"}
    assert plan.specs == (Spec("asr", "whisper", options), Spec("mt", "apertium"))
    assert (plan.workers.workers, plan.workers.memory_mb, plan.workers.load_s) == (
        {"asr": 2},
        3000,
        60,
    )
    # The setting of a stage in a file takes precedence.
    assert plan.with_workers(3).workers.workers == {"asr": 2, "nmt": 3, "tts": 3, "natural": 3}
    assert plan.with_memory(0).workers.memory_mb == 0


@pytest.mark.parametrize(
    "words",
    [
        ["whisper"],
        ["asr=nobody"],
        ["mt=whisper"],
        ["mt=apertium", "tts=espeak"],
        ["vad=silero"],
        ["no-such-file.toml"],
        ["default", "asr=whisper"],
    ],
)
def test_what_cannot_be_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        plan_of(words)
    assert refused.value.path == "engines"


@pytest.mark.parametrize(
    "text",
    [
        "engine = 3",
        "[[engine]]\nrole = 'asr'",
        "[[engine]]\nrole = 'asr'\nname = 'whisper'\nhat = 1",
        "[[engine]]\nrole = 'asr'\nname = 'whisper'\n[crew]\nworkers = { asr = 0 }",
        "[[engine]]\nrole = 'asr'\nname = 'whisper'\n[crew]\nworkers = { cook = 1 }",
        "[[engine]]\nrole = 'a=b'\nname = 'whisper'",
        "[[",
    ],
)
def test_a_file_with_anything_unknown_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        plan_of([str(path)])
