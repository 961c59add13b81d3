"""Spanish into English: hints for Apertium and corrections of its output. Pure.

Before the programs: missing accents are added. Between them: commands to usted, the supplementary
lexicon, `su` as your, his or her. After them: "you have" for "you has", "phone number" for "number
of phone". Each rule is one function, in the order of use.
"""

from __future__ import annotations

import re
from typing import Final

from lingua_speech.engines.apertium import sentence_rules
from lingua_speech.engines.apertium.lexicon import lexicon
from lingua_speech.engines.apertium.negation import restore_english_negation
from lingua_speech.engines.apertium.sentence_rules import SentenceRules
from lingua_speech.engines.apertium.stream import LexicalUnit, Units
from lingua_speech.engines.apertium.units import (
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
)

WOMEN: Final = word_set(
    "ella mujer madre hermana hija señora esposa niña abuela amiga tía chica novia"
)
PERSONS: Final = WOMEN | word_set(
    "él hombre padre hermano hijo señor esposo niño abuelo amigo tío chico novio médico doctor"
    " jefe profesor presidente director"
)
# After these words a clause may continue with a command.
LEADS: Final = frozenset(
    ["por favor", "primero", "luego", "después", "entonces", "ahora", "simplemente", "también"]
)
# Without a subject these verbs address the listener.
TO_YOU: Final = word_set("can want wish need must could should prefer")
OF_PEOPLE: Final = word_set("tell say ask think know believe explain answer reply")
# In a question without a subject these verbs are not about the listener.
OF_THINGS: Final = word_set(
    "be cost happen mean matter leave arrive start begin open close rain snow work finish hurt"
    " ache like"
)
YOU: Final = "prpers<prn><subj><p2><mf><sp>"
# With `of` these nouns are an amount, not a kind: a cup of coffee.
AMOUNTS: Final = word_set(
    "cup glass bottle kind type sort lot group piece pair part member couple number_of end"
    " beginning top bottom middle side back front day month year week time hour thousand million"
    " dozen plate bag box set rest majority half lack sense point way form loss fear love"
    " use change case place out because instead king queen history"
)


class SpanishEnglishRules(SentenceRules):
    """The rules, for one sentence."""

    table = "es-en"

    def __init__(self) -> None:
        super().__init__()
        # Whether the sentence begins with a capital letter.
        self._starts_large = True
        self._source = ""

    def before(self, text: str) -> str:
        """Rewrite the Spanish text as the analyser expects it."""
        self._source = text
        self._starts_large = not text[:1].islower()
        for pattern, plain in sentence_rules.patterns("before-es-en.tsv"):
            text = pattern.sub(plain, text)
        return self.extract_phrases(text)

    def analysed(self, units: Units) -> Units:
        """Choose readings."""
        units = lexicon("en").recognise(sentence_rules.analyse_placeholders(units))
        return commands(units)

    def bilingual(self, units: Units) -> Units:
        """Choose translations."""
        units = sentence_rules.copy_placeholders(units)
        units = [
            unit if word(unit) == "marcar" else lexicon("en").translate(unit) for unit in units
        ]
        return chosen_verbs(whose(units))

    def target(self, units: Units) -> Units:
        """Correct the English words."""
        units = compounds(agreeing(to_you(units)))
        return lexicon("en").generate_all(sentence_rules.write_placeholders(units))

    def after(self, text: str) -> str:
        """Correct punctuation and capitals."""
        text = sentence_rules.tidy(self.insert_phrases(text).replace("¿", "").replace("¡", ""))
        text = restore_english_negation(self._source, text)
        for pattern, replacement in sentence_rules.patterns("after-es-en.tsv"):
            text = pattern.sub(replacement, text)
        return sentence_rules.capitalised(text) if self._starts_large else text


def commands(units: Units) -> Units:
    """Find commands to usted: a subjunctive form that begins a clause."""
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
            or (back == 0 and sentence_rules.PLACEHOLDER.fullmatch(before.parts[0]) is not None)
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
    """Translate `su` as "your", unless the sentence is about another person."""
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
            unit = LexicalUnit(unit.blank, (unit.parts[0], new))
        found.append(unit)
    return found


def chosen_verbs(units: Units) -> Units:
    """Choose among several translations of a verb: dial, press or mark; wait; tell."""
    found: Units = []
    for index, seen in enumerate(units):
        unit = seen
        after = at(units, index + 1)
        name = word(unit)
        if name == "marcar" and has(unit, "vblex"):
            thing = word(at(units, index + 2)) if has(after, "det") else word(after)
            if has(unit, "imp") and (has(after, "num") or thing in {"asterisco", "tecla", "uno"}):
                unit = _translated_as(unit, "press")
            elif has(unit, "imp") or has(unit, "pp") or thing in {"número", "extensión"}:
                unit = _translated_as(unit, "dial")
        elif name == "salir" and has(unit, "inf"):
            unit = _translated_as(unit, "exit")
        elif name == "esperar" and word(after) != "que":
            unit = _translated_as(unit, "wait")
        elif name == "decir" and (
            has(after, "enc") or has(at(units, index - 1), "prn", "pro") or word(after) == "a"
        ):
            unit = _translated_as(unit, "tell")
        found.append(unit)
    return found


def _translated_as(unit: LexicalUnit, verb: str) -> LexicalUnit:
    """Return the unit with another translation and the same tags."""
    lemma, _, shown = unit.parts[0].partition("<")
    large = lemma[:1].isupper()
    return LexicalUnit(
        unit.blank, (unit.parts[0], f"{verb.capitalize() if large else verb}<{shown}")
    )


def to_you(units: Units) -> Units:
    """Use "you" as the subject of verbs such as can and want that have none in Spanish."""
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
            commanded = commanding and has(verb, "vblex", "pres")
            if word(verb) in TO_YOU or asked or commanded:
                unit = changed(unit, YOU)
            elif word(verb) in OF_PEOPLE:
                unit = changed(unit, "prpers<prn><subj><p3><m><sg>")
        found.append(unit)
    return found


def agreeing(units: Units) -> Units:
    """Make the verb agree with "you": you have, you are."""
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
            unit, you = LexicalUnit(unit.blank, (new,)), False
        elif you and has(unit, "vbser", "past"):
            new = reading(unit).replace("<past><p3><sg>", "<past>")
            unit, you = LexicalUnit(unit.blank, (new,)), False
        elif has(before, "n", "sg") and has(unit, "vblex", "pres"):
            unit = LexicalUnit(unit.blank, (reading(unit).replace("<pres>", "<pri><p3><sg>"),))
        elif word(unit) == "like" and has(unit, "pr") and has(at(units, index + 1), "adj"):
            unit = changed(unit, "as<pr>")
        elif you and any(has(unit, tag) for tag in ("vblex", "vaux", "vbser", "vbhaver", "vbdo")):
            you = False
        found.append(unit)
    return found


def compounds(units: Units) -> Units:
    """Turn "number of phone" into "phone number": two bare nouns, the second names the kind."""
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
            found.extend(
                (
                    LexicalUnit(first.blank, (changed(first, reading(kind)).parts[0],)),
                    LexicalUnit(" ", (lowered,)),
                )
            )
            index += 3
        else:
            found.append(first)
            index += 1
    return found
