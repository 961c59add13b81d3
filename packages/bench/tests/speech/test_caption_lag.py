"""The figures of captions: lag, erasure, errors."""

from __future__ import annotations

import pytest

from lingua_bench.speech.caption_lag import SeenCaption, erasure, lag_of, word_ends_ms

pytestmark = pytest.mark.unit


def test_words_are_spread_over_the_time_with_voice() -> None:
    assert word_ends_ms(["abc", "def"], [(0.0, 1000.0)]) == [500.0, 1000.0]
    # Nobody speaks in the pause.
    ends = word_ends_ms(["abc", "def"], [(100.0, 600.0), (1600.0, 2100.0)])
    assert ends == pytest.approx([600.0, 2100.0])
    assert word_ends_ms([], [(0.0, 1000.0)]) == []


def test_a_word_lags_until_it_is_stable_or_in_the_result() -> None:
    captions = [
        SeenCaption(700, "", "one too"),
        SeenCaption(1400, "one", "two", "", "uno"),
        SeenCaption(1900, "one two", "", "uno", "dos"),
    ]
    lag = lag_of("One two. Four", "uno dos cuatro", captions, [(0.0, 1400.0)], 2000.0)
    first, second, third = word_ends_ms(["One", "two.", "Four"], [(0.0, 1400.0)])
    assert lag.stable_ms == pytest.approx((1400 - first, 1900 - second, 2000 - third))
    assert lag.shown_ms == pytest.approx((700 - first, 1400 - second, 2000 - third))
    one, two, three = word_ends_ms(["uno", "dos", "cuatro"], [(0.0, 1400.0)])
    assert lag.translated_ms == pytest.approx((1400 - one, 1900 - two, 2000 - three))
    # "too" was taken back, out of three words.
    assert lag.erasure == pytest.approx(1 / 3)
    assert lag.translation_erasure == 0
    assert lag.stable_errors == 0


def test_stable_words_that_the_result_does_not_have_are_errors() -> None:
    captions = [SeenCaption(1000, "one three", "")]
    assert lag_of("one two", "", captions, [(0.0, 1000.0)], 1500.0).stable_errors == 0.5
    assert lag_of("one two", "", [], [(0.0, 1000.0)], 1500.0).stable_errors == 0


def test_erasure_counts_the_words_that_are_gone() -> None:
    assert erasure(["a", "a b", "a b c"]) == 0
    assert erasure(["a x c", "a b c"]) == pytest.approx(1 / 3)
    assert erasure(["a x", "a", "a x"]) == 0.5
    assert erasure(["A b.", "a b"]) == 0
    assert erasure([]) == 0
