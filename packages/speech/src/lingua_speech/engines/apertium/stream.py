"""Apertium's stream: text with lexical units in it, `^seen/lemma<n><sg>/lemma<vblex><inf>$`. Pure.

Between the programs a sentence is a sequence of units and the blanks between them. Reading and
writing it changes nothing, so rules can change single units: before the tagger
(`seen/reading/reading`), before transfer (`source/translation`) and before generation (`reading`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SPECIAL = re.compile(r"([\[\]{}^$/\\@<>])")
ESCAPED = re.compile(r"\\(.)", re.DOTALL)
UNIT = re.compile(
    r"(?P<word_blank>\[\[(?:\\.|[^\\\]])*\]\])?\^(?P<body>(?:\\.|[^\\$])*)\$", re.DOTALL
)
SLASH = re.compile(r"(?<!\\)/")
READING = re.compile(r"(?P<lemma>(?:\\.|[^\\<])*)(?P<tags>(?:<[^<>]*>)*)(?P<rest>.*)", re.DOTALL)


class LexicalUnit(NamedTuple):
    """A blank and the unit after it: its parts, separated by `/`; the last blank has no parts."""

    blank: str
    parts: tuple[str, ...]


Units = list[LexicalUnit]


def escape(text: str) -> str:
    """Escape a text for the stream."""
    return SPECIAL.sub(r"\\\1", text)


def unescape(text: str) -> str:
    """Undo `escape`."""
    return ESCAPED.sub(r"\1", text)


def read(stream: str) -> Units:
    """Return the units of a stream, each with the blank before it; the last is a blank only."""
    units = []
    at = 0
    for unit in UNIT.finditer(stream):
        units.append(LexicalUnit(stream[at : unit.start()], tuple(SLASH.split(unit["body"]))))
        at = unit.end()
    return [*units, LexicalUnit(stream[at:], ())]


def write(units: Iterable[LexicalUnit]) -> str:
    """Return the stream of these units."""
    return "".join(f"{blank}^{'/'.join(parts)}$" if parts else blank for blank, parts in units)


def lemma(reading: str) -> str:
    """Return the lemma of a reading, with the tail of a multiword (`take# care`)."""
    match = READING.fullmatch(reading)
    assert match is not None, "the pattern matches every text"
    rest = match["rest"] if match["rest"].startswith("#") else ""
    return match["lemma"] + rest


def tags(reading: str) -> tuple[str, ...]:
    """Return the tags of a reading up to a join (`+`) or a tail (`#`)."""
    match = READING.fullmatch(reading)
    assert match is not None, "the pattern matches every text"
    return tuple(match["tags"][1:-1].split("><")) if match["tags"] else ()
