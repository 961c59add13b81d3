"""Spans that must not be translated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engines.apertium import protection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "kept",
    [
        "https://x.org/a?b=c#d",
        "me@here.org",
        "C#",
        "A4",
        "50%",
        "$5.50",
        "🙂",
        "*hello*",
        "zqxbz",
        "Zqyaz",
        "<b>",
        "^x^",
        "{b}",
        "snake_case",
    ],
)
def test_what_is_not_a_word_is_protected(kept: str) -> None:
    hidden, pieces = protection.protect(f"see {kept} now")
    assert kept not in hidden
    assert protection.restore(hidden, pieces) == f"see {kept} now"


@given(st.text())
def test_protection_takes_nothing_away(text: str) -> None:
    hidden, pieces = protection.protect(text)
    assert protection.restore(hidden, pieces).replace("\u2060", "") == text.replace("\u2060", "")


def test_what_a_program_lost_is_said_at_the_end() -> None:
    hidden, pieces = protection.protect("see www.x.org now")
    assert hidden != "see now"
    assert protection.restore("see now", pieces) == "see now www.x.org"
