"""How far captions are behind the voice, and how many words they take back."""

from __future__ import annotations

import pytest

from lingua_bench.speech.caption_lag import (
    CaptionedUtterance,
    ShownText,
    erased_words,
    erasure,
    even_word_ends_s,
    shown_at_s,
    words_of,
)

pytestmark = pytest.mark.unit


def shown(*texts: tuple[float, str]) -> tuple[ShownText, ...]:
    return tuple(ShownText(at_s, text) for at_s, text in texts)


def test_words_are_compared_without_capitals_and_punctuation() -> None:
    assert words_of("Good morning, — everyone!") == ["good", "morning", "everyone"]
    assert words_of(" … ") == []


def test_a_word_counts_from_when_it_is_shown_for_good() -> None:
    texts = shown(
        (1.0, "good"),
        (1.5, "Good mourning"),
        (2.0, "Good morning, every"),
        (2.5, "Good morning everyone"),
        (4.0, "Good morning, everyone here."),
    )
    assert shown_at_s(texts) == [1.0, 2.0, 2.5, 4.0]


def test_a_word_that_was_gone_for_a_while_counts_from_its_return() -> None:
    texts = shown((1.0, "one two"), (2.0, "one"), (3.0, "one two"), (4.0, "one two"))
    assert shown_at_s(texts) == [1.0, 3.0]


def test_only_the_outcome_means_that_all_words_come_with_it() -> None:
    one = CaptionedUtterance(shown((5.0, "One two")), (1.0, 3.0))
    assert one.lags_s() == [3.0, 2.0]
    assert CaptionedUtterance(shown((5.0, "")), (1.0, 3.0)).lags_s() == []


def test_letters_are_spread_evenly_unless_the_times_of_words_are_known() -> None:
    assert even_word_ends_s(["a", "bcd"], 10.0, 12.0) == [10.5, 12.0]
    assert even_word_ends_s([], 10.0, 12.0) == []
    known = CaptionedUtterance(shown((2.0, "a"), (3.0, "a bcd")), (0.0, 9.0), (1.25, 2.5))
    assert known.lags_s() == [0.75, 0.5]


def test_words_that_are_taken_back_are_counted_per_final_word() -> None:
    steady = shown((1.0, "one"), (2.0, "one two"), (3.0, "One two."))
    assert erased_words(steady) == 0
    # "too", then "two three" are replaced.
    restless = shown((1.0, "one too"), (2.0, "one two three"), (3.0, "one to"))
    assert erased_words(restless) == 1 + 2
    voice = (0.0, 1.0)
    both = [CaptionedUtterance(steady, voice), CaptionedUtterance(restless, voice)]
    assert erasure(both) == 3 / 4
    assert erasure([]) == 0
