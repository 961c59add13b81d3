"""The installed parts of Apertium and the directions they offer: programs, libraries, mode files.

A mode file is one line of programs joined by `|`, in shell syntax. It is parsed here and never run
by a shell: paths are rewritten to the location of the tree, and a step is a list of arguments. Used
by the engine while it loads; starts nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.engine import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MODES: Final = Path("usr/share/apertium/modes")
SYSTEM: Final = Path("/")
NAME = re.compile(r"(?P<source>[a-z]{2,3})-(?P<target>[a-z]{2,3})(?:_(?P<region>[A-Z]{2}))?")
# Apertium's codes of languages -> ours. Modes of other languages are ignored.
LANGUAGES: Final[Mapping[str, str]] = {
    "eng": "en",
    "en": "en",
    "spa": "es",
    "es": "es",
    "fra": "fr",
    "fr": "fr",
    "ita": "it",
    "it": "it",
    "por": "pt",
    "pt": "pt",
    "cat": "ca",
    "ca": "ca",
}
REGIONS: Final = frozenset({"pt-br"})

Direction = tuple[str, str]


class Mode(NamedTuple):
    """One direct direction: its programs, each with arguments, and their environment."""

    direction: Direction
    steps: tuple[tuple[str, ...], ...]
    environment: Mapping[str, str]


class ApertiumTree(NamedTuple):
    """A tree with programs or language pairs: `root/usr/...`."""

    root: Path

    @property
    def programs(self) -> Path:
        """Return the folder of programs."""
        return self.root / "usr/bin"

    def libraries(self) -> tuple[Path, ...]:
        """Return the folders of shared libraries, the architecture's own first."""
        lib = self.root / "usr/lib"
        return (*sorted(path for path in lib.glob("*-linux-*") if path.is_dir()), lib)


def find_modes(trees: Iterable[ApertiumTree]) -> dict[Direction, Mode]:
    """Return every direction whose programs and data exist, from the first tree that has it."""
    trees = tuple(trees)
    found: dict[Direction, Mode] = {}
    for tree in trees:
        for path in sorted((tree.root / MODES).glob("*.mode")):
            direction = direction_of(path.stem)
            if direction is not None and direction not in found:
                mode = read_mode(path, direction, tree, trees)
                if mode is not None:
                    found[direction] = mode
    return found


def direction_of(name: str) -> Direction | None:
    """Return the direction of a mode's name, or None if it is not supported."""
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
    path: Path, direction: Direction, tree: ApertiumTree, trees: tuple[ApertiumTree, ...]
) -> Mode | None:
    """Read a mode file; None if a program or a file that it names is missing."""
    steps = []
    home: ApertiumTree | None = None
    for part in path.read_text(encoding="utf-8").strip().split("|"):
        words = shlex.split(part)
        program, program_tree = _program(words[0], trees) if words else (None, tree)
        if program is None:
            return None
        home = home or program_tree
        arguments = [_relocated(word, tree) for word in words[1:]]
        if any(word.startswith("/") and not Path(word).is_file() for word in arguments):
            return None
        steps.append((program, *arguments))
    return Mode(direction, tuple(steps), _environment(home)) if home else None


def _program(name: str, trees: tuple[ApertiumTree, ...]) -> tuple[str | None, ApertiumTree]:
    for tree in trees:
        path = tree.programs / name
        if os.access(path, os.X_OK):
            return str(path), tree
    return shutil.which(name), ApertiumTree(SYSTEM)


def _relocated(word: str, tree: ApertiumTree) -> str:
    """Rewrite a path of the package as a path in the tree."""
    if not word.startswith("/") or tree.root == SYSTEM:
        return word
    return str(tree.root / word.lstrip("/"))


def _environment(home: ApertiumTree) -> dict[str, str]:
    """Return the environment of a program: a known locale, and the libraries of its tree."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ}
    kept["LC_ALL"] = "C.UTF-8"
    if home.root != SYSTEM:
        kept["LD_LIBRARY_PATH"] = ":".join(str(path) for path in home.libraries())
    return kept


def requested_directions(listed: str, found: Mapping[Direction, Mode]) -> tuple[Direction, ...]:
    """Return the directions of `pairs=en-es+es-en`; all that were found if it is empty."""
    if not listed.strip():
        return tuple(found)
    requested = []
    for text in re.split(r"[+;\s]+", listed.strip()):
        source, _, target = text.replace(">", "-").partition("-")
        if not source or not target:
            raise ModelMissing(f"{text!r} is not a direction like en-es")
        requested.append((source.lower(), target.lower()))
    return tuple(requested)
