"""How far spoken translations are behind the speaker."""

from __future__ import annotations

import pytest

from lingua_bench.speech.spoken_lag import TranslatedPiece, spoken_lag

pytestmark = pytest.mark.unit


def test_each_word_is_compared_with_the_one_at_its_place() -> None:
    piece = TranslatedPiece(((0.0, 2.0),), "uno dos", arrived_s=3.0, speech_s=1.0)
    found = spoken_lag([piece])
    assert found.arrived_s == pytest.approx((2.0, 1.0))
    assert found.heard_s == pytest.approx((2.5, 2.0))


def test_speech_waits_for_the_end_of_that_before_it() -> None:
    first = TranslatedPiece(((0.0, 1.0),), "uno", arrived_s=2.0, speech_s=3.0)
    second = TranslatedPiece(((1.0, 2.0),), "dos", arrived_s=3.0, speech_s=1.0)
    found = spoken_lag([first, second])
    assert found.arrived_s == pytest.approx((1.0, 1.0))
    # The second is heard from 5 s to 6 s.
    assert found.heard_s == pytest.approx((4.0, 4.0))


def test_nothing_has_no_lag() -> None:
    assert spoken_lag([]) == ((), ())
