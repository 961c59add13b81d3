"""Restores a negation that Apertium loses, by looking at the source. Pure.

Spanish negates once before the verb (`nadie sabe`) or twice around it (`no sabe nadie`). Apertium
translates both as `anybody`, and `must not` as `no tiene que` (need not). Each of these turns a
sentence into its opposite. Only sentences with one such word are changed, because with more of them
it is not certain which one was lost.
"""

from __future__ import annotations

import re
from typing import Final

CLAUSE_ENDS: Final = re.compile(r"[.,;:?!¿¡]")
SPANISH_NEGATION: Final = re.compile(r"\b(nadie|nada|ning(?:uno|una|ún|un))\b", re.IGNORECASE)
NEGATION_BEFORE: Final = re.compile(r"\b(no|nunca|jamás|tampoco|sin|ni)\b", re.IGNORECASE)
# The stem of a Spanish negation, Apertium's translation of it, and the correct one.
ENGLISH_NEGATION: Final = (
    ("nadie", re.compile(r"\b(any)(?:body|one)\b", re.IGNORECASE), "nobody"),
    ("nada", re.compile(r"\b(at) all it (?=is|was|has|does)", re.IGNORECASE), "nothing "),
    ("nada", re.compile(r"\b(any)thing\b", re.IGNORECASE), "nothing"),
    ("ning", re.compile(r"\b(any)(?= [a-z])", re.IGNORECASE), "no"),
)
# An English text with a negation needs no second one.
ENGLISH_IS_NEGATED: Final = re.compile(
    r"\b(not|no|never|nobody|nothing|none|cannot|without)\b|n't\b"
)
MUST_NOT: Final = re.compile(r"\bmust(?: not|n't)\b", re.IGNORECASE)
NEED_NOT: Final = re.compile(r"\b([Nn]o) (tengo|tienes|tiene|tenemos|tenéis|tienen) que\b")
OUGHT: Final = {
    "tengo": "debo",
    "tienes": "debes",
    "tiene": "debe",
    "tenemos": "debemos",
    "tenéis": "debéis",
    "tienen": "deben",
}
NOT_ANY: Final = re.compile(
    r"(?:\bnot|n't|\bnever|\bcannot|\bwithout)\b.*\bany(?:body|one)\b", re.IGNORECASE
)
ANYONE: Final = re.compile(r"(?<!\ba )\bcualquiera\b")


def restore_english_negation(source: str, text: str) -> str:
    """Return English that is negated where the Spanish is."""
    found = list(SPANISH_NEGATION.finditer(source))
    if (
        len(found) != 1
        or not _is_alone(source, found[0].start())
        or ENGLISH_IS_NEGATED.search(text)
    ):
        return text
    word = found[0][1].lower()
    for stem, pattern, replacement in ENGLISH_NEGATION:
        match = pattern.search(text)
        if word.startswith(stem) and match is not None:
            no = replacement.capitalize() if match[1][0].isupper() else replacement
            return text[: match.start()] + no + text[match.end() :]
    return text


def _is_alone(source: str, at: int) -> bool:
    """Tell whether no other negation precedes a word in its clause."""
    clause = CLAUSE_ENDS.split(source[:at])[-1]
    return NEGATION_BEFORE.search(clause) is None


def restore_spanish_negation(source: str, text: str) -> str:
    """Return Spanish that forbids where the English does, and has `nadie` for `not anybody`."""
    if MUST_NOT.search(source):
        text = NEED_NOT.sub(lambda match: f"{match[1]} {OUGHT[match[2]]}", text)
    if NOT_ANY.search(source):
        text = ANYONE.sub("a nadie", text)
    return text
