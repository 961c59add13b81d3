"""The rules applied to a sentence between Apertium's programs; the base class changes nothing.

One object serves one sentence, so a later rule can use what an earlier one found. Phrases of the
table `tables/phrases-<direction>.tsv` are replaced by placeholders, which the programs treat as
adverbs, and their translations are inserted at the end. Used by `DirectTranslator`; the rules of a
direction are in a module of their own (`english_spanish`, ...).
"""

from __future__ import annotations

import re
from functools import cache, partial
from importlib.resources import files
from typing import Final

from lingua_speech.engines.apertium import protection
from lingua_speech.engines.apertium.stream import LexicalUnit, Units

PLACEHOLDER = re.compile(r"zqy([a-j]+)z", re.IGNORECASE)
SENTENCE_END: Final = frozenset("?!")


class SentenceRules:
    """Rules that change nothing; a direction overrides the methods that it needs."""

    # The name of the table of phrases, e.g. "en-es"; empty: no table.
    table = ""

    def __init__(self) -> None:
        # The translations that the placeholders of this sentence stand for.
        self._phrases: list[str] = []

    def before(self, text: str) -> str:
        """Change the source text."""
        return text

    def analysed(self, units: Units) -> Units:
        """Change the analyser's readings: `^written/reading/reading$`."""
        return units

    def tagged(self, units: Units) -> Units:
        """Change the tagger's choice: `^reading$`."""
        return units

    def bilingual(self, units: Units) -> Units:
        """Change translations: `^source/translation$`."""
        return units

    def target(self, units: Units) -> Units:
        """Change the input of the generator: `^reading$`."""
        return units

    def after(self, text: str) -> str:
        """Change the target text."""
        return text

    def extract_phrases(self, text: str) -> str:
        """Replace the phrases of the table by placeholders."""
        for pattern, replacement in phrases(self.table):
            text = pattern.sub(partial(self._placeholder, replacement), text)
        return text

    def _placeholder(self, replacement: str, match: re.Match[str]) -> str:
        phrase = match.expand(replacement)
        self._phrases.append(phrase)
        number = str(len(self._phrases) - 1).translate(protection.DIGITS)
        large = match.group()[:1].isupper() and (match.start() == 0 or match.group()[:2] != "I ")
        return f"{'Z' if large else 'z'}qy{number}z"

    def insert_phrases(self, text: str) -> str:
        """Replace the placeholders by the translations of their phrases."""

        def translation(match: re.Match[str]) -> str:
            index = int(match[1].lower().translate(protection.LETTERS))
            if index >= len(self._phrases):
                return match.group()
            phrase = self._phrases[index]
            return capitalised(phrase) if match.group()[0] == "Z" else phrase

        # A phrase may contain another that was extracted before it.
        for _ in range(3):
            text = PLACEHOLDER.sub(translation, text)
        return text


class PhraseRules(SentenceRules):
    """A direction that has tables of phrases and corrections, and no other rules."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self.table = table
        # Whether the sentence begins with a capital letter.
        self._starts_large = True

    def before(self, text: str) -> str:
        """Extract the phrases."""
        self._starts_large = not text.lstrip("¿¡ ")[:1].islower()
        return self.extract_phrases(text)

    def analysed(self, units: Units) -> Units:
        """Give the placeholders a reading."""
        return analyse_placeholders(units)

    def bilingual(self, units: Units) -> Units:
        """Keep the placeholders."""
        return copy_placeholders(units)

    def target(self, units: Units) -> Units:
        """Write the placeholders as plain words."""
        return write_placeholders(units)

    def after(self, text: str) -> str:
        """Insert the phrases and correct the text."""
        text = tidy(self.insert_phrases(text))
        for pattern, replacement in patterns(f"after-{self.table}.tsv"):
            text = pattern.sub(replacement, text)
        return capitalised(text) if self._starts_large else text


def analyse_placeholders(units: Units) -> Units:
    """Give the placeholders the reading of an adverb, for the tagger."""
    return [
        LexicalUnit(unit.blank, (unit.parts[0], f"{unit.parts[0]}<adv>"))
        if unit.parts and PLACEHOLDER.fullmatch(unit.parts[0])
        else unit
        for unit in units
    ]


def copy_placeholders(units: Units) -> Units:
    """Translate every placeholder by itself, for transfer."""
    return [
        LexicalUnit(unit.blank, (unit.parts[0], unit.parts[0]))
        if unit.parts and PLACEHOLDER.fullmatch(unit.parts[0].partition("<")[0])
        else unit
        for unit in units
    ]


def write_placeholders(units: Units) -> Units:
    """Write the placeholders as plain words, because the generator does not know them."""
    return [
        LexicalUnit(unit.blank, ("*" + unit.parts[0].partition("<")[0],))
        if unit.parts and PLACEHOLDER.fullmatch(unit.parts[0].partition("<")[0])
        else unit
        for unit in units
    ]


def tidy(text: str) -> str:
    """Normalise the spaces around punctuation."""
    text = re.sub(r"[ \t]+", " ", text)
    text = re.sub(r" +([,;:!?](?:\s|$)|\.(?=\s|$))", r"\1", text)
    return text.strip()


def capitalised(text: str) -> str:
    """Return a text with a capital first letter."""
    for at, letter in enumerate(text):
        if letter.isalnum():
            return text[:at] + letter.upper() + text[at + 1 :]
    return text


@cache
def phrases(table: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the patterns of a table in its order, each with its translation."""
    return tuple(
        (re.compile(rf"(?<!\w)(?:{pattern})(?!\w)", re.IGNORECASE), replacement)
        for pattern, replacement in table_rows(f"phrases-{table}.tsv")
    )


@cache
def patterns(name: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return a table of corrections: patterns of text and their replacements."""
    return tuple((re.compile(pattern), replacement) for pattern, replacement in table_rows(name))


@cache
def table_rows(name: str) -> tuple[tuple[str, str], ...]:
    """Return the rows of a table with two columns; a missing table has no rows."""
    path = files(__package__).joinpath(f"tables/{name}")
    if not path.is_file():
        return ()
    found = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        if line.strip() and not line.startswith("#"):
            first, _, second = line.partition("\t")
            found.append((first, second))
    return tuple(found)
