"""Parts of a text are joined as their script is written."""

from __future__ import annotations

import pytest

from lingua_wire.text_joints import joined_text

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("stable", "unstable", "whole"),
    [
        ("", "", ""),
        ("Good", "", "Good"),
        ("", "morning", "morning"),
        ("Good", "morning", "Good morning"),
        ("Good", " morning", "Good morning"),
        ("Good ", "morning", "Good morning"),
        ("早上", "好", "早上好"),
        ("早上好", "Anna", "早上好 Anna"),
    ],
)
def test_words_are_apart_where_their_script_has_spaces(
    stable: str, unstable: str, whole: str
) -> None:
    assert joined_text(stable, unstable) == whole
