"""Telephone prompts and everyday sentences are told apart by their words."""

from __future__ import annotations

import pytest

from lingua_bench.translation.sets import file_text, read
from lingua_speech.routing.kinds import EVERYDAY, PROMPTS, kind_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "language", "kind"),
    [
        ("Press one to hear the message.", "en", PROMPTS),
        ("You are currently the only person in this conference.", "en-us", PROMPTS),
        ("Please leave a message after the tone.", "en", PROMPTS),
        ("Marque el número de la extensión.", "es", PROMPTS),
        ("I got your message.", "en", EVERYDAY),
        ("He was not an ill-disposed young man.", "en", EVERYDAY),
        ("¿Dónde está la estación?", "es", EVERYDAY),
        ("Press one.", "pt", EVERYDAY),
        ("", "en", EVERYDAY),
    ],
)
def test_a_sentence_is_of_a_kind(text: str, language: str, kind: str) -> None:
    assert kind_of(text, language) == kind


def test_everyday_sentences_are_hardly_ever_taken_for_a_telephone() -> None:
    for one in read("everyday", file_text("everyday-en-es.tsv")):
        taken = [text for text in one.texts if kind_of(text, one.direction[0]) == PROMPTS]
        assert len(taken) <= len(one.texts) // 100, taken
