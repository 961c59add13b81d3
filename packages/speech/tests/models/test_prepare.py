"""Transcripts made at install, and the error if the package for an encoder is missing."""

from __future__ import annotations

import gzip
import re
import sys
import wave
from pathlib import Path

import pytest

from lingua_cli.extras import install_command
from lingua_speech.models import ModelCorrupt, ModelStore, PreparationMissing, prepare
from models.depot import catalogue, model, running_depot, tgz

pytestmark = pytest.mark.unit

PROMPTS = """; Core sounds

agent-user: Please  log in: now
ascending-2tone: [ascending tones]
digits/1: one
letters/at: at [@]
no-recording: nobody said this
empty:
"""


def record(folder: Path, key: str, channels: int = 1, width: int = 2) -> None:
    path = folder / "wav" / f"{key}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(8000)
        sound.writeframes(bytes(channels * width * 80))


def add_prompts(folder: Path, text: str = PROMPTS) -> None:
    place = folder / "doc/asterisk-core-sounds-en"
    place.mkdir(parents=True)
    (place / "core-sounds-en.txt.gz").write_bytes(gzip.compress(text.encode()))


def test_prompts_with_a_recording_become_transcripts(tmp_path: Path) -> None:
    add_prompts(tmp_path)
    for key in ("agent-user", "ascending-2tone", "digits/1", "letters/at", "empty"):
        record(tmp_path, key)
    prepare.run("m", "prompts", tmp_path)
    assert (tmp_path / "transcripts.tsv").read_text(encoding="utf-8") == (
        "agent-user\tPlease log in: now\ndigits/1\tone\nletters/at\tat [@]\n"
    )


def test_utterances_in_the_form_of_sphinx_become_transcripts(tmp_path: Path) -> None:
    (tmp_path / "transcription").write_text("<s> he was  not </s> (a-1)\n\n<s> x </s> (gone)\n")
    record(tmp_path, "a-1")
    prepare.run("m", "utterances", tmp_path)
    assert (tmp_path / "transcripts.tsv").read_text() == "a-1\the was not\n"


@pytest.mark.parametrize(("channels", "width"), [(2, 2), (1, 1)])
def test_a_recording_that_is_not_16_bit_mono_is_refused(
    tmp_path: Path, channels: int, width: int
) -> None:
    add_prompts(tmp_path)
    record(tmp_path, "agent-user", channels, width)
    with pytest.raises(ModelCorrupt, match="16-bit mono"):
        prepare.run("m", "prompts", tmp_path)


def test_a_recording_that_is_none_is_refused(tmp_path: Path) -> None:
    add_prompts(tmp_path)
    record(tmp_path, "agent-user")
    (tmp_path / "wav/agent-user.wav").write_bytes(b"RIFF")
    with pytest.raises(ModelCorrupt, match=r"agent-user\.wav"):
        prepare.run("m", "prompts", tmp_path)


def test_recordings_without_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelCorrupt, match="0 lists of texts"):
        prepare.run("m", "prompts", tmp_path)
    add_prompts(tmp_path)
    with pytest.raises(ModelCorrupt, match="no recording has a text"):
        prepare.run("m", "prompts", tmp_path)


def test_the_missing_package_is_named_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python treats a module marked like this as a missing one.
    monkeypatch.setitem(sys.modules, "onnx", None)
    with running_depot() as depot:
        download = depot.add("a.tgz", tgz({"package/encoder.onnx": b"x"}))
        whisper = model("whisper", download, prepare="whisper")
        with pytest.raises(
            PreparationMissing,
            match=re.escape(f"run: {install_command('lingua-speech', 'engines')}"),
        ):
            ModelStore(tmp_path, catalogue(depot.url, whisper)).install("whisper")
        assert depot.asked == []
