"""Apertium's stream: text with lexical units in it, `^seen/lemma<n><sg>/lemma<vblex><inf>$`. Pure.

Between the programs a sentence is a row of units and the blanks between them. Reading it here and
writing it again changes nothing, so that rules may change single units: before the tagger
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


class Piece(NamedTuple):
    """A blank and the unit behind it: its parts, between `/`; no parts behind the last blank."""

    blank: str
    parts: tuple[str, ...]


def escape(text: str) -> str:
    """Return a text as the stream must carry it."""
    return SPECIAL.sub(r"\\\1", text)


def unescape(text: str) -> str:
    """Return a text as it was before `escape`."""
    return ESCAPED.sub(r"\1", text)


def read(stream: str) -> list[Piece]:
    """Return the stream's units, each with the blank before it; the last piece is a blank only."""
    pieces = []
    at = 0
    for unit in UNIT.finditer(stream):
        pieces.append(Piece(stream[at : unit.start()], tuple(SLASH.split(unit["body"]))))
        at = unit.end()
    return [*pieces, Piece(stream[at:], ())]


def write(pieces: Iterable[Piece]) -> str:
    """Return the stream of these pieces."""
    return "".join(f"{blank}^{'/'.join(parts)}$" if parts else blank for blank, parts in pieces)


def lemma(reading: str) -> str:
    """Return a reading's lemma, with the tail of a multiword (`take# care`)."""
    match = READING.fullmatch(reading)
    assert match is not None, "the pattern takes every text"
    rest = match["rest"] if match["rest"].startswith("#") else ""
    return match["lemma"] + rest


def tags(reading: str) -> tuple[str, ...]:
    """Return a reading's tags up to a join (`+`) or a tail (`#`)."""
    match = READING.fullmatch(reading)
    assert match is not None, "the pattern takes every text"
    return tuple(match["tags"][1:-1].split("><")) if match["tags"] else ()
