"""Questions to units of the stream, as rules ask them. Pure.

A unit behind the analyser is `written/reading/reading`; behind the tagger and before generation
it is one reading. `Kind` words are tags: `n`, `vblex`, `inf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_scheduler.speech.engines.apertium import stream
from lingua_scheduler.speech.engines.apertium.stream import Piece

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list written as a text."""
    return frozenset(text.split())


NOTHING: Final = Piece("", ())
CLAUSE_ENDS: Final = frozenset({"sent", "cm", "lquest", "lpar", "rpar", "guio"})


def at(units: Sequence[Piece], index: int) -> Piece:
    """Return a unit, or nothing outside of the sentence."""
    return units[index] if 0 <= index < len(units) else NOTHING


def written(unit: Piece) -> str:
    """Return the word as it was written, lower case (behind the analyser)."""
    return unit.parts[0].lower() if unit.parts else ""


def can_be(unit: Piece, *tags: str) -> bool:
    """Tell whether a reading has all these tags (behind the analyser)."""
    return any(set(tags) <= set(stream.tags(reading)) for reading in unit.parts[1:])


def must_be(unit: Piece, *tags: str) -> bool:
    """Tell whether every reading has all these tags (behind the analyser)."""
    return len(unit.parts) > 1 and all(
        set(tags) <= set(stream.tags(reading)) for reading in unit.parts[1:]
    )


def keep(unit: Piece, wanted: Callable[[str], bool]) -> Piece:
    """Keep the readings that are wanted; all of them if none is."""
    kept = tuple(reading for reading in unit.parts[1:] if wanted(reading))
    return Piece(unit.blank, (unit.parts[0], *kept)) if kept else unit


def keep_tags(unit: Piece, *tags: str) -> Piece:
    """Keep the readings that have all these tags."""
    return keep(unit, lambda reading: set(tags) <= set(stream.tags(reading)))


def drop_tags(unit: Piece, *tags: str) -> Piece:
    """Leave out the readings that have all these tags."""
    return keep(unit, lambda reading: not set(tags) <= set(stream.tags(reading)))


def reading(unit: Piece) -> str:
    """Return the one reading (behind the tagger, before generation)."""
    return unit.parts[0] if unit.parts else ""


def has(unit: Piece, *tags: str) -> bool:
    """Tell whether the one reading has all these tags."""
    return bool(unit.parts) and set(tags) <= set(stream.tags(unit.parts[0]))


def word(unit: Piece) -> str:
    """Return the lemma of the one reading, lower case, without a tail."""
    return reading(unit).partition("<")[0].lower()


def changed(unit: Piece, new: str) -> Piece:
    """Return the unit with another reading, as capital as it was."""
    old = reading(unit)
    if old[:1].isupper() and new[:1].islower():
        new = new[:1].upper() + new[1:]
    return Piece(unit.blank, (new,))
