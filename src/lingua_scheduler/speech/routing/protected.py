"""What must come through a translation as it is: addresses, names of accounts, codes, pictures.

Pure. Each such piece is replaced by a stand-in that translators copy, because it looks like the
number of a part (`XQ1`), and put back afterwards. Neural models have no piece for `@` or a picture
and leave them out; they spell long numbers wrong; rules translate the words of an address. Terms of
a glossary are the same with another text put back: `speech/terms.py`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lingua_scheduler.languages import base_of

MARK: Final = "XQ"
STAND_IN = re.compile(rf"(?<![A-Za-z0-9]){MARK}(\d+)(?![A-Za-z0-9])", re.IGNORECASE)
WORD = re.compile(r"\w")
# Written in Latin letters: there other letters are somebody else's words, to be copied.
_LATIN = (
    "af ca cs cy da de en es et eu fi fr ga gl hr hu id is it lt lv ms mt nl no pl pt ro sk sl sq"
    " sv sw tl tr vi"
)
LATIN: Final = frozenset(_LATIN.split())
SYMBOLS: Final = r"_\\^<>{}\[\]@#*~|=+`"
TAKEN = rf"""
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
# Runs of what is neither Latin letters nor their punctuation; a space within a run belongs to it.
STRANGE = (
    "[^\\x00-\\u024f\\u02b0-\\u036f\\u1e00-\\u1eff\\u2000-\\u206f\\u20a0-\\u20bf\\u2116\\u2122\\s]"
)
FOREIGN = rf"{STRANGE}(?:[\s\ufe0f\u200d-]*{STRANGE})*\ufe0f?"
# What is between Chinese and Japanese signs.
UNSPACED = re.compile("[^\u2e80-\u9fff\uff00-\uffef]+")

ANYWHERE = re.compile(TAKEN, re.VERBOSE | re.IGNORECASE)
IN_LATIN = re.compile(f"{TAKEN}|{FOREIGN}", re.VERBOSE | re.IGNORECASE)


class Masked(NamedTuple):
    """A text with stand-ins, and what each of them stands for."""

    text: str
    kept: tuple[str, ...]


def mask(text: str, language: str) -> Masked:
    """Return a text whose protected pieces are stand-ins."""
    kept: list[str] = []

    def replaced(found: re.Match[str]) -> str:
        kept.append(found.group())
        # Apart from a letter or a digit beside it: `XQ1` and a 5 would be another one.
        around = found.string
        before = " " if WORD.search(around[max(0, found.start() - 1) : found.start()]) else ""
        after = " " if WORD.match(around[found.end() : found.end() + 1]) else ""
        return f"{before}{MARK}{len(kept)}{after}"

    if base_of(language) in LATIN:
        return Masked(IN_LATIN.sub(replaced, text), tuple(kept))
    # Where no space is between words, a piece ends where their script begins again.
    masked = UNSPACED.sub(lambda found: ANYWHERE.sub(replaced, found.group()), text)
    return Masked(masked, tuple(kept))


def stand_ins(text: str) -> list[int]:
    """Return the stand-ins in a text by number, in order, each as often as it is there."""
    return [int(found[1]) for found in STAND_IN.finditer(text)]


def is_whole(before: str, after: str) -> bool:
    """Tell whether every stand-in came through, exactly once each."""
    return sorted(stand_ins(before)) == sorted(stand_ins(after))


def parts(text: str) -> list[str]:
    """Cut a text at its stand-ins, which stay as parts of their own."""
    return [part.strip() for part in re.split(rf"({MARK}\d+)", text) if part.strip()]


def restore(text: str, kept: tuple[str, ...]) -> str:
    """Return a text with everything back in its place; a number that means nothing stays."""

    def original(found: re.Match[str]) -> str:
        number = int(found[1])
        return kept[number - 1] if 0 < number <= len(kept) else found.group()

    return STAND_IN.sub(original, text)
