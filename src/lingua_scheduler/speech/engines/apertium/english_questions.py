"""Questions as English asks them: "can you", "do you want", "how much does it cost". Pure.

Spanish asks in the order of a statement, and Apertium keeps it. The rule works on the units before
generation. Used by `spanish_english`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lingua_scheduler.speech.engines.apertium.stream import Piece
from lingua_scheduler.speech.engines.apertium.units import at, changed, has, reading, word, word_set

if TYPE_CHECKING:
    from lingua_scheduler.speech.engines.apertium.edits import Units

# In a question these are not asked about you.
OF_THINGS: Final = word_set(
    "be cost happen mean matter leave arrive start begin open close rain snow work finish hurt"
    " ache like"
)
HELPERS: Final = ("vaux", "vbser", "vbhaver", "vbdo")
# Only people do these.
VERBS: Final = ("vblex", "vbmod", "vaux", "vbser", "vbhaver")
# Pronouns as subjects; a third person that nobody names is you.
NAMED: Final = {
    "p1sg": "prpers<prn><subj><p1><mf><sg>",
    "p2sg": "prpers<prn><subj><p2><mf><sp>",
    "p3sg": "prpers<prn><subj><p2><mf><sp>",
    "p1pl": "prpers<prn><subj><p1><mf><pl>",
    "p2pl": "prpers<prn><subj><p2><mf><sp>",
    "p3pl": "prpers<prn><subj><p3><mf><pl>",
}


def questions(units: Units) -> Units:
    """Ask as English asks: "can you", "do you want", "where is the hotel"."""
    if not any(reading(unit).startswith("?") for unit in units):
        return units
    start = 0
    comma = next((index for index, unit in enumerate(units) if has(unit, "cm")), None)
    if comma is not None and not any(has(unit, tag) for unit in units[:comma] for tag in VERBS):
        start = comma + 1
    while has(at(units, start), "itg") or word(at(units, start)) in {"and", "but", "how"}:
        start += 1
    asks = start > 0 and has(at(units, start - 1), "itg")
    first, second = at(units, start), at(units, start + 1)
    if has(first, "prn", "subj"):
        return _inverted(units, start, first, second)
    if has(first, "vblex") and has(second, "prn", "subj"):
        return [*units[:start], *_helped(first, second), *units[start + 2 :]]
    if asks and has(first, "vblex") and not has(first, "inf"):
        return _helped_thing(units, start)
    return units


def _inverted(units: Units, start: int, first: Piece, second: Piece) -> Units:
    head, tail = units[:start], units[start + 2 :]
    if any(has(second, tag) for tag in HELPERS):
        has_thing = has(at(tail, 0), "det") or has(at(tail, 0), "np")
        if has(first, "p3", "nt") and has(second, "vbser") and has_thing:
            return [*head, _moved(second, first), *tail]
        small = reading(first)
        return [*head, _moved(second, first), Piece(" ", (_small(small),)), *tail]
    if has(second, "vblex") or has(second, "vbmod"):
        return [*head, *_helped(second, first), *tail]
    return units


def _moved(verb: Piece, place: Piece) -> Piece:
    """Return the verb with the blank and the capital of the place it moves to."""
    return Piece(place.blank, (changed(place, _small(reading(verb))).parts[0],))


def _small(text: str) -> str:
    return text[:1].lower() + text[1:]


def _helped(verb: Piece, subject: Piece) -> list[Piece]:
    """Return do or did, the subject, and the bare verb."""
    if has(verb, "past"):
        helper = "did"
    else:
        helper = "does" if has(verb, "p3") and not has(subject, "p2") else "do"
    bare = re.sub(r"<(?:past|pres|pri|imp).*?>(?:<p\d><\w+>)?", "<inf>", reading(verb), count=1)
    large = reading(subject)[:1].isupper() or reading(verb)[:1].isupper()
    shown = helper.capitalize() if large else helper
    return [
        Piece(subject.blank, (f"*{shown}",)),
        Piece(" ", (_small(reading(subject)),)),
        Piece(" ", (_small(bare),)),
    ]


def _helped_thing(units: Units, start: int) -> Units:
    """Move what is asked about before its verb, or say it if nothing is named."""
    end = start + 1
    while any(has(at(units, end), tag) for tag in ("det", "adj", "n", "np")):
        end += 1
    verb = units[start]
    if end == start + 1:
        if has(verb, "p3") and word(at(units, start - 1)) != "who":
            about_you = word(verb) not in OF_THINGS
            nobody = Piece(" ", (NAMED["p2sg"] if about_you else "prpers<prn><subj><p3><nt><sg>",))
            return [*units[:start], *_helped(verb, nobody), *units[end:]]
        return units
    helper, _, bare = _helped(verb, Piece(verb.blank, ("x<prn><p3>",)))
    thing = [Piece(" ", (_small(reading(unit)),)) for unit in units[start + 1 : end]]
    return [*units[:start], Piece(" ", helper.parts), *thing, bare, *units[end:]]
