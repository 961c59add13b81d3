"""Joining sentences that were spoken separately."""

from __future__ import annotations

import pytest

from lingua_speech.engines.stitching import stitched

pytestmark = pytest.mark.unit


def test_stitching_drops_silence_and_puts_pauses_between():
    loud = b"\x00\x20" * 1_600
    sound = stitched([bytes(32_000) + loud + bytes(32_000), bytes(100), loud], 16_000)
    # 100 ms each, 40 ms on both sides of the first, 250 ms between them.
    assert sound.duration_ms == pytest.approx(100 + 80 + 250 + 100, abs=1)
    assert stitched([], 8_000).pcm == b""
