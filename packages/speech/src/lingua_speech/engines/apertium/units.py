"""Queries and changes of single units, for the rules. Pure.

After the analyser a unit is `written/reading/reading`; after the tagger and before generation it is
one reading. Word classes and forms are Apertium's tags: `n`, `vblex`, `inf`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_speech.engines.apertium import stream
from lingua_speech.engines.apertium.stream import LexicalUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def word_set(text: str) -> frozenset[str]:
    """Return the set of the words in a text."""
    return frozenset(text.split())


NOTHING: Final = LexicalUnit("", ())
CLAUSE_ENDS: Final = frozenset({"sent", "cm", "lquest", "lpar", "rpar", "guio"})


def at(units: Sequence[LexicalUnit], index: int) -> LexicalUnit:
    """Return the unit at an index, or an empty one outside the sentence."""
    return units[index] if 0 <= index < len(units) else NOTHING


def written(unit: LexicalUnit) -> str:
    """Return the word as written, in lower case (after the analyser)."""
    return unit.parts[0].lower() if unit.parts else ""


def can_be(unit: LexicalUnit, *tags: str) -> bool:
    """Tell whether any reading has all these tags (after the analyser)."""
    return any(set(tags) <= set(stream.tags(reading)) for reading in unit.parts[1:])


def must_be(unit: LexicalUnit, *tags: str) -> bool:
    """Tell whether every reading has all these tags (after the analyser)."""
    return len(unit.parts) > 1 and all(
        set(tags) <= set(stream.tags(reading)) for reading in unit.parts[1:]
    )


def keep(unit: LexicalUnit, wanted: Callable[[str], bool]) -> LexicalUnit:
    """Keep the wanted readings; if none is wanted, keep all."""
    kept = tuple(reading for reading in unit.parts[1:] if wanted(reading))
    return LexicalUnit(unit.blank, (unit.parts[0], *kept)) if kept else unit


def keep_tags(unit: LexicalUnit, *tags: str) -> LexicalUnit:
    """Keep the readings that have all these tags."""
    return keep(unit, lambda reading: set(tags) <= set(stream.tags(reading)))


def drop_tags(unit: LexicalUnit, *tags: str) -> LexicalUnit:
    """Drop the readings that have all these tags."""
    return keep(unit, lambda reading: not set(tags) <= set(stream.tags(reading)))


def reading(unit: LexicalUnit) -> str:
    """Return the single reading (after the tagger, before generation)."""
    return unit.parts[0] if unit.parts else ""


def has(unit: LexicalUnit, *tags: str) -> bool:
    """Tell whether the single reading has all these tags."""
    return bool(unit.parts) and set(tags) <= set(stream.tags(unit.parts[0]))


def word(unit: LexicalUnit) -> str:
    """Return the lemma of the single reading, in lower case, without a tail."""
    return reading(unit).partition("<")[0].lower()


def changed(unit: LexicalUnit, new: str) -> LexicalUnit:
    """Return the unit with another reading that keeps the capital letter of the old one."""
    old = reading(unit)
    if old[:1].isupper() and new[:1].islower():
        new = new[:1].upper() + new[1:]
    return LexicalUnit(unit.blank, (new,))
