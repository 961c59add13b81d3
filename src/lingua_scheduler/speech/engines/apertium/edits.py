"""What may be done to a sentence on its way through the programs; the base changes nothing.

One object serves one sentence, so that what was seen early may be used late. Phrases of the table
`tables/phrases-<direction>.tsv` are taken out before and said after: each becomes a made-up adverb.
Used by `Line`; the rules of a direction are in a module of their own (`english_spanish`, ...).
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib.resources import files
from typing import Final

from lingua_scheduler.speech.engines.apertium import protection
from lingua_scheduler.speech.engines.apertium.stream import Piece

Units = list[Piece]
PLACE = re.compile(r"zqy([a-j]+)z", re.IGNORECASE)
SENTENCE_END: Final = frozenset("?!")


class Edits:
    """No change at all; what a direction changes it overrides."""

    # The name of the table of phrases, e.g. "en-es"; empty: none.
    table = ""

    def __init__(self) -> None:
        # What the made-up adverbs of this sentence stand for.
        self._phrases: list[str] = []

    def before(self, text: str) -> str:
        """Change the source's text."""
        return text

    def analysed(self, units: Units) -> Units:
        """Change readings: `^written/reading/reading$`."""
        return units

    def tagged(self, units: Units) -> Units:
        """Change what the tagger chose: `^reading$`."""
        return units

    def bilingual(self, units: Units) -> Units:
        """Change translations: `^source/translation$`."""
        return units

    def target(self, units: Units) -> Units:
        """Change what will be generated: `^reading$`."""
        return units

    def after(self, text: str) -> str:
        """Change the target's text."""
        return text

    def take_phrases(self, text: str) -> str:
        """Replace the phrases of the table by made-up adverbs."""
        for pattern, said in phrases(self.table):
            text = pattern.sub(partial(self._stand_in, said), text)
        return text

    def _stand_in(self, said: str, match: re.Match[str]) -> str:
        phrase = match.expand(said)
        self._phrases.append(phrase)
        number = str(len(self._phrases) - 1).translate(protection.DIGITS)
        large = match.group()[:1].isupper() and (match.start() == 0 or match.group()[:2] != "I ")
        return f"{'Z' if large else 'z'}qy{number}z"

    def put_phrases(self, text: str) -> str:
        """Say the phrases in their places."""

        def said(match: re.Match[str]) -> str:
            index = int(match[1].lower().translate(protection.LETTERS))
            if index >= len(self._phrases):
                return match.group()
            phrase = self._phrases[index]
            return capitalised(phrase) if match.group()[0] == "Z" else phrase

        # A phrase may hold another that was taken out before it.
        for _ in range(3):
            text = PLACE.sub(said, text)
        return text


class Phrased(Edits):
    """A direction that has tables of phrases and corrections, and no other rules."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self.table = table
        # Whether the sentence began with a capital.
        self._starts_large = True

    def before(self, text: str) -> str:
        """Take the phrases out."""
        self._starts_large = not text.lstrip("¿¡ ")[:1].islower()
        return self.take_phrases(text)

    def analysed(self, units: Units) -> Units:
        """Tell what the made-up words are."""
        return known_adverbs(units)

    def bilingual(self, units: Units) -> Units:
        """Keep the made-up words."""
        return same_adverbs(units)

    def target(self, units: Units) -> Units:
        """Write the made-up words out."""
        return said_adverbs(units)

    def after(self, text: str) -> str:
        """Say the phrases, correct the text."""
        text = tidy(self.put_phrases(text))
        for pattern, said in patterns(f"after-{self.table}.tsv"):
            text = pattern.sub(said, text)
        return capitalised(text) if self._starts_large else text


def known_adverbs(units: Units) -> Units:
    """Tell the tagger what the made-up words are."""
    return [
        Piece(unit.blank, (unit.parts[0], f"{unit.parts[0]}<adv>"))
        if unit.parts and PLACE.fullmatch(unit.parts[0])
        else unit
        for unit in units
    ]


def same_adverbs(units: Units) -> Units:
    """Tell transfer that the made-up words are the same in both languages."""
    return [
        Piece(unit.blank, (unit.parts[0], unit.parts[0]))
        if unit.parts and PLACE.fullmatch(unit.parts[0].partition("<")[0])
        else unit
        for unit in units
    ]


def said_adverbs(units: Units) -> Units:
    """Write the made-up words out, because the generator does not know them."""
    return [
        Piece(unit.blank, ("*" + unit.parts[0].partition("<")[0],))
        if unit.parts and PLACE.fullmatch(unit.parts[0].partition("<")[0])
        else unit
        for unit in units
    ]


def tidy(text: str) -> str:
    """Put spaces where they belong."""
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" +([,;:!?](?:\s|$)|\.(?=\s|$))", r"\1", text)
    return text.strip()


def capitalised(text: str) -> str:
    """Return a text with its first letter large."""
    for at, letter in enumerate(text):
        if letter.isalnum():
            return text[:at] + letter.upper() + text[at + 1 :]
    return text


@cache
def phrases(table: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return a table's patterns, in its order, and what to say for each."""
    return tuple(
        (re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE), said)
        for pattern, said in table_rows(f"phrases-{table}.tsv")
    )


@cache
def patterns(name: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return a table of corrections: patterns of text, and what to write instead."""
    return tuple((re.compile(pattern), said) for pattern, said in table_rows(name))


@cache
def table_rows(name: str) -> tuple[tuple[str, str], ...]:
    """Return the rows of a table of two columns; a missing table has none."""
    path = files(__package__).joinpath(f"tables/{name}")
    if not path.is_file():
        return ()
    found = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip() and not line.startswith("#"):
            first, _, second = line.partition("\t")
            found.append((first, second))
    return tuple(found)
