"""A no that must stay a no: where Apertium loses one, the source tells. Pure.

Spanish says no once before the verb (`nadie sabe`) or twice around it (`no sabe nadie`); Apertium
gives both as `anybody`, and `must not` as `no tiene que`, need not. Each of these turns a sentence
into its opposite. Only sentences with one such word are changed: with more it is not certain which.
"""

from __future__ import annotations

import re
from typing import Final

CLAUSE_ENDS: Final = re.compile(r"[.,;:?!¿¡]")
SPANISH_NO: Final = re.compile(r"\b(nadie|nada|ning(?:uno|una|ún|un))\b", re.IGNORECASE)
SAID_BEFORE: Final = re.compile(r"\b(no|nunca|jamás|tampoco|sin|ni)\b", re.IGNORECASE)
# The first word that a Spanish no became, and the English no.
ENGLISH_NO: Final = (
    ("nadie", re.compile(r"\b(any)(?:body|one)\b", re.IGNORECASE), "nobody"),
    ("nada", re.compile(r"\b(at) all it (?=is|was|has|does)", re.IGNORECASE), "nothing "),
    ("nada", re.compile(r"\b(any)thing\b", re.IGNORECASE), "nothing"),
    ("ning", re.compile(r"\b(any)(?= [a-z])", re.IGNORECASE), "no"),
)
# English that says no already needs no second one.
ENGLISH_SAYS_NO: Final = re.compile(r"\b(not|no|never|nobody|nothing|none|cannot|without)\b|n't\b")
MUST_NOT: Final = re.compile(r"\bmust(?: not|n't)\b", re.IGNORECASE)
NEED_NOT: Final = re.compile(r"\b([Nn]o) (tengo|tienes|tiene|tenemos|tenéis|tienen) que\b")
OUGHT: Final = {
    "tengo": "debo", "tienes": "debes", "tiene": "debe", "tenemos": "debemos",
    "tenéis": "debéis", "tienen": "deben",
}  # fmt: skip
NOT_ANY: Final = re.compile(
    r"(?:\bnot|n't|\bnever|\bcannot|\bwithout)\b.*\bany(?:body|one)\b", re.IGNORECASE
)
ANYONE: Final = re.compile(r"(?<!\ba )\bcualquiera\b")


def kept_in_english(source: str, text: str) -> str:
    """Return English that says no where the Spanish did."""
    found = list(SPANISH_NO.finditer(source))
    if len(found) != 1 or not _is_alone(source, found[0].start()) or ENGLISH_SAYS_NO.search(text):
        return text
    word = found[0][1].lower()
    for stem, pattern, said in ENGLISH_NO:
        match = pattern.search(text)
        if word.startswith(stem) and match is not None:
            no = said.capitalize() if match[1][0].isupper() else said
            return text[: match.start()] + no + text[match.end() :]
    return text


def _is_alone(source: str, at: int) -> bool:
    """Tell whether nothing in its clause says no before a word."""
    clause = CLAUSE_ENDS.split(source[:at])[-1]
    return SAID_BEFORE.search(clause) is None


def kept_in_spanish(source: str, text: str) -> str:
    """Return Spanish that forbids where the English did, and says nobody where it meant it."""
    if MUST_NOT.search(source):
        text = NEED_NOT.sub(lambda match: f"{match[1]} {OUGHT[match[2]]}", text)
    if NOT_ANY.search(source):
        text = ANYONE.sub("a nadie", text)
    return text
