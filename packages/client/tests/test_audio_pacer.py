"""Live speech is never delayed; audio ahead of real time waits for acknowledgements."""

from __future__ import annotations

import pytest

from lingua_client.audio_pacer import AUDIO_AHEAD_MS, BURST_MS, ENDS_AHEAD, AudioPacer

pytestmark = pytest.mark.unit


def test_live_speech_is_never_held_however_little_is_acknowledged() -> None:
    pacer = AudioPacer()
    for number in range(1000):
        pacer.record_sent(100, number * 100.0)
        assert pacer.wait_ms(number, number * 100, number * 100.0) == 0


def test_what_runs_ahead_waits_for_acknowledgements_or_for_real_time() -> None:
    pacer = AudioPacer()
    pacer.record_sent(10_000, 0)
    assert pacer.wait_ms(0, 10_000, 0) == 0
    assert pacer.wait_ms(ENDS_AHEAD - 1, 10_000, 0) == 0
    held_ms = 10_000 - BURST_MS
    assert pacer.wait_ms(ENDS_AHEAD, 10_000, 0) == held_ms
    assert pacer.wait_ms(0, AUDIO_AHEAD_MS, 0) == held_ms
    assert pacer.wait_ms(0, AUDIO_AHEAD_MS, 4000) == held_ms - 4000
    assert pacer.wait_ms(0, AUDIO_AHEAD_MS, 20_000) == 0
