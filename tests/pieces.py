"""How the tests are divided: pieces that `lanes.py` runs beside each other. No processes here.

A piece is some test files of one category, or a part of a long one, whose tests run one after
another in one process. How long a file takes is an estimate: recorded in durations.txt, or its
category's for a file that is not there. A wrong estimate costs time; every test still runs once.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

# The pattern of pytest, too (python_files in pyproject.toml): else a file would never run.
PATTERN = "test_*.py"
# Where pytest looks, too (testpaths).
FOLDERS = ("packages", "tests")
# A piece has at least this much work, so that starting Python and pytest costs little beside it,
# and not much more, so that lanes end at about the same time.
PIECE_S = 25.0
# A longer file is divided.
LONG_S = 60.0
# Shorter files are not recorded.
RECORDED_S = 0.1
CATEGORY = re.compile(r"^pytestmark = .*\bpytest\.mark\.(\w+)", re.MULTILINE)
# The mark of tests that measure time.
ALONE = "pytest.mark.alone"
# Its models take 700 MB, and its engines use every core.
ONE_AT_A_TIME = "speech"


@dataclass(frozen=True)
class Cost:
    """What tests take: seconds, and seconds of a core."""

    seconds: float
    cpu_s: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.cpu_s + other.cpu_s)


# For a file that is not recorded, by category.
USUAL = {
    "unit": Cost(0.3, 0.3),
    "store": Cost(1.0, 0.3),
    "model": Cost(20.0, 20.0),
    "cluster": Cost(10.0, 2.0),
    "stress": Cost(10.0, 3.0),
    "speech": Cost(10.0, 10.0),
    "browser": Cost(40.0, 20.0),
}
UNKNOWN = Cost(10.0, 5.0)
NOTHING = Cost(0.0, 0.0)


@dataclass(frozen=True)
class Piece:
    """Files of one category, in the order in which pytest runs them."""

    category: str
    files: tuple[str, ...]
    cost: Cost
    # Which of how many parts of the tests in these files, each with every so-many-th test.
    part: int = 0
    parts: int = 1
    # The tests that measure time, and only those; all other pieces leave them out.
    is_alone: bool = False

    @property
    def cores(self) -> float:
        """How many cores it keeps busy."""
        return self.cost.cpu_s / self.cost.seconds if self.cost.seconds else 1.0


def find_files(root: Path) -> dict[str, str]:
    """Return the category of every test file, by its path below the root."""
    found = sorted(file for folder in FOLDERS for file in (root / folder).rglob(PATTERN))
    return {str(file.relative_to(root)): category_of(file.read_text("utf-8")) for file in found}


def category_of(text: str) -> str:
    """Return a module's category; empty if it has none, which its collection refuses."""
    found = CATEGORY.search(text)
    return found[1] if found else ""


def find_alone(root: Path, files: Iterable[str]) -> list[str]:
    """Return the files that have tests which measure time."""
    return [file for file in files if ALONE in (root / file).read_text("utf-8")]


def read_durations(text: str) -> dict[str, Cost]:
    """Read durations.txt: seconds, seconds of a core, path."""
    rows = (line.split(maxsplit=2) for line in text.splitlines() if not line.startswith("#"))
    return {path: Cost(float(seconds), float(cpu_s)) for seconds, cpu_s, path in rows}


def write_durations(costs: Mapping[str, Cost]) -> str:
    """Return what `read_durations` reads, without the short ones."""
    head = "# seconds, seconds of a core, file: see docs/internals.md, Tests\n"
    rows = sorted(costs.items())
    return head + "".join(
        f"{cost.seconds:6.1f} {cost.cpu_s:6.1f} {path}\n"
        for path, cost in rows
        if cost.seconds >= RECORDED_S
    )


def divide(
    files: Mapping[str, str], recorded: Mapping[str, Cost], alone: Iterable[str] = ()
) -> list[Piece]:
    """Put every file into one piece; return them in the order in which they should begin.

    Those that run one at a time come first, because they wait for each other; then the longest.
    The tests of some files that measure time come last.
    """
    pieces: list[Piece] = []
    for category in sorted(set(files.values())):
        usual = USUAL.get(category, UNKNOWN)
        costs = {file: recorded.get(file, usual) for file in files if files[file] == category}
        pieces += _of_category(category, costs)
    last = [Piece(files[file], (file,), UNKNOWN, is_alone=True) for file in alone]
    return [*sorted(pieces, key=_precedence), *last]


def _of_category(category: str, costs: Mapping[str, Cost]) -> list[Piece]:
    """Long files are pieces of their own; short ones are put together with their neighbours."""
    alone = [file for file in sorted(costs) if costs[file].seconds >= PIECE_S]
    pieces = [piece for file in alone for piece in _of_long_file(category, file, costs[file])]
    together: list[str] = []
    cost = NOTHING
    for file in sorted(set(costs) - set(alone)):
        together.append(file)
        cost += costs[file]
        if cost.seconds >= PIECE_S:
            pieces.append(Piece(category, tuple(together), cost))
            together, cost = [], NOTHING
    if together:
        pieces.append(Piece(category, tuple(together), cost))
    return pieces


def _of_long_file(category: str, file: str, cost: Cost) -> list[Piece]:
    parts = math.ceil(cost.seconds / LONG_S)
    each = Cost(cost.seconds / parts, cost.cpu_s / parts)
    return [Piece(category, (file,), each, part, parts) for part in range(parts)]


@dataclass(frozen=True)
class Part:
    """What one process did of a file that is divided."""

    collected: int
    ran: tuple[str, ...]


def is_whole(parts: Sequence[Part]) -> bool:
    """Tell whether every test ran in exactly one of the parts.

    Not so if a file has other tests, or another order of them, each time that it is imported.
    """
    names = [name for part in parts for name in part.ran]
    return {part.collected for part in parts} == {len(names)} == {len(set(names))}


def _precedence(piece: Piece) -> tuple[bool, float]:
    return piece.category != ONE_AT_A_TIME, -piece.cost.seconds


def choose(waiting: Iterable[Piece], running: Sequence[Piece], cores: float) -> Piece | None:
    """Return the first piece that may begin now: there are cores for it, and memory.

    A piece that measures time, or needs more cores than there are, runs when nothing else does.
    The next of those that run one at a time waits for no core: it would wait for all short ones,
    and they would be left for the end.
    """
    if any(piece.is_alone for piece in running):
        return None
    free = cores - sum(piece.cores for piece in running)
    for piece in waiting:
        is_next = piece.category == ONE_AT_A_TIME
        if is_next and any(other.category == ONE_AT_A_TIME for other in running):
            continue
        is_fitting = (piece.cores <= free or is_next) and not piece.is_alone
        if is_fitting or not running:
            return piece
    return None
