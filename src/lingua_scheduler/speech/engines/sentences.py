"""Texts made plain and cut into sentences, for engines that work on one sentence at a time.

Pure. A voice needs it to stop between sentences, a translator because it was taught with single
ones. It does not improve what was recognised: that is `speech/text.py`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# Beyond this an engine works on one piece for too long before it looks whether it is wanted.
LONGEST: Final = 300

# The mark that ends a sentence, with closing quotes; the marks of Chinese and Japanese need no
# space after them.
END = re.compile(r"(?:(?<![.!?…])[.!?…]++[\"'”’»)\]]*(?=\s))|[。！？]+[」』”]*|(?<=\n)")  # noqa: RUF001
# A full stop after one of these, or after an initial, ends no sentence.
SHORTENED = re.compile(
    r"(?:^|[\s(\"'“«])(?:mrs?|ms|dr|prof|st|jr|vs|etc|no|fig|approx|sra?|srta|dra|ud|uds|núm|pág"
    r"|mme|mlle|hr|fr|bzw|ca|sig|dott|[^\W\d_])\.$",
    re.IGNORECASE,
)
# What is looked at before a mark, and after it: a long text is read once, not once for each mark.
SHORTENED_CHARS: Final = 12
NEXT = re.compile(r"\s*(.?)")
# Where a sentence that is too long may be cut, best first.
CUTS: Final = (re.compile(r"[;:,、，]\s*"), re.compile(r"\s+"))  # noqa: RUF001


def plain(text: str) -> str:
    """Return a text without control characters and markup signs, spaces single, composed."""
    composed = unicodedata.normalize("NFC", text)
    kept = (" " if _is_control(sign) else sign for sign in composed)
    return " ".join("".join(kept).split())


def is_speakable(text: str) -> bool:
    """Tell whether there is anything to say: a letter or a digit."""
    return any(sign.isalnum() for sign in text)


def split(text: str, longest: int = LONGEST) -> list[str]:
    """Cut a text into sentences, none longer than that; joined by spaces they are the text."""
    pieces = [part for sentence in _sentences(text) for part in _parts(sentence, longest)]
    return [piece for piece in pieces if piece]


def _sentences(text: str) -> list[str]:
    found, start = [], 0
    for mark in END.finditer(text):
        before = text[max(start, mark.end() - SHORTENED_CHARS) : mark.end()]
        if SHORTENED.search(before) or _next_sign(text, mark.end()).islower():
            continue
        found.append(text[start : mark.end()].strip())
        start = mark.end()
    return [*found, text[start:].strip()]


def _next_sign(text: str, at: int) -> str:
    found = NEXT.match(text, at)
    return found[1] if found else ""


def _parts(sentence: str, longest: int) -> list[str]:
    parts = []
    while len(sentence) > longest:
        cut = _cut(sentence, longest)
        parts.append(sentence[:cut].strip())
        sentence = sentence[cut:].strip()
    return [*parts, sentence]


def _cut(sentence: str, longest: int) -> int:
    """Find where to cut: at the last comma of the latter half, else at a space, else anywhere."""
    for sign in CUTS:
        ends = [found.end() for found in sign.finditer(sentence, 0, longest)]
        if ends and ends[-1] >= longest // 2:
            return ends[-1]
    return longest


def _is_control(sign: str) -> bool:
    # Cc, Cf, Cs, Co, Cn: nothing that can be said, and some voices read them as commands; the
    # joiners stay, for Indic and Persian spelling needs them.
    return unicodedata.category(sign)[0] == "C" and sign not in "\u200c\u200d"
