"""What the tagger is asked where rules have left out readings, and what its answer is made. Pure.

Asked to choose among a few of a word's readings, a combination it never met when it was trained,
apertium-tagger gives itself a rule for that, and tags other sentences otherwise from then on. So it
is given one reading or all of them; where rules left more than one, its choice is held to those.
"""

from __future__ import annotations

from lingua_scheduler.speech.engines.apertium import stream
from lingua_scheduler.speech.engines.apertium.stream import Piece

Units = list[Piece]
Allowed = dict[int, tuple[str, ...]]


def whole_again(analysed: Units, edited: Units) -> tuple[Units, Allowed]:
    """Return the units with all their readings, but for those that have one left; and what is left.

    What is left is by the unit's place.
    """
    known = {unit.parts[0]: unit for unit in analysed if unit.parts}
    allowed: Allowed = {}
    asked: Units = []
    for place, unit in enumerate(edited):
        parts = unit.parts
        full = known[parts[0]].parts if parts and parts[0] in known else parts
        if len(parts) > 2 and set(parts) < set(full):
            allowed[place] = parts[1:]
            asked.append(Piece(unit.blank, full))
        else:
            asked.append(unit)
    return asked, allowed


def held_to(tagged: Units, allowed: Allowed) -> Units:
    """Return what the tagger chose, and where that was left out, what is most like it."""
    held = list(tagged)
    for place, readings in allowed.items():
        chosen = tagged[place].parts[0] if place < len(tagged) and tagged[place].parts else ""
        if chosen and chosen not in readings:
            held[place] = Piece(tagged[place].blank, (_most_like(chosen, readings),))
    return held


def _most_like(chosen: str, readings: tuple[str, ...]) -> str:
    tags = set(stream.tags(chosen))
    return max(readings, key=lambda reading: len(tags & set(stream.tags(reading))))
