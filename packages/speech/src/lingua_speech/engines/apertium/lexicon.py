"""Words and phrases that Apertium's English-Spanish dictionaries lack or render badly. Pure.

Read from `tables/lexicon.tsv`: English, word class, Spanish, gender, flags. An entry serves both
directions unless it has the flag `>` (into Spanish only) or `<` (into English only). `s` and `e`:
Apertium's generator lacks the Spanish or English word, so its forms are made here. In the stream a
word is recognised after the analyser, translated before transfer, and written before generation.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from lingua_speech.engines.apertium import english, spanish, stream
from lingua_speech.engines.apertium.stream import LexicalUnit

if TYPE_CHECKING:
    from collections.abc import Iterator

READING = re.compile(r"(?P<lemma>[^<#]*)(?P<tags>(?:<[^<>]*>)*)(?P<tail>#[^+]*)?(?P<joined>\+.*)?")
WORDS_MAX = 5


class LexiconEntry(NamedTuple):
    """One row of the table: a pair of words."""

    english: str
    kind: str
    spanish: str
    gender: str
    flags: str


@cache
def rows() -> tuple[LexiconEntry, ...]:
    """Return the entries of the table."""
    text = files(__package__).joinpath("tables/lexicon.tsv").read_text(encoding="utf-8")
    lines = (line for line in text.split("\n") if line and not line.startswith("#"))
    return tuple(LexiconEntry(*(line.split("\t") + [""] * 5)[:5]) for line in lines)


class Lexicon:
    """The entries, indexed for one direction."""

    def __init__(self, target: str) -> None:
        into_spanish = target == "es"
        # Form in lower case -> its readings.
        self._readings: dict[str, list[str]] = {}
        # (lemma, class) -> the translation and its gender.
        self._translations: dict[tuple[str, str], tuple[str, str]] = {}
        # Words that the generator does not know: (lemma, class).
        self._own: set[tuple[str, str]] = set()
        # Words with one form only.
        self._fixed: set[str] = set()
        for row in rows():
            if ("<" if into_spanish else ">") not in row.flags:
                self._add(row, into_spanish)
        self._own_form = _spanish_form if into_spanish else _english_form

    def _add(self, row: LexiconEntry, into_spanish: bool) -> None:
        source, target = (row.english, row.spanish) if into_spanish else (row.spanish, row.english)
        self._translations.setdefault((source, row.kind), (target, row.gender))
        if ("s" if into_spanish else "e") in row.flags or " " in target:
            self._own.add((target, row.kind))
        if "i" in row.flags:
            self._fixed.add(target)
        forms = _english_forms if into_spanish else _spanish_forms
        for form, reading in forms(row, source):
            readings = self._readings.setdefault(form, [])
            if reading not in readings:
                readings.append(reading)

    def recognise(self, units: list[LexicalUnit]) -> list[LexicalUnit]:
        """Give readings to unknown words, and join each phrase of the table into one unit."""
        found: list[LexicalUnit] = []
        at = 0
        while at < len(units):
            length, form = self._longest(units, at)
            unit = units[at]
            if length > 1 or (length == 1 and unit.parts[1:2] and unit.parts[1].startswith("*")):
                readings = (_as_written(reading, unit.parts[0]) for reading in self._readings[form])
                written = "".join(
                    ("" if part is unit else part.blank) + part.parts[0]
                    for part in units[at : at + length]
                )
                unit = LexicalUnit(unit.blank, (written, *readings))
            elif length == 1:
                unit = self._with_verb(unit, form)
            found.append(unit)
            at += max(length, 1)
        return found

    def _with_verb(self, unit: LexicalUnit, form: str) -> LexicalUnit:
        """Add the readings as a verb to a word that Apertium knows only as a noun."""
        if any("vblex" in stream.tags(known) for known in unit.parts[1:]):
            return unit
        verbs = (reading for reading in self._readings[form] if "<vblex>" in reading)
        return LexicalUnit(
            unit.blank, (*unit.parts, *(_as_written(v, unit.parts[0]) for v in verbs))
        )

    def _longest(self, units: list[LexicalUnit], at: int) -> tuple[int, str]:
        words: list[str] = []
        best = (0, "")
        for count, unit in enumerate(units[at : at + WORDS_MAX], 1):
            if not unit.parts or (count > 1 and unit.blank != " "):
                break
            words.append(unit.parts[0].lower())
            form = " ".join(words)
            if form in self._readings:
                best = (count, form)
        return best

    def translate(self, unit: LexicalUnit, only_known: bool = False) -> LexicalUnit:
        """Give a unit (`source/translation`) the translation of the table, if there is one.

        `only_known`: another direction follows, whose dictionary lacks our words; use one of them
        only where Apertium has no translation.
        """
        if len(unit.parts) < 2:
            return unit
        lemma = unit.parts[0].partition("<")[0].replace("#", "")
        tags = tuple(re.findall(r"<([^<>]*)>", unit.parts[0].partition("+")[0]))
        if not tags:
            return unit
        entry = self._translations.get((lemma.lower(), tags[0]))
        if entry is None:
            return unit
        target, gender = entry
        if only_known and (target, tags[0]) in self._own and not unit.parts[1].startswith("@"):
            return unit
        shown = _target_tags(tags, gender)
        word = _cased(target, lemma)
        return LexicalUnit(unit.blank, (unit.parts[0], f"{word}{shown}"))

    def generate(self, unit: LexicalUnit) -> list[LexicalUnit]:
        """Generate the word of a unit that Apertium's generator does not know."""
        match = READING.fullmatch(unit.parts[0]) if unit.parts else None
        if match is None or not match["tags"]:
            return [unit]
        kind = stream.tags(unit.parts[0])[0]
        name = match["lemma"].lower()
        if (name, kind) not in self._own:
            return [unit]
        head, _, tail = name.partition(" ")
        rest = unit.parts[0][len(match["lemma"]) :]
        if kind == "vblex" and tail and not head.endswith("se") and (head, kind) not in self._own:
            # The generator knows the verb itself, regular or not.
            verb = LexicalUnit(unit.blank, (_cased(head, match["lemma"]) + rest,))
            return [verb, LexicalUnit(" ", (f"*{tail}",))]
        form = name if name in self._fixed else self._own_form(name, rest)
        return [LexicalUnit(unit.blank, ("*" + _cased(form, match["lemma"]),))]

    def generate_all(self, units: list[LexicalUnit]) -> list[LexicalUnit]:
        """Generate the words of all units that Apertium's generator does not know."""
        return [new for unit in units for new in self.generate(unit)]


@cache
def lexicon(target: str) -> Lexicon:
    """Return the lexicon for a target language; it is built once."""
    return Lexicon(target)


def _english_forms(row: LexiconEntry, lemma: str) -> Iterator[tuple[str, str]]:
    if row.kind == "n":
        yield lemma, f"{lemma}<n><sg>"
        yield english.plural(lemma), f"{lemma}<n><pl>"
    elif row.kind == "vblex":
        for form, tags in english.verb_forms(lemma):
            yield form, f"{lemma}<vblex>{tags}"
    else:
        yield lemma, f"{lemma}<{row.kind}>"


def _spanish_forms(row: LexiconEntry, lemma: str) -> Iterator[tuple[str, str]]:
    if row.kind == "n":
        for number in ("sg", "pl"):
            yield spanish.noun(lemma, number), f"{lemma}<n><{row.gender or 'm'}><{number}>"
    elif row.kind == "adj":
        for gender in ("m", "f"):
            for number in ("sg", "pl"):
                tags = f"<adj><{gender}><{number}>"
                yield spanish.adjective(lemma, gender, number), lemma + tags
    elif row.kind == "vblex":
        for form, tags in spanish.verb_forms(lemma):
            yield form, f"{lemma}<vblex>{tags}"
    else:
        yield lemma, f"{lemma}<{row.kind}>"


def _target_tags(tags: tuple[str, ...], gender: str) -> str:
    """Return the tags that transfer expects on a translation."""
    shown = tags
    if tags[0] == "n" and gender and tags[-1] in {"sg", "pl"}:
        # A Spanish noun has a gender, an English noun has none.
        shown = ("n", gender, tags[-1]) if len(tags) == 2 else ("n", tags[-1])
    elif tags[0] == "adj":
        shown = ("adj", tags[-1]) if len(tags) > 2 else ("adj",)
    return "".join(f"<{tag}>" for tag in shown)


def _spanish_form(lemma: str, rest: str) -> str:
    tags = stream.tags(lemma + rest)
    if tags[0] == "n":
        return spanish.noun(lemma, tags[-1])
    if tags[0] == "adj":
        gender, number = tags[1:3] if len(tags) > 2 else ("m", "sg")
        return spanish.adjective(lemma, gender, number)
    if tags[0] != "vblex":
        return lemma
    head, space, tail = lemma.partition(" ")
    if head.endswith("se"):
        return spanish.reflexive(head[:-2], tags[1:]) + space + tail
    form = spanish.verb(lemma, tags[1:])
    for person in re.findall(r"<enc><(p\d)><(\w+)><(\w+)>", rest):
        form = spanish.with_enclitic(form, spanish.ENCLITICS.get(person, ""))
    return form


def _english_form(lemma: str, rest: str) -> str:
    tags = stream.tags(lemma + rest)
    if tags[0] == "n":
        return english.plural(lemma) if tags[-1] == "pl" else lemma
    if tags[0] == "vblex":
        return english.verb_by_tags(lemma, tags[1:])
    return lemma


def _as_written(reading: str, written: str) -> str:
    return _cased(reading, written)


def _cased(word: str, like: str) -> str:
    return word[:1].upper() + word[1:] if like[:1].isupper() else word
