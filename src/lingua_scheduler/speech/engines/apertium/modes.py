"""Where Apertium is and which directions it has: programs, libraries, mode files.

A mode file is one line of programs joined by `|`, as a shell would read it. It is read here, never
run by a shell: paths are turned to where the tree lies, and a step is a list of arguments.
Used by the engine at load; starts nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_scheduler.speech.engine import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODES: Final = Path("usr/share/apertium/modes")
SYSTEM: Final = Path("/")
NAME = re.compile(r"(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})(?:_(?P<region>[A-Z]{2}))?")
# Apertium's names of languages -> ours. A mode between others is left alone.
LANGUAGES: Final[Mapping[str, str]] = {
    "eng": "en", "en": "en", "spa": "es", "es": "es", "fra": "fr", "fr": "fr", "ita": "it",
    "it": "it", "por": "pt", "pt": "pt", "cat": "ca", "ca": "ca",
}  # fmt: skip
REGIONS: Final = frozenset({"pt-br"})

Direction = tuple[str, str]


class Mode(NamedTuple):
    """One direct direction: its programs, each with arguments, and the variables they need."""

    direction: Direction
    steps: tuple[tuple[str, ...], ...]
    environment: Mapping[str, str]


class Place(NamedTuple):
    """Where programs or pairs lie: `root/usr/...`."""

    root: Path

    @property
    def programs(self) -> Path:
        """Return the folder of programs."""
        return self.root / "usr/bin"

    def libraries(self) -> tuple[Path, ...]:
        """Return the folders of shared libraries, the architecture's own first."""
        lib = self.root / "usr/lib"
        return (*sorted(path for path in lib.glob("*-linux-*") if path.is_dir()), lib)


def find_modes(places: Iterable[Place]) -> dict[Direction, Mode]:
    """Return every direction whose programs and data are here; the first place that has it."""
    places = tuple(places)
    found: dict[Direction, Mode] = {}
    for place in places:
        for path in sorted((place.root / MODES).glob("*.mode")):
            direction = direction_of(path.stem)
            if direction is not None and direction not in found:
                mode = read_mode(path, direction, place, places)
                if mode is not None:
                    found[direction] = mode
    return found


def direction_of(name: str) -> Direction | None:
    """Return what a mode's name says, or None if it is of no use here."""
    match = NAME.fullmatch(name)
    if match is None or match["source"] not in LANGUAGES or match["target"] not in LANGUAGES:
        return None
    target = LANGUAGES[match["target"]]
    if match["region"]:
        target = f"{target}-{match['region'].lower()}"
        if target not in REGIONS:
            return None
    return LANGUAGES[match["source"]], target


def read_mode(
    path: Path, direction: Direction, place: Place, places: tuple[Place, ...]
) -> Mode | None:
    """Read a mode file; None if a program or a file that it names is not here."""
    steps = []
    home: Place | None = None
    for part in path.read_text(encoding="utf-8").strip().split("|"):
        words = shlex.split(part)
        program, lies_in = _program(words[0], places) if words else (None, place)
        if program is None:
            return None
        home = home or lies_in
        arguments = [_moved(word, place) for word in words[1:]]
        if any(word.startswith("/") and not Path(word).is_file() for word in arguments):
            return None
        steps.append((program, *arguments))
    return Mode(direction, tuple(steps), _environment(home)) if home else None


def _program(name: str, places: tuple[Place, ...]) -> tuple[str | None, Place]:
    for place in places:
        path = place.programs / name
        if os.access(path, os.X_OK):
            return str(path), place
    return shutil.which(name), Place(SYSTEM)


def _moved(word: str, place: Place) -> str:
    """Turn a path of the package into one of the tree."""
    if not word.startswith("/") or place.root == SYSTEM:
        return word
    return str(place.root / word.lstrip("/"))


def _environment(home: Place) -> dict[str, str]:
    """Return the variables of a program: a known locale, and the tree's libraries if it has any."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    kept["LC_ALL"] = "C.UTF-8"
    if home.root != SYSTEM:
        kept["LD_LIBRARY_PATH"] = ":".join(str(path) for path in home.libraries())
    return kept


def wanted(listed: str, found: Mapping[Direction, Mode]) -> tuple[Direction, ...]:
    """Return the directions that `pairs=en-es+es-en` asks for; empty: all that were found."""
    if not listed.strip():
        return tuple(found)
    asked = []
    for text in re.split(r"[+;\s]+", listed.strip()):
        source, _, target = text.replace(">", "-").partition("-")
        if not source or not target:
            raise ModelMissing(f"{text!r} is not a direction like en-es")
        asked.append((source.lower(), target.lower()))
    return tuple(asked)
