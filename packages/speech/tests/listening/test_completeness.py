"""Whether a text so far looks like a whole sentence."""

from __future__ import annotations

import pytest

from lingua_speech.listening.completeness import ALWAYS_OPEN, MOSTLY_OPEN, is_complete

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("The meeting begins at ten.", "en", True),
        ("Where is it?", "en", True),
        ("What are you looking for?", "en", True),
        ("The meeting begins at.", "en", False),
        ("I went to the", "en", False),
        ("I went to the.", "en-us", False),
        ("and then,", "en", False),
        ("and then...", "en", False),
        ("La reunión empieza a las", "es", False),
        ("La reunión empieza a las diez.", "es", True),
        ("C'est la maison de.", "fr", False),
        ("Das ist ein", "de", False),
        ("Isto é muito", "pt", False),
        ("Questa è la", "it", False),
        ("He was not an ill-disposed young man", "en", None),
        ("Yes.", "en", None),
        # Words that mostly go on, but end some sentences: a mark makes it unknown.
        ("He was more respectable than he was.", "en", None),
        ("He was more respectable than he was", "en", False),
        ("Is that where it was?", "en", True),
        ("Ich komme gerne mit.", "de", None),
        ("Ich komme gerne mit", "de", False),
        ("No quiero nada más.", "es", None),
        ("I went to the", "xx", None),
        ("", "en", None),
    ],
)
def test_it_is_told_from_the_last_word(text: str, language: str, expected: bool | None) -> None:
    assert is_complete(text, language) is expected


def test_the_languages_of_the_default_node_have_lists() -> None:
    assert set(ALWAYS_OPEN) == set(MOSTLY_OPEN) == {"en", "es", "fr", "de", "pt", "it"}


def test_no_word_is_in_both_lists() -> None:
    for language, words in ALWAYS_OPEN.items():
        assert not words & MOSTLY_OPEN[language]
