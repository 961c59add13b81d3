"""The real models of the group `bench`, installed if they are missing: about 160 MB.

This is how a fresh machine gets them for the other tests of speech; a second run uses no network.
"""

from __future__ import annotations

import shlex
import subprocess
import wave
from pathlib import Path

import pytest

from lingua_speech.models import (
    ModelStore,
    apertium_environment,
    default_store,
)

pytestmark = pytest.mark.speech


@pytest.fixture(name="store", scope="module")
def installed_bench() -> ModelStore:
    store = default_store()
    store.install("bench")
    return store


@pytest.mark.parametrize("name", default_store().catalogue.groups["bench"])
def test_every_model_of_the_bench_is_whole(store: ModelStore, name: str) -> None:
    assert store.verify(name) == []


@pytest.mark.parametrize("name", ["librivox-en", "prompts-en", "prompts-es"])
def test_every_transcript_has_its_recording(store: ModelStore, name: str) -> None:
    folder = store.path(f"recordings-{name}")
    lines = (folder / "transcripts.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= (5 if name == "librivox-en" else 400)
    for line in lines:
        key, text = line.split("\t")
        assert text
        with wave.open(str(folder / "wav" / f"{key}.wav"), "rb") as sound:
            assert (sound.getnchannels(), sound.getsampwidth()) == (1, 2)
            assert sound.getnframes() > 0


@pytest.mark.parametrize(
    ("name", "mode", "text", "wanted"),
    [
        ("apertium-eng-spa", "eng-spa", "I need a doctor", "Necesito un doctor"),
        ("apertium-eng-spa", "spa-eng", "La casa es grande", "The house is big"),
        ("apertium-fra-spa", "fr-es", "La maison est grande", "La casa es grande"),
        ("apertium-fra-spa", "es-fr", "La casa es grande", "La maison est grande"),
    ],
)
def test_the_programs_translate_from_their_folder_alone(
    store: ModelStore, name: str, mode: str, text: str, wanted: str
) -> None:
    """Run the pipeline of a mode with an environment of the model's own folders only."""
    root = store.path(name) / "root"
    ours = {key: value.split(":")[0] for key, value in apertium_environment(store).items()}
    line = (root / "usr/share/apertium/modes" / f"{mode}.mode").read_text()
    line = line.replace("/usr/share/apertium", str(root / "usr/share/apertium"))
    data = f"{text}\n"
    for stage in line.replace("$1", "-g").replace("$2", "").split("|"):
        words = shlex.split(stage)
        program = Path(ours["PATH"]) / words[0]
        data = subprocess.run(
            [program, *words[1:]],
            input=data,
            capture_output=True,
            text=True,
            check=True,
            env={**ours, "LC_ALL": "C.UTF-8"},
            timeout=60,
        ).stdout
    assert data.strip() == wanted
