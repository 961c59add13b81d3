"""Spanish into English: what Apertium needs to be told, and what it gets wrong. Pure.

Before: accents that hurried writers leave out. Between: commands to usted, the supplementary
lexicon, `su` as your, his or her. After: "you have" for "you has", questions with their helping
verbs, "I like it" for "it likes me", "phone number" for "number of phone". Each rule is one
function, in the order of use.
"""

from __future__ import annotations

import re
from typing import Final

from lingua_scheduler.speech.engines.apertium import edits
from lingua_scheduler.speech.engines.apertium.edits import Edits, Units
from lingua_scheduler.speech.engines.apertium.english_questions import (
    HELPERS,
    NAMED,
    OF_THINGS,
    VERBS,
    questions,
)
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
    small_inside,
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
        # Who does what `lo que` tells, in order; English must name them.
        self._tellers: list[str] = []
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
        self._tellers = tellers(units)
        return to_whom(chosen_verbs(whose(units)))

    def target(self, units: Units) -> Units:
        """Correct the English, word by word."""
        units = to_you(named_tellers(units, self._tellers))
        units = agreeing(units)
        units = liked(units)
        units = compounds(units)
        units = personal_objects(units)
        units = questions(units)
        return lexicon("en").say_all(edits.said_adverbs(small_inside(units)))

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


def to_whom(units: Units) -> Units:
    """What I do to `le`, or ask of it, is about you, unless somebody else is named."""
    if any(word(unit) in PERSONS for unit in units):
        return units
    mine = any(has(unit, "p1") and not has(unit, "ifi") and not has(unit, "prn") for unit in units)
    mine = mine or any(reading(unit).startswith("?") for unit in units)
    return [
        Piece(unit.blank, (unit.parts[0], unit.parts[1].replace("<p3><m><sg>", "<p2><mf><sp>")))
        if mine and has(unit, "prn", "p3", "mf") and len(unit.parts) > 1 and not has(unit, "tn")
        else unit
        for unit in units
    ]


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
                unit = changed(unit, NAMED["p2sg"])
            elif word(verb) in OF_PEOPLE:
                unit = changed(unit, "prpers<prn><subj><p3><m><sg>")
        found.append(unit)
    return found


def tellers(units: Units) -> list[str]:
    """Return who does it, for each verb that stands right behind `lo que`."""
    found = []
    for index, unit in enumerate(units):
        is_what = len(unit.parts) > 1 and unit.parts[1].lower().startswith("what<")
        verb = at(units, index + 1)
        if is_what and (has(verb, "vblex") or has(verb, "vbhaver")):
            shown = re.search(r"<(p\d)><(sg|pl)>", reading(verb))
            found.append("".join(shown.groups()) if shown else "")
    return found


def named_tellers(units: Units, persons: list[str]) -> Units:
    """Name who does it behind what: "what you said"."""
    found: Units = []
    left = list(persons)
    for index, unit in enumerate(units):
        found.append(unit)
        verb = at(units, index + 1)
        if word(unit) == "what" and left and any(has(verb, tag) for tag in VERBS):
            person = NAMED.get(left.pop(0))
            if person is not None and not any(reading(last).startswith("?") for last in units):
                found.append(Piece(" ", (person,)))
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
        elif you and any(has(unit, tag) for tag in ("vblex", *HELPERS)):
            you = False
        found.append(unit)
    return found


def liked(units: Units) -> Units:
    """Say "I like it" for what pleases, and "my head hurts"."""
    for index, unit in enumerate(units):
        if not has(unit, "prn", "subj", "p3", "nt"):
            continue
        verb = index + 1
        while has(at(units, verb), "vbdo") or has(at(units, verb), "adv"):
            verb += 1
        person = at(units, verb + 1)
        if not has(person, "prn", "obj") or not has(at(units, verb), "vblex"):
            continue
        if word(units[verb]) == "like":
            return _with_subject(units, index, verb)
        if word(units[verb]) in {"hurt", "ache"} and word(at(units, verb + 2)) == "the":
            return _hurting(units, index, verb)
    return units


def _with_subject(units: Units, index: int, verb: int) -> Units:
    person = reading(units[verb + 1]).replace("<obj>", "<subj>")
    third = "<p3>" in person and "<sg>" in person
    found = list(units)
    found[index] = changed(units[index], person)
    for place in range(index + 1, verb + 1):
        if not third:
            new = reading(units[place]).replace("<pri><p3><sg>", "<pres>")
            found[place] = Piece(units[place].blank, (new,))
    return [*found[: verb + 1], *found[verb + 2 :]]


def _hurting(units: Units, index: int, verb: int) -> Units:
    owners = {"p1sg": "my", "p1pl": "our", "p3pl": "their", "p3m": "his", "p3f": "her"}
    shown = re.search(r"<(p\d)><(\w+)><(\w+)>", reading(units[verb + 1]))
    person, gender, number = shown.groups() if shown else ("p2", "mf", "sp")
    owner = owners.get(person + number) or owners.get(person + gender) or "your"
    thing = verb + 3
    if not has(at(units, thing), "n"):
        return units
    number = "pl" if has(units[thing], "pl") else "sg"
    hurts = "hurt<vblex><pres>" if number == "pl" else "hurt<vblex><pri><p3><sg>"
    return [
        *units[:index],
        changed(Piece(units[index].blank, units[index].parts), f"{owner}<det><pos><{number}>"),
        Piece(" ", units[thing].parts),
        Piece(" ", (hurts,)),
        *units[thing + 1 :],
    ]


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


WITHOUT_TO: Final = word_set(
    "call find locate see help know visit expel remove kill look_for invite love meet hear join"
)


def personal_objects(units: Units) -> Units:
    """Leave out the `to` that stands for the Spanish `a` before persons."""
    found: Units = []
    for index, unit in enumerate(units):
        verb = at(units, index - 1)
        is_to = word(unit) == "to" and has(unit, "pr") and has(verb, "vblex")
        if is_to and word(verb) in WITHOUT_TO and not has(at(units, index + 1), "inf"):
            continue
        found.append(unit)
    return found
