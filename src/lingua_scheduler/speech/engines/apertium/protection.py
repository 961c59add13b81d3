"""What must come through a translation as it is: addresses, codes, symbols, pictures. Pure.

Each such piece is replaced by a made-up word that no dictionary has, which the programs carry
through like a name, and put back afterwards. What a text says in the words' own form is protected
too, so nothing can be mistaken.
"""

from __future__ import annotations

import re
import string
from typing import Final

# A made-up word: letters only, because digits and signs are words of their own to the programs.
MADE_UP: Final = "zqx"
STAND_IN = re.compile(rf"{MADE_UP}([a-j]+)z", re.IGNORECASE)
DIGITS = str.maketrans(string.digits, "abcdefghij")
LETTERS = str.maketrans("abcdefghij", string.digits)
# Addresses of the web and of mail; words with signs or digits inside; what is not plain text.
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
    """Return the text with stand-ins, and what they stand for."""
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
    """Return the text with everything back in its place; what was lost is said at the end."""
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
