"""Which rules a direction has. Pure.

A way over another language is told where it leads: "you" on the way from English to French must
be a form that becomes `vous`. Used by the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.speech.engines.apertium.edits import Edits, Phrased
from lingua_scheduler.speech.engines.apertium.english_spanish import EnglishSpanish
from lingua_scheduler.speech.engines.apertium.spanish_english import SpanishEnglish

if TYPE_CHECKING:
    from lingua_scheduler.speech.engines.apertium.modes import Direction


def edits_for(direction: Direction, toward: str) -> Edits:
    """Return the rules of one sentence on this direction, on its way to a language."""
    if direction == ("en", "es"):
        return EnglishSpanish("vosotros" if toward == "fr" else "usted", goes_on=toward != "es")
    if direction in {("es", "fr"), ("fr", "es")}:
        return Phrased("-".join(direction))
    if direction == ("es", "en"):
        return SpanishEnglish()
    return Edits()
