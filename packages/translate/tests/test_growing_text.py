"""Lines of speech that goes on: firm and loose words, cut to the width of a terminal."""

from __future__ import annotations

import pytest

from lingua_translate.growing_text import (
    ToneSpan,
    cut_left,
    growing_line,
    growing_words,
    split_text,
)
from lingua_wire.captions import columns

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("stable", "unstable", "split"),
    [
        ("Good", " morning", ("Good", " morning")),
        ("Good ", "morning", ("Good", " morning")),
        ("Good", "morning", ("Good", " morning")),
        ("", " Good", ("", "Good")),
        ("Good", "", ("Good", "")),
        ("Good\n\x1b[2J", "x", ("Good [2J", " x")),
        ("早上", "好", ("早上", "好")),
    ],
)
def test_words_are_cleaned_and_keep_the_space_between_firm_and_loose(
    stable: str, unstable: str, split: tuple[str, str]
) -> None:
    assert split_text(stable, unstable) == split


def test_a_line_has_its_label_then_firm_then_loose_words() -> None:
    assert growing_line("0:01.0", 9, ("Good", " mor"), 40) == [
        ("0:01.0   ", "note"),
        ("Good", "plain"),
        (" mor …", "note"),
    ]
    assert growing_line("0:01.0", 9, ("", ""), 40)[1:] == [("", "plain"), ("…", "note")]


@pytest.mark.parametrize("width", [12, 13, 20, 21, 40])
@pytest.mark.parametrize("text", ["one two three four five six seven", "早上好" * 9, "a早b好" * 9])
def test_a_line_never_exceeds_its_width_and_keeps_its_end(width: int, text: str) -> None:
    for firm in range(len(text)):
        spans = growing_line("0:01.0", 9, (text[:firm], text[firm:]), width)
        line = "".join(span.text for span in spans)
        assert columns(line) <= width
        assert line.endswith("…")


def test_a_line_that_is_cut_keeps_the_tones_of_what_is_left() -> None:
    spans = [ToneSpan("one two three", "plain"), ToneSpan(" four", "note")]
    assert cut_left(spans, 18) == spans
    assert cut_left(spans, 10) == [("…", "note"), ("hree", "plain"), (" four", "note")]
    assert cut_left(spans, 4) == [("…", "note"), ("our", "note")]


def test_without_tones_the_loose_words_are_in_brackets() -> None:
    assert growing_words("Good", " morning") == "Good [morning]"
    assert growing_words("Good", "morning") == "Good [morning]"
    assert growing_words("早上", "好") == "早上[好]"
    assert growing_words("Good", "") == "Good"
    assert growing_words("", "Good") == "[Good]"
