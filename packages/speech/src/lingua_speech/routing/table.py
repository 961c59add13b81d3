"""The measured scores of routes: reads and writes the table `scores.tsv`.

`lingua bench translation --write` writes it; the router and `lingua languages` read it. It has one
line for each direction, route and set of sentences, with tabs between the fields, and a header line
with the names of the fields.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

FILE: Final = "scores.tsv"


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """The score of one route on one set of sentences."""

    # `en>es`; the route as `TranslationRoute` writes it; the name of the set.
    direction: str
    route: str
    set: str
    sentences: int
    chrf: float
    bleu: float
    p50_ms: float
    p95_ms: float
    date: str


HEAD: Final = "\t".join(Score.__struct_fields__)


def load(path: Path | None = None) -> tuple[Score, ...]:
    """Read a table, by default the one of this package; raises `ConfigError`."""
    try:
        if path is None:
            return read(resources.files(__package__).joinpath(FILE).read_text("utf-8"))
        return read(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("scores", f"cannot read {path or FILE}: {error}") from error


def read(text: str) -> tuple[Score, ...]:
    """Parse a table; raises `ConfigError` with the number of an invalid line."""
    lines = text.splitlines()
    if not lines or lines[0] != HEAD:
        raise ConfigError("scores", f"the first line must be the names of the fields: {HEAD!r}")
    return tuple(_score(number, line) for number, line in enumerate(lines[1:], 2) if line.strip())


def _score(number: int, line: str) -> Score:
    fields = line.split("\t")
    if len(fields) != len(Score.__struct_fields__):
        raise ConfigError("scores", f"line {number} has {len(fields)} fields")
    named = dict(zip(Score.__struct_fields__, fields, strict=True))
    try:
        # All fields are strings, so numbers are converted.
        return msgspec.convert(named, Score, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError("scores", f"line {number}: {error}") from error


def written(scores: Iterable[Score]) -> str:
    """Return a table as text, in an order that gives small diffs."""
    rows = sorted(scores, key=lambda one: (one.direction, one.set, -one.chrf, one.route))
    lines = ["\t".join(str(getattr(row, name)) for name in Score.__struct_fields__) for row in rows]
    return "\n".join([HEAD, *lines]) + "\n"


def merged(old: Iterable[Score], new: Iterable[Score]) -> tuple[Score, ...]:
    """Return the scores of both; new ones replace old ones."""
    found = {(one.direction, one.route, one.set): one for one in (*old, *new)}
    return tuple(found.values())


def default_path() -> Path:
    """Return the path of the package's own table."""
    return Path(str(resources.files(__package__).joinpath(FILE)))
