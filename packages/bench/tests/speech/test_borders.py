"""Words that are missing at the borders of slices."""

from __future__ import annotations

import pytest

from lingua_bench.speech.borders import missing_words

pytestmark = pytest.mark.unit


def test_the_same_words_in_slices_miss_nothing() -> None:
    assert missing_words("One two three, four five.", ["one two", "three four five"]) == (0, 0)


def test_a_word_that_is_gone_between_two_slices_is_missing_at_a_border() -> None:
    slices = ["one two", "four five six seven eight"]
    assert missing_words("one two three four five six seven eight", slices) == (1, 0)


def test_a_word_that_is_gone_in_the_middle_of_a_slice_is_missing_elsewhere() -> None:
    said = "a b c d e f g h i j k l m n o p"
    slices = ["a b c d e f g", "h i j k m n o p"]
    assert missing_words(said, slices) == (0, 1)


def test_a_misheard_word_is_not_missing() -> None:
    assert missing_words("one two three four", ["one too", "three four"]) == (0, 0)


def test_words_that_came_twice_are_not_missing() -> None:
    assert missing_words("one two three four", ["one two", "two three four"]) == (0, 0)
