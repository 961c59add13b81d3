"""Figures in words, in each language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.text.figures import MOST, cardinal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("number", "language", "words"),
    [
        (0, "en", "zero"),
        (2_300_001, "en", "two million three hundred thousand one"),
        (21_000, "es", "veintiún mil"),
        (100, "es", "cien"),
        (71, "fr", "soixante et onze"),
        (1921, "it", "millenovecentoventuno"),
        (321, "de", "dreihunderteinundzwanzig"),
        (100, "pt", "cem"),
        (2_021, "pt", "dois mil e vinte e um"),
        (121_345, "pt", "cento e vinte e um mil trezentos e quarenta e cinco"),
        (1_200_000, "pt", "um milhão e duzentos mil"),
    ],
)
def test_numbers_are_said_as_the_language_says_them(number: int, language: str, words: str) -> None:
    assert cardinal(number, language) == words


@given(
    st.integers(0, MOST),
    st.integers(0, MOST),
    st.sampled_from(["en", "es", "fr", "it", "de", "pt"]),
)
def test_different_numbers_have_different_words(first: int, second: int, language: str) -> None:
    same = cardinal(first, language) == cardinal(second, language)
    assert same is (first == second)
