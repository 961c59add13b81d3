"""Protects what must not be translated: addresses, codes, symbols, emoji. Pure.

Each such span is replaced by a made-up word that no dictionary has, which the programs keep like a
name, and restored afterwards. Words of the text that look like a stand-in are protected as well, so
the two cannot be confused.
"""

from __future__ import annotations

import re
import string
from typing import Final

# A made-up word of letters only, because the programs treat digits and signs as separate words.
MADE_UP: Final = "zqx"
STAND_IN = re.compile(rf"{MADE_UP}([a-j]+)z", re.IGNORECASE)
DIGITS = str.maketrans(string.digits, "abcdefghij")
LETTERS = str.maketrans("abcdefghij", string.digits)
# Web and mail addresses; words with signs or digits inside; characters that are not plain text.
TAKEN = re.compile(
    r"""
      (?:https?://|www\.)[^\s]*[\w/]
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | \b[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|edu|gov|io|es|fr|uk|de|it)\b(?:/[^\s]*[\w/])?
    | \w*zq[xy]\w*
    | [^\W\d_]+\d[\w]*
    | [\w]*[_\\^<>{}\[\]@#*~|=+$€£%&§°]+[\w]*(?:[.,]\d+)?
    | \w*[^\w\s.,;:!?¿¡'"()\-/…—\u2013«»“”\u2018\u2019]+
    """,
    re.VERBOSE | re.IGNORECASE,
)
Kept = list[str]


def protect(text: str) -> tuple[str, Kept]:
    """Return the text with stand-ins, and the originals of these."""
    kept: Kept = []

    def replaced(match: re.Match[str]) -> str:
        kept.append(match.group())
        return f"{MADE_UP}{str(len(kept) - 1).translate(DIGITS)}z"

    return _apart(TAKEN.sub(replaced, text)), kept


def _apart(text: str) -> str:
    """Keep stand-ins from running into each other or a neighbouring letter or digit."""
    spaced = re.sub(rf"(?<=[\w])(?={MADE_UP}[a-j]+z)", "\u2060 ", text)
    return re.sub(rf"({MADE_UP}[a-j]+z)(?=[\w])", "\\1 \u2060", spaced)


def restore(text: str, kept: Kept) -> str:
    """Return the text with the originals restored; lost ones are appended at the end."""
    missing = set(range(len(kept)))

    def original(match: re.Match[str]) -> str:
        index = int(match[1].lower().translate(LETTERS))
        if index >= len(kept):
            return match.group()
        missing.discard(index)
        return kept[index]

    joined = text.replace("\u2060 ", "").replace(" \u2060", "").replace("\u2060", "")
    found = STAND_IN.sub(original, joined)
    lost = [kept[index] for index in sorted(missing)]
    return " ".join([found, *lost]) if lost else found
