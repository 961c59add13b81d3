"""Normalising texts and splitting them into sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engines.sentences import is_speakable, plain, split

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("Hello", ["Hello"]),
        ("Hello. How are you? Fine!", ["Hello.", "How are you?", "Fine!"]),
        ("Mr. Smith met Dr. J. Brown. He left.", ["Mr. Smith met Dr. J. Brown.", "He left."]),
        ("It costs 3.50 euros. Really.", ["It costs 3.50 euros.", "Really."]),
        ("Well... yes. No", ["Well... yes.", "No"]),
        ("¿Qué? «Nada.» Bueno.", ["¿Qué?", "«Nada.»", "Bueno."]),
        ("你好。世界！", ["你好。", "世界！"]),  # noqa: RUF001
        ("La Sra. Pérez vino. Se fue.", ["La Sra. Pérez vino.", "Se fue."]),
    ],
)
def test_a_text_is_cut_where_its_sentences_end(text, parts):
    assert split(text) == parts


@given(st.text(), st.integers(min_value=1, max_value=60))
def test_no_piece_is_too_long_and_no_letter_is_lost(text, longest):
    clean = plain(text)
    pieces = split(clean, longest)
    assert all(0 < len(piece) <= longest for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(clean.split())


def test_a_long_sentence_is_cut_at_a_comma_before_it_is_cut_at_a_space():
    text = "one two three four, five six seven eight nine"
    assert split(text, 30) == ["one two three four,", "five six seven eight nine"]
    assert split("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_plain_text_has_no_control_characters_and_single_spaces():
    assert plain("a\x00b\x1b[1m\u202e  c\r\n\td\ud800e") == "a b [1m c d e"
    assert plain("cafe\u0301") == "café"
    joined = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"  # Persian needs its joiner
    assert plain(joined) == joined


def test_only_what_has_a_letter_or_a_digit_can_be_said():
    assert is_speakable("¡5!")
    assert is_speakable("你")
    assert not is_speakable("... — «»")


@pytest.mark.parametrize("piece", ["a. ", "a! ", "Mr. ", ".", "x"])
def test_the_work_grows_with_the_text_and_not_with_its_square(piece: str) -> None:
    # Half a million characters: reading them again for each mark would take hours.
    text = piece * (500_000 // len(piece))
    assert "".join(split(text)).replace(" ", "") == text.replace(" ", "")
