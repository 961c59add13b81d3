"""The rules of each direction. Pure.

On a route through a pivot language the rules depend on its final target: on the way from English to
French, "you" must become a Spanish form that Apertium translates as `vous`. Used by the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_speech.engines.apertium.english_spanish import EnglishSpanishRules
from lingua_speech.engines.apertium.sentence_rules import PhraseRules, SentenceRules
from lingua_speech.engines.apertium.spanish_english import SpanishEnglishRules

if TYPE_CHECKING:
    from lingua_speech.engines.apertium.modes import Direction


def rules_for(direction: Direction, toward: str) -> SentenceRules:
    """Return the rules for one sentence in this direction; `toward` is the final target."""
    if direction == ("en", "es"):
        return EnglishSpanishRules(
            "vosotros" if toward == "fr" else "usted", is_intermediate=toward != "es"
        )
    if direction in {("es", "fr"), ("fr", "es")}:
        return PhraseRules("-".join(direction))
    if direction == ("es", "en"):
        return SpanishEnglishRules()
    return SentenceRules()
