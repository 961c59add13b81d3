"""The request of a session: its length of audio and its number of outcomes."""

from __future__ import annotations

import pytest

from lingua_client.options import SessionRequest

pytestmark = pytest.mark.unit


def test_the_length_of_audio_and_the_number_of_outcomes_follow_from_the_request() -> None:
    assert SessionRequest("en", ("es",)).duration_ms(3200) == 100
    assert SessionRequest("en", ("es",), sample_rate=48_000).duration_ms(96_000) == 1000
    assert SessionRequest("en", ("es",), audio_format="opus").duration_ms(120) == 40
    assert SessionRequest("en", ("es", "fr")).outcomes_per_utterance == 2
    assert SessionRequest("auto", (), more={"mode": "two_way_auto"}).outcomes_per_utterance == 1
