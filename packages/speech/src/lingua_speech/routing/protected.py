"""Masks text that must pass a translation unchanged: addresses, account names, codes, emoji.

Pure. Each such piece is replaced by a stand-in that translators copy because it looks like a part
number (`XQ1`), and restored afterwards. Neural models have no token for `@` or an emoji and omit
them; they misspell long numbers; rules translate the words of an address. Glossary terms use the
same mechanism with another text restored: `glossary.py`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lingua_wire.languages import base_of

MARK: Final = "XQ"
STAND_IN = re.compile(rf"(?<![A-Za-z0-9]){MARK}(\d+)(?![A-Za-z0-9])", re.IGNORECASE)
WORD = re.compile(r"\w")
# Languages in Latin script: text in another script is foreign there, and copied.
_LATIN = (
    "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv ms mt nl no pl pt ro sk sl sq"
    " sv sw tl tr vi"
)
LATIN: Final = frozenset(_LATIN.split())
SYMBOLS: Final = r"_\\^<>{}\[\]@#*~|=+`"
PROTECTED = rf"""
      (?:https?://|ftp://|www\.)[^\s]*[\w/]
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+
    | \b[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|edu|gov|io|dev|es|fr|uk|de|it|br|pt)\b(?:/[^\s]*[\w/])?
    | \+?\d[\d()]*(?:[ -]\(?\d{{2,}}\)?){{2,}}
    | (?<![\w.,])\d{{5,}}(?![\w]|[.,]\d)
    | (?<!\w){MARK}\d+(?!\w)
    | \S{{60,}}
    | (?<!\S)/\w+(?:/[\w.-]+)+
    | [^\s{SYMBOLS}.,;:!?]*[{SYMBOLS}][^\s]*[\w{SYMBOLS}] | [{SYMBOLS}]+
"""
# Runs of characters outside Latin script and its punctuation; inner spaces belong to a run.
NOT_LATIN = (
    "[^\\x00-\\u024f\\u02b0-\\u036f\\u1e00-\\u1eff\\u2000-\\u206f\\u20a0-\\u20bf\\u2116\\u2122\\s]"
)
FOREIGN = rf"{NOT_LATIN}(?:[\s\ufe0f\u200d-]*{NOT_LATIN})*\ufe0f?"
# Text between Chinese and Japanese characters.
UNSPACED = re.compile("[^\u2e80-\u9fff\uff00-\uffef]+")

ANYWHERE = re.compile(PROTECTED, re.VERBOSE | re.IGNORECASE)
IN_LATIN = re.compile(f"{PROTECTED}|{FOREIGN}", re.VERBOSE | re.IGNORECASE)


class Masked(NamedTuple):
    """A text with stand-ins, and the original of each."""

    text: str
    kept: tuple[str, ...]


def mask(text: str, language: str) -> Masked:
    """Return a text whose protected pieces are replaced by stand-ins."""
    kept: list[str] = []
    # Where the piece before ends, and in which text.
    last: tuple[str, int] = ("", 0)

    def replaced(found: re.Match[str]) -> str:
        nonlocal last
        kept.append(found.group())
        # Separated from an adjacent letter or digit, because `XQ1` before a 5 would be another
        # stand-in, and from an adjacent stand-in.
        around, start = found.string, found.start()
        is_touching = bool(WORD.search(around[max(0, start - 1) : start])) or last == (
            around,
            start,
        )
        last = (around, found.end())
        before = " " if is_touching else ""
        after = " " if WORD.match(around[found.end() : found.end() + 1]) else ""
        return f"{before}{MARK}{len(kept)}{after}"

    if base_of(language) in LATIN:
        return Masked(IN_LATIN.sub(replaced, text), tuple(kept))
    # In a script without spaces, a piece ends where the script begins again.
    masked = UNSPACED.sub(lambda found: ANYWHERE.sub(replaced, found.group()), text)
    return Masked(masked, tuple(kept))


def stand_ins(text: str) -> list[int]:
    """Return the numbers of the stand-ins in a text, in order, with repetitions."""
    return [int(found[1]) for found in STAND_IN.finditer(text)]


def is_whole(before: str, after: str) -> bool:
    """Tell whether a translation contains every stand-in exactly as often as its source."""
    return sorted(stand_ins(before)) == sorted(stand_ins(after))


def parts(text: str) -> list[str]:
    """Split a text at its stand-ins, which become parts of their own."""
    return [part.strip() for part in re.split(rf"({MARK}\d+)", text) if part.strip()]


def restore(text: str, kept: tuple[str, ...]) -> str:
    """Return a text with the originals restored; an unknown stand-in stays."""

    def original(found: re.Match[str]) -> str:
        number = int(found[1])
        return kept[number - 1] if 0 < number <= len(kept) else found.group()

    return STAND_IN.sub(original, text)
