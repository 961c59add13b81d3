"""Corrections of Apertium's Spanish when it translates from English. Pure.

Polite forms (usted; vosotros on the way to French, where it becomes vous), ser and estar, commands,
the subjunctive after `cuando`, the `a` before persons, pronouns, question marks. Each rule is one
function over the units before generation. Used by `english_spanish`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lingua_speech.engines.apertium.stream import LexicalUnit
from lingua_speech.engines.apertium.units import (
    CLAUSE_ENDS,
    at,
    changed,
    has,
    reading,
    word,
    word_set,
)

if TYPE_CHECKING:
    from lingua_speech.engines.apertium.stream import Units

Person = tuple[str, str]

PEOPLE: Final = word_set(
    "persona participante usuario médico doctor amigo madre padre hermano hermana hijo hija"
    " niño hombre mujer cliente jefe policía enfermero señor señora esposo esposa agente"
    " representante administrador profesor alguien nadie llamador colega vecino gente"
)
PLACES: Final = word_set("aquí allí allá ahí cerca lejos dentro fuera arriba abajo")
# States, which need estar.
STATES: Final = word_set(
    "ocupado disponible listo enfermo cansado perdido seguro enojado contento abierto cerrado"
    " casado lleno vacío roto sentado muerto bien mal solo preocupado conectado bloqueado"
    " desbloqueado encendido apagado silenciado equivocado embarazado mareado herido"
)
STATE_VERBS: Final = word_set(
    "conectar ocupar cerrar abrir perder cansar casar sentar bloquear desbloquear preocupar romper"
    " equivocar marear herir apagar encender silenciar"
)


def _with_person(unit: LexicalUnit, person: Person) -> LexicalUnit:
    new = re.sub(r"<p[123]><(?:sg|pl)>", f"<{person[0]}><{person[1]}>", reading(unit), count=1)
    return LexicalUnit(unit.blank, (new,))


BEFORE_NOUN: Final = word_set("único último mejor peor próximo siguiente")


def plainer_words(units: Units) -> Units:
    """Use `ese` for that, `otro` without an article, and the order of `el único amigo`."""
    found: Units = []
    for unit in units:
        new = unit
        before = found[-1] if found else LexicalUnit("", ())
        if word(unit) == "aquel" and has(unit, "dem"):
            new = changed(unit, "ese" + reading(unit)[5:])
        elif word(unit) == "aquello":
            new = changed(unit, "eso" + reading(unit)[7:])
        elif word(unit) == "otro" and word(before) == "uno":
            found.pop()
            new = LexicalUnit(before.blank, (reading(unit),))
        elif word(unit) in BEFORE_NOUN and has(unit, "adj") and has(before, "n"):
            found[-1] = LexicalUnit(before.blank, (reading(unit),))
            new = LexicalUnit(unit.blank, (reading(before),))
        found.append(new)
    return found


def small_first(units: Units) -> Units:
    """Return units to follow another one: a space before them, no capital letter."""
    first = reading(units[0])
    return [LexicalUnit(" ", (first[:1].lower() + first[1:],)), *units[1:]]


def spanish_commands(units: Units, forbids: bool) -> Units:
    """Turn infinitives that begin a clause into commands."""
    found: Units = []
    commanding = False
    for index, seen in enumerate(units):
        unit = seen
        before = at(units, index - 1)
        begins = (
            not reading(before)
            or any(has(before, tag) for tag in CLAUSE_ENDS)
            or reading(before)[:1] in {":", ";"}
            or word(before) in {"por favor", "solo", "sólo", "sencillamente", "ahora"}
            or (commanding and word(before) in {"y", "o", "entonces", "e"})
        )
        if begins and has(unit, "inf") and not has(unit, "vbmod"):
            new = reading(unit).replace("<inf>", "<imp><p3><sg>", 1)
            unit = LexicalUnit(unit.blank, (new,))
            commanding = True
        elif has(unit, "imp", "p2", "sg"):
            unit = _with_person(unit, ("p3", "sg"))
            commanding = True
        elif forbids and has(unit, "pri", "p3", "sg") and _is_denied(units, index):
            unit = LexicalUnit(unit.blank, (reading(unit).replace("<pri>", "<prs>", 1),))
            forbids = False
        found.append(unit)
    return found


def _is_denied(units: Units, index: int) -> bool:
    back = index - 1
    while has(at(units, back), "prn", "pro"):
        back -= 1
    return word(at(units, back)) == "no"


def ser_or_estar(units: Units) -> Units:
    """Use estar for places, states and actions in progress."""
    found: Units = []
    for index, seen in enumerate(units):
        unit = seen
        if word(unit) == "ser" and has(unit, "vbser"):
            ahead = index + 1
            while has(at(units, ahead), "adv") and word(units[ahead]) not in PLACES | STATES:
                ahead += 1
            after = at(units, ahead)
            asks_where = word(at(units, index - 1)) == "cómo" or any(
                word(before) in {"dónde", "donde"} for before in units[:index]
            )
            is_state = has(after, "pp") and (
                word(after) in STATE_VERBS
                or (ahead > index + 1 and has(unit, "pri") and word(at(units, ahead + 1)) != "por")
            )
            if (
                is_state
                or word(after) in PLACES | STATES
                or (word(after) == "en" and has(after, "pr"))
                or has(after, "ger")
                or asks_where
            ):
                new = re.sub(r"^(s|S)er<vbser>", r"\1er<vblex>", reading(unit))
                new = new.replace("ser<", "estar<", 1).replace("Ser<", "Estar<", 1)
                unit = LexicalUnit(unit.blank, (new,))
        found.append(unit)
    return found


def subjunctive_after_when(units: Units) -> Units:
    """Use the subjunctive for future events after `cuando`."""
    ahead = any(has(unit, "fti") or has(unit, "imp") for unit in units)
    found: Units = []
    pending = False
    for seen in units:
        unit = seen
        if word(unit) in {"cuando", "hasta que", "tan pronto como"}:
            pending = ahead
        elif has(unit, "cm") or has(unit, "sent"):
            pending = False
        elif pending and has(unit, "pri"):
            unit = LexicalUnit(unit.blank, (reading(unit).replace("<pri>", "<prs>", 1),))
            pending = False
        found.append(unit)
    return found


def personal_a(units: Units) -> Units:
    """Insert `a` before a person that is the object of a verb."""
    found: Units = []
    for index, unit in enumerate(units):
        verb = at(units, index - 1)
        if (
            has(unit, "det")
            and has(verb, "vblex")
            and word(verb) not in {"ser", "estar", "tener", "hay", "haber", "necesitar", "parecer"}
            and word(at(units, index + 1)) in PEOPLE
        ):
            found.extend((LexicalUnit(unit.blank or " ", ("a<pr>",)), LexicalUnit(" ", unit.parts)))
        else:
            found.append(unit)
    return found


def polite(units: Units) -> Units:
    """Use usted for "you": third person, su, le."""
    found: Units = []
    for unit in units:
        new = reading(unit)
        if has(unit, "prn", "pro", "p2") or (has(unit, "prn", "tn", "p2")):
            new = re.sub(r"^(?:Prpers|prpers|[Tt]i|[Tt]ú)<", "prpers<", new)
            new = new.replace("<p2><mf><pl>", "<p3><mf><pl>").replace("<p2>", "<p3>")
        elif word(unit) in {"vuestro", "tuyo"} and has(unit, "det"):
            new = f"suyo<det><pos><mf><{'pl' if has(unit, 'pl') else 'sg'}>"
        else:
            new = re.sub(r"<p2><(sg|pl)>", r"<p3><\1>", new, count=1)
            new = new.replace("<enc><p2>", "<enc><p3>")
        found.append(changed(unit, new) if unit.parts else unit)
    return found


def plural_you(units: Units) -> Units:
    """Use vosotros for "you", which becomes the polite form of the next language."""
    found: Units = []
    for unit in units:
        new = reading(unit).replace("<p2><sg>", "<p2><pl>").replace("<p2><mf><sg>", "<p2><mf><pl>")
        if has(unit, "imp"):
            new = new.replace("<imp><p3><sg>", "<imp><p2><pl>")
        elif has(unit, "prn", "tn", "p2"):
            new = re.sub(r"^(?:[Tt]i|[Tt]ú)<", "prpers<", new)
        found.append(changed(unit, new) if unit.parts else unit)
    return found


def with_opening_marks(text: str) -> str:
    """Insert the opening marks of questions and exclamations."""
    for mark, opening in (("?", "¿"), ("!", "¡")):
        if text.endswith(mark) and opening not in text:
            head = re.match(
                r"^((?:sí|no|pero|entonces|por favor|disculpe|perdón|bueno|gracias|hola|"
                r"buenos días|buenas tardes|buenas noches|lo siento|señora?),? )?",
                text,
                re.IGNORECASE,
            )
            lead = head.group() if head else ""
            lead = lead if lead.rstrip().endswith(",") else ""
            text = f"{lead}{opening}{text[len(lead) :]}"
    return text
