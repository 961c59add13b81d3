"""The rules from English into Spanish before transfer."""

from __future__ import annotations

import pytest

from lingua_speech.engines.apertium import english_spanish, stream

pytestmark = pytest.mark.unit


def _before(text: str) -> str:
    return english_spanish.EnglishSpanishRules().before(text)


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("I can't and won't go", "I can not and will not go"),
        ("You've seen it, they'll see", "You have seen it, they will see"),
        ("Is there a bank?", "There Is a bank?"),
    ],
)
def test_english_is_written_as_the_analyser_expects(said: str, written: str) -> None:
    assert _before(said) == written


def test_a_bare_verb_where_a_clause_begins_is_a_command() -> None:
    text = "^Press/Press<n><sg>/Press<vblex><inf>$ ^1/1<num>$ ^now/now<adv>$[]"
    units, forbids = english_spanish.commands(stream.read(text))
    assert units[0].parts == ("Press", "Press<vblex><inf>")
    assert not forbids
