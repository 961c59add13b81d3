"""Spanish into English: what Apertium needs to be told, and what it gets wrong. Pure.

Before: accents that hurried writers leave out. Between: commands to usted, the supplementary
lexicon, `su` as your, his or her. After: "you have" for "you has", "phone number" for "number of
phone". Each rule is one function, in the order of use.
"""

from __future__ import annotations

import re
from typing import Final

from lingua_scheduler.speech.engines.apertium import edits
from lingua_scheduler.speech.engines.apertium.edits import Edits, Units
from lingua_scheduler.speech.engines.apertium.lexicon import lexicon
from lingua_scheduler.speech.engines.apertium.negation import kept_in_english
from lingua_scheduler.speech.engines.apertium.stream import Piece
from lingua_scheduler.speech.engines.apertium.units import (
    CLAUSE_ENDS,
    at,
    can_be,
    changed,
    has,
    keep_tags,
    reading,
    word,
    word_set,
    written,
)  # fmt: skip

WOMEN: Final = word_set(
    "ella mujer madre hermana hija señora esposa niña abuela amiga tía chica novia"
)
PERSONS: Final = WOMEN | word_set(
    "él hombre padre hermano hijo señor esposo niño abuelo amigo tío chico novio médico doctor"
    " jefe profesor presidente director"
)
# Behind these a clause may go on with a command.
LEADS: Final = frozenset(
    ["por favor", "primero", "luego", "después", "entonces", "ahora", "simplemente", "también"]
)
# Said of nobody in particular these are said to you.
TO_YOU: Final = word_set("can want wish need must could should prefer")
OF_PEOPLE: Final = word_set("tell say ask think know believe explain answer reply")
# In a question these are not asked about you.
OF_THINGS: Final = word_set(
    "be cost happen mean matter leave arrive start begin open close rain snow work finish hurt"
    " ache like"
)
YOU: Final = "prpers<prn><subj><p2><mf><sp>"
# One of these with `of` is an amount, not a kind: a cup of coffee.
AMOUNTS: Final = word_set(
    "cup glass bottle kind type sort lot group piece pair part member couple number_of end"
    " beginning top bottom middle side back front day month year week time hour thousand million"
    " dozen plate bag box set rest majority half lack sense point way form loss fear love"
    " use change case place out because instead king queen history"
)


class SpanishEnglish(Edits):
    """The rules, for one sentence."""

    table = "es-en"

    def __init__(self) -> None:
        super().__init__()
        # Whether the sentence began with a capital.
        self._starts_large = True
        self._source = ""

    def before(self, text: str) -> str:
        """Write Spanish as the analyser expects it."""
        self._source = text
        self._starts_large = not text[:1].islower()
        for pattern, plain in edits.patterns("before-es-en.tsv"):
            text = pattern.sub(plain, text)
        return self.take_phrases(text)

    def analysed(self, units: Units) -> Units:
        """Choose readings."""
        units = lexicon("en").recognise(edits.known_adverbs(units))
        return commands(units)

    def bilingual(self, units: Units) -> Units:
        """Choose translations."""
        units = edits.same_adverbs(units)
        units = [
            unit if word(unit) == "marcar" else lexicon("en").translate(unit) for unit in units
        ]
        return chosen_verbs(whose(units))

    def target(self, units: Units) -> Units:
        """Correct the English, word by word."""
        units = compounds(agreeing(to_you(units)))
        return lexicon("en").say_all(edits.said_adverbs(units))

    def after(self, text: str) -> str:
        """Put marks and capitals right."""
        text = edits.tidy(self.put_phrases(text).replace("¿", "").replace("¡", ""))
        text = kept_in_english(self._source, text)
        for pattern, said in edits.patterns("after-es-en.tsv"):
            text = pattern.sub(said, text)
        return edits.capitalised(text) if self._starts_large else text


def commands(units: Units) -> Units:
    """Find what usted is told to do: a subjunctive form where a clause begins."""
    found: Units = []
    commanding = False
    for index, seen in enumerate(units):
        unit = seen
        back = index - 1
        while at(units, back).parts and written(units[back]) == "no":
            back -= 1
        before = at(units, back)
        begins = (
            not before.parts
            or any(can_be(before, tag) for tag in CLAUSE_ENDS)
            or before.parts[0] in {":", ";"}
            or written(before) in LEADS
            or (commanding and written(before) in {"y", "o", "e", "u"})
            or (back == 0 and edits.PLACE.fullmatch(before.parts[0]) is not None)
        )
        after = at(units, index + 1)
        is_else = any(can_be(unit, tag) for tag in ("n", "pr", "adj", "adv")) and not (
            can_be(after, "det") or can_be(after, "num")
        )
        if begins and can_be(unit, "imp", "p3") and not is_else:
            unit = keep_tags(unit, "imp", "p3")
            commanding = True
        found.append(unit)
    return found


def whose(units: Units) -> Units:
    """Say your for `su`, unless the sentence is about somebody else."""
    found: Units = []
    owner = "your"
    for index, seen in enumerate(units):
        unit = seen
        name = word(unit)
        if name in PERSONS and not has(at(units, index - 1), "pr"):
            owner = "her" if name in WOMEN else "his"
        elif has(unit, "prn", "tn", "p3", "m") or has(unit, "prn", "tn", "p3", "f"):
            owner = "her" if has(unit, "f") else "his"
        elif has(unit, "np") and index == 0:
            owner = "his"
        if name == "suyo" and has(unit, "det") and len(unit.parts) > 1:
            new = re.sub(r"^(?:[Hh]is|[Hh]er|[Ii]ts|[Tt]heir)<", f"{owner}<", unit.parts[1])
            new = new[:1].upper() + new[1:] if unit.parts[0][:1].isupper() else new
            unit = Piece(unit.blank, (unit.parts[0], new))
        found.append(unit)
    return found


def chosen_verbs(units: Units) -> Units:
    """Choose the English of verbs that have several: dial, press or mark; wait; tell."""
    found: Units = []
    for index, seen in enumerate(units):
        unit = seen
        after = at(units, index + 1)
        name = word(unit)
        if name == "marcar" and has(unit, "vblex"):
            thing = word(at(units, index + 2)) if has(after, "det") else word(after)
            if has(unit, "imp") and (has(after, "num") or thing in {"asterisco", "tecla", "uno"}):
                unit = _said(unit, "press")
            elif has(unit, "imp") or has(unit, "pp") or thing in {"número", "extensión"}:
                unit = _said(unit, "dial")
        elif name == "salir" and has(unit, "inf"):
            unit = _said(unit, "exit")
        elif name == "esperar" and word(after) != "que":
            unit = _said(unit, "wait")
        elif name == "decir" and (
            has(after, "enc") or has(at(units, index - 1), "prn", "pro") or word(after) == "a"
        ):
            unit = _said(unit, "tell")
        found.append(unit)
    return found


def _said(unit: Piece, verb: str) -> Piece:
    """Return the unit with another translation, its tags as they are."""
    lemma, _, shown = unit.parts[0].partition("<")
    large = lemma[:1].isupper()
    return Piece(unit.blank, (unit.parts[0], f"{verb.capitalize() if large else verb}<{shown}"))


def to_you(units: Units) -> Units:
    """Where Spanish names nobody, can and want are said to you."""
    is_question = any(reading(unit).startswith("?") for unit in units)
    commanding = has(at(units, 0), "vblex", "inf")
    found: Units = []
    for index, seen in enumerate(units):
        unit = seen
        if has(unit, "prn", "subj", "p3", "nt"):
            ahead = index + 1
            while has(at(units, ahead), "adv") or has(at(units, ahead), "vbdo"):
                ahead += 1
            verb = at(units, ahead)
            asked = is_question and has(verb, "vblex") and word(verb) not in OF_THINGS
            told = commanding and has(verb, "vblex", "pres")
            if word(verb) in TO_YOU or asked or told:
                unit = changed(unit, YOU)
            elif word(verb) in OF_PEOPLE:
                unit = changed(unit, "prpers<prn><subj><p3><m><sg>")
        found.append(unit)
    return found


def agreeing(units: Units) -> Units:
    """Say you have and you are, whatever the Spanish form."""
    found: Units = []
    you = False
    for index, seen in enumerate(units):
        unit = seen
        before = at(units, index - 1)
        if has(unit, "prn", "subj"):
            you = has(unit, "p2")
        elif has(unit, "n") or has(unit, "sent") or has(unit, "rel"):
            you = False
        elif you and has(unit, "pri", "p3", "sg"):
            new = reading(unit).replace("<pri><p3><sg>", "<pres>")
            unit, you = Piece(unit.blank, (new,)), False
        elif you and has(unit, "vbser", "past"):
            new = reading(unit).replace("<past><p3><sg>", "<past>")
            unit, you = Piece(unit.blank, (new,)), False
        elif has(before, "n", "sg") and has(unit, "vblex", "pres"):
            unit = Piece(unit.blank, (reading(unit).replace("<pres>", "<pri><p3><sg>"),))
        elif word(unit) == "like" and has(unit, "pr") and has(at(units, index + 1), "adj"):
            unit = changed(unit, "as<pr>")
        elif you and any(has(unit, tag) for tag in ("vblex", "vaux", "vbser", "vbhaver", "vbdo")):
            you = False
        found.append(unit)
    return found


def compounds(units: Units) -> Units:
    """Say "phone number" for "number of phone": two bare nouns, the second a kind of the first."""
    found: Units = []
    index = 0
    while index < len(units):
        first, link, kind = (at(units, index + step) for step in range(3))
        follows = at(units, index + 3)
        if (
            has(first, "n")
            and word(link) == "of"
            and has(kind, "n", "sg")
            and not (has(follows, "n") or word(follows) == "of" or has(follows, "adj"))
            and word(first) not in AMOUNTS
        ):
            lowered = reading(first)[:1].lower() + reading(first)[1:]
            found.extend((Piece(first.blank, (changed(first, reading(kind)).parts[0],)),
                          Piece(" ", (lowered,))))  # fmt: skip
            index += 3
        else:
            found.append(first)
            index += 1
    return found
