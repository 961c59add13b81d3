"""Normalises texts and splits them into sentences, for engines that process one at a time. Pure.

A voice can stop between sentences, and a translator was trained with single sentences. Improving
recognised text is the work of `lingua_speech.text`.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

# A longer piece would keep an engine busy for too long between two checks of the watch.
LONGEST: Final = 300

# The mark that ends a sentence, with closing quotes; Chinese and Japanese marks need no space after
# them.
END = re.compile(r"(?:(?<![.!?…])[.!?…]++[\"'”’»)\]]*(?=\s))|[。！？]+[」』”]*|(?<=\n)")  # noqa: RUF001
# A full stop after one of these abbreviations, or after an initial, does not end a sentence.
SHORTENED = re.compile(
    r"(?:^|[\s(\"'“«])(?:mrs?|ms|dr|prof|st|jr|vs|etc|no|fig|approx|sra?|srta|dra|ud|uds|núm|pág"
    r"|mme|mlle|hr|fr|bzw|ca|sig|dott|[^\W\d_])\.$",
    re.IGNORECASE,
)
# How much text is examined before and after a mark, so that a long text is not read at each mark.
SHORTENED_CHARS: Final = 12
NEXT = re.compile(r"\s*(.?)")
# Where a long sentence may be cut, the best place first.
CUTS: Final = (re.compile(r"[;:,、，]\s*"), re.compile(r"\s+"))  # noqa: RUF001


def plain(text: str) -> str:
    """Return a text in composed form, without control characters, with single spaces."""
    composed = unicodedata.normalize("NFC", text)
    kept = (" " if _is_control(sign) else sign for sign in composed)
    return " ".join("".join(kept).split())


def is_speakable(text: str) -> bool:
    """Tell whether a text can be spoken: whether it has a letter or a digit."""
    return any(sign.isalnum() for sign in text)


def split(text: str, longest: int = LONGEST) -> list[str]:
    """Split a text into sentences of at most `longest` characters; joined by spaces they are it."""
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
    """Return where to cut: at the last comma of the second half, else at a space, else anywhere."""
    for sign in CUTS:
        ends = [found.end() for found in sign.finditer(sentence, 0, longest)]
        if ends and ends[-1] >= longest // 2:
            return ends[-1]
    return longest


def _is_control(sign: str) -> bool:
    # Cc, Cf, Cs, Co, Cn: not speakable, and some voices read them as commands. The joiners are
    # kept, because Indic and Persian spelling needs them.
    return unicodedata.category(sign)[0] == "C" and sign not in "\u200c\u200d"
