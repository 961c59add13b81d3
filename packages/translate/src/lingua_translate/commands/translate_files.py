"""The files of `lingua translate`: captions and JSON at the end, speech as it comes.

Also checks that all of them can be written, before anything is spoken. A file that cannot be
written ends neither the run nor the other files; it is reported, and in the exit code.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from lingua_translate import NullListener
from lingua_translate.outputs import SpeechFile, as_json, captions_of, path_for
from lingua_wire.captions import to_srt, to_vtt
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from lingua_translate import InterpretationReport, Rendition, TranslatedUtterance

STDOUT: Final = Path("-")


def is_on_stdout(args: argparse.Namespace) -> bool:
    """Tell whether standard output is for a program."""
    return STDOUT in (args.srt, args.vtt, args.json, args.out_audio)


class OutputFiles(NullListener):
    """The output files of one run; a listener that writes the translated speech."""

    def __init__(self, args: argparse.Namespace, tell: Callable[[str], None]) -> None:
        self._args = args
        # Called at once when speech cannot be written any more.
        self._tell = tell
        # With two ways there is one file, with both languages.
        self._targets: list[str] = args.targets or [""]
        # Language -> the file of its speech.
        self._speeches: dict[str, SpeechFile] = {}
        # Languages whose speech cannot be written any more.
        self._given_up: set[str] = set()
        # Speech that goes to standard output.
        self._for_stdout: BinaryIO | None = None
        # Files that could not be written.
        self.problems: list[str] = []

    def check(self, recording: Path | None) -> None:
        """Raise if a file cannot be written, or two of them have the same place."""
        taken = {recording.resolve(): "is the file to translate"} if recording is not None else {}
        for option, path in self._places():
            place = path.resolve() if path != STDOUT else path
            if place in taken:
                raise ConfigError(option, f"{path} {taken[place]}")
            if place == STDOUT:
                taken[place] = "(standard output) takes one file, in one language"
            elif problem := _problem(path):
                raise ConfigError("", f"cannot write {path}: {problem}")
            elif not place.exists() or place.is_file():
                taken[place] = f"is for {option} already"

    def _places(self) -> Iterator[tuple[str, Path]]:
        """Give every file that will be written."""
        args = self._args
        for option, path in (
            ("--srt", args.srt),
            ("--vtt", args.vtt),
            ("--out-audio", args.out_audio),
        ):
            if path:
                yield from ((option, path_for(path, code, self._targets)) for code in self._targets)
        if args.json:
            yield "--json", args.json

    # Speech, as it comes

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Write the translated speech."""
        target = rendition.target if self._args.targets else ""
        if not self._args.out_audio or target in self._given_up:
            return
        path = path_for(self._args.out_audio, target, self._targets)
        if target not in self._speeches:
            self._speeches[target] = SpeechFile(path if path != STDOUT else self._spool())
        try:
            self._speeches[target].add(utterance.start_ms, rendition)
        except OSError as error:
            self._given_up.add(target)
            self._fail(path, error)
            self._tell(self.problems[-1])

    def _spool(self) -> BinaryIO:
        """Return a temporary file: standard output gets a file only when it is complete."""
        self._for_stdout = tempfile.TemporaryFile()  # noqa: SIM115 until it is copied
        return self._for_stdout

    def _fail(self, path: Path, error: OSError) -> None:
        self.problems.append(f"cannot write {path}: {error.strerror}")

    # Everything else, at the end

    def write(self, report: InterpretationReport) -> None:
        """Write the remaining files; standard output may raise OSError."""
        for speech in self._speeches.values():
            with suppress(OSError):  # It was reported.
                speech.close()
        if self._for_stdout is not None:
            self._for_stdout.seek(0)
            shutil.copyfileobj(self._for_stdout, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        for path, text in self._texts(report):
            try:
                _put(path, text)
            except OSError as error:
                if path == STDOUT:
                    raise
                self._fail(path, error)

    def _texts(self, report: InterpretationReport) -> Iterator[tuple[Path, str]]:
        args = self._args
        for target in self._targets:
            captions = captions_of(report, target)
            what = f"{args.spoken} to {target}" if target else " and ".join(args.two_way)
            if args.srt:
                yield path_for(args.srt, target, self._targets), to_srt(captions)
            if args.vtt:
                text = to_vtt(captions, f"{what}, by lingua translate")
                yield path_for(args.vtt, target, self._targets), text
        if args.json:
            yield args.json, as_json(report, args.spoken or "auto")


def _put(path: Path, text: str) -> None:
    if path == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        path.write_text(text, encoding="utf-8")


def _problem(path: Path) -> str:
    """Return why a file cannot be written there; empty if it can."""
    if path.is_dir() or not path.name:
        return "it is a directory"
    place = path if path.exists() else path.parent
    if not place.exists() or not (place == path or place.is_dir()):
        return "no such directory"
    return "" if os.access(place, os.W_OK) else "not allowed"
