"""Where decoding ends a text that begins to repeat itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_speech.engines.whisper import decoding

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.unit


# The full stop, and the first word with a capital.
STOP, LARGE = 99, 98


def text_of(*sentences: list[int]) -> decoding._Text:
    """Return a text that might end after each sentence."""
    text = decoding._Text(frozenset({STOP}), {LARGE: 1})
    for sentence in sentences:
        text.note_possible_end()
        for token in sentence:
            text.add(token, -0.1)
    return text


def test_a_text_ends_where_it_might_and_a_known_beginning_follows() -> None:
    text = text_of([1, 2, 3, 4, STOP], [1, 2, 3])
    said = text.cut_before_repetition(4)
    assert said is not None
    assert (said.tokens, said.cut) == ([1, 2, 3, 4, STOP], "")


def test_a_new_sentence_after_a_possible_end_goes_on() -> None:
    assert text_of([1, 2, 3, 4, STOP], [5, 2, 3]).cut_before_repetition(4) is None
    assert text_of([1, 2, 3, 4, STOP], [5, 6, 7, STOP], [8, 9, 10]).cut_before_repetition(4) is None


def test_a_beginning_is_known_again_with_or_without_its_capital() -> None:
    said = text_of([LARGE, 2, 3, 4, 5], [1, 2, 3]).cut_before_repetition(4)
    assert said is not None
    assert said.tokens == [LARGE, 2, 3, 4, 5]


def test_before_there_is_enough_text_a_known_beginning_may_be_meant() -> None:
    assert text_of([1, 2, 3, 4, STOP], [1, 2, 3]).cut_before_repetition(6) is None


def test_the_beginning_of_any_sentence_before_is_known_again() -> None:
    said = text_of([1, 2, 3, 4, STOP], [5, 6, 7, 8, STOP], [5, 6, 7]).cut_before_repetition(4)
    assert said is not None
    assert said.tokens == [1, 2, 3, 4, STOP, 5, 6, 7, 8, STOP]


def test_a_sentence_that_is_no_more_than_its_beginning_is_known_again() -> None:
    said = text_of([1, 2, 3, 4, STOP], [5, 6, STOP], [5, 6, STOP]).cut_before_repetition(4)
    assert said is not None
    assert said.tokens == [1, 2, 3, 4, STOP, 5, 6, STOP]
