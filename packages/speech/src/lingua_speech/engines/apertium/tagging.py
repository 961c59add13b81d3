"""Restricts the tagger's choice to the readings that rules have kept. Pure.

If apertium-tagger must choose among some of a word's readings, a combination that did not occur in
its training, it adds a rule for it and tags later sentences differently. So it always gets one
reading or all of them. Where rules kept more than one, its choice is restricted to those here.
"""

from __future__ import annotations

from lingua_speech.engines.apertium import stream
from lingua_speech.engines.apertium.stream import LexicalUnit, Units

Allowed = dict[int, tuple[str, ...]]


def with_all_readings(analysed: Units, edited: Units) -> tuple[Units, Allowed]:
    """Return the units for the tagger, and the readings allowed at each place.

    A unit with several allowed readings gets all its readings back, a unit with one keeps that.
    """
    known = {unit.parts[0]: unit for unit in analysed if unit.parts}
    allowed: Allowed = {}
    asked: Units = []
    for place, unit in enumerate(edited):
        parts = unit.parts
        full = known[parts[0]].parts if parts and parts[0] in known else parts
        if len(parts) > 2 and set(parts) < set(full):
            allowed[place] = parts[1:]
            asked.append(LexicalUnit(unit.blank, full))
        else:
            asked.append(unit)
    return asked, allowed


def restrict_to_allowed(tagged: Units, allowed: Allowed) -> Units:
    """Return the tagger's choices; one that is not allowed becomes the most similar allowed one."""
    restricted = list(tagged)
    for place, readings in allowed.items():
        chosen = tagged[place].parts[0] if place < len(tagged) and tagged[place].parts else ""
        if chosen and chosen not in readings:
            restricted[place] = LexicalUnit(tagged[place].blank, (_most_similar(chosen, readings),))
    return restricted


def _most_similar(chosen: str, readings: tuple[str, ...]) -> str:
    tags = set(stream.tags(chosen))
    return max(readings, key=lambda reading: len(tags & set(stream.tags(reading))))
