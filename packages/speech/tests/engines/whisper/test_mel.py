"""Whisper's input features: mel bands of tones and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lingua_speech.engines.whisper import mel

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.unit


def test_each_mel_band_looks_at_neighbouring_frequencies_only() -> None:
    bands = mel.filters()
    assert bands.shape == (80, 201)
    assert (bands >= 0).all()
    peaks = bands.argmax(axis=1)
    assert (np.diff(peaks) >= 0).all()
    # Triangles of equal area, where they are wide enough to be sampled well.
    areas = bands[40:].sum(axis=1) * 40
    assert areas == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("hz", [300, 1000, 3500])
def test_a_tone_is_seen_in_its_band(hz: int) -> None:
    times = np.arange(16_000) / 16_000
    seen = mel.log_mel(np.sin(2 * np.pi * hz * times).astype(np.float32), 100)
    assert seen.shape == (1, 80, 100)
    wanted = int(mel.filters()[:, round(hz / 40)].argmax())
    assert abs(int(seen[0, :, 50].argmax()) - wanted) <= 1


def test_what_is_seen_spans_eight_powers_of_ten_at_most() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 8000).astype(np.float32)
    seen = mel.log_mel(noise, 200)
    assert seen.max() - seen.min() == pytest.approx(mel.RANGE / 4)


def test_a_longer_window_shows_the_same_at_its_beginning() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 16_000).astype(np.float32)
    short, long = mel.log_mel(noise, 200), mel.log_mel(noise, 400)
    assert np.allclose(short[:, :, :190], long[:, :, :190], atol=1e-5)
