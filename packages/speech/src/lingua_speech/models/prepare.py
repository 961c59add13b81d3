"""Prepares the files of a model once, at install: networks (`whisper`, `marian`), transcripts.

Used by `store`.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import shutil
import wave
from typing import TYPE_CHECKING, NamedTuple

from lingua_speech.models.errors import ModelCorrupt, PreparationMissing
from lingua_speech.models.marian import convert
from lingua_speech.models.whisper import optimise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lingua_speech.models.catalogue import Model


class Preparation(NamedTuple):
    """One preparation: a function on the model's folder, and the package it needs."""

    run: Callable[[str, Path], None]
    package: str = ""


def check(model: str, step: str) -> None:
    """Raise `PreparationMissing` if the package is missing, before anything is downloaded."""
    package = STEPS[step].package
    if package and importlib.util.find_spec(package) is None:
        raise PreparationMissing(model, package)


def check_model(model: Model) -> None:
    """Raise `PreparationMissing` if a model needs a preparation that cannot run."""
    if model.prepare:
        check(model.name, model.prepare)


def run(model: str, step: str, folder: Path) -> None:
    """Prepare a model in its folder."""
    check(model, step)
    try:
        STEPS[step].run(model, folder)
    except ImportError as error:  # the package is installed, but incompatible with others
        raise PreparationMissing(model, STEPS[step].package, str(error)) from error


def read_prompts(model: str, folder: Path) -> None:
    """Write `transcripts.tsv` from the list of texts of Asterisk's sounds."""
    lists = sorted(folder.glob("doc/*/core-sounds-*.txt.gz"))
    if len(lists) != 1:
        raise ModelCorrupt(model, f"{len(lists)} lists of texts, not one")
    _write_transcripts(model, folder, _prompts(gzip.decompress(lists[0].read_bytes()).decode()))


def _prompts(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, words = line.partition(":")
        words = " ".join(words.split())
        # A text in brackets, `[ascending tones]`, describes a sound and is not spoken.
        if colon and not line.startswith(";") and words and not re.fullmatch(r"\[.*\]", words):
            yield key.strip(), words


def read_utterances(model: str, folder: Path) -> None:
    """Write `transcripts.tsv` from a list in the format of Sphinx: `<s> text </s> (key)`."""
    pattern = re.compile(r"<s>\s*(.*?)\s*</s>\s*\((.+)\)")
    lines = (folder / "transcription").read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := pattern.fullmatch(line.strip()))]
    _write_transcripts(model, folder, ((m[2], " ".join(m[1].split())) for m in found))


def _write_transcripts(model: str, folder: Path, texts: Iterator[tuple[str, str]]) -> None:
    """Write the texts that have a recording; a model without any is corrupt."""
    known = dict(texts)
    spoken = {k: text for k, text in known.items() if (folder / "wav" / f"{k}.wav").is_file()}
    if not spoken:
        raise ModelCorrupt(model, "no recording has a text")
    for key in spoken:
        _check_recording(model, folder / "wav" / f"{key}.wav")
    lines = "".join(f"{key}\t{text}\n" for key, text in sorted(spoken.items()))
    (folder / "transcripts.tsv").write_text(lines, encoding="utf-8")


def _check_recording(model: str, path: Path) -> None:
    try:
        with wave.open(str(path), "rb") as sound:
            is_plain = sound.getnchannels() == 1 and sound.getsampwidth() == 2
    except (wave.Error, EOFError) as error:
        raise ModelCorrupt(model, f"{path.name}: {error}") from error
    if not is_plain:
        raise ModelCorrupt(model, f"{path.name} is not 16-bit mono")


def share_pieces(_: str, folder: Path) -> None:
    """Copy the sentencepiece model of the source to the target: Argos has one for both."""
    for source in folder.glob("*/source.spm"):
        shutil.copyfile(source, source.with_name("target.spm"))


STEPS = {
    "whisper": Preparation(optimise, "onnx"),
    "marian": Preparation(convert, "ctranslate2"),
    "argos": Preparation(share_pieces),
    "prompts": Preparation(read_prompts),
    "utterances": Preparation(read_utterances),
}
