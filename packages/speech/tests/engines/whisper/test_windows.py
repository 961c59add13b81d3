"""Cutting sound for Whisper's window, and the length of the window."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from lingua_speech.engines.whisper import windows

if TYPE_CHECKING:
    from lingua_speech.sound import Samples

pytestmark = pytest.mark.unit


def test_pauses_are_no_time_in_which_somebody_speaks() -> None:
    sound = np.full(16_000 * 6, 0.3, np.float32)
    assert windows.spoken_s(sound) == 6
    sound[16_000 * 1 : 16_000 * 3] = 0.001
    sound[16_000 * 4 : 16_000 * 4 + 3200] = 0.0
    assert windows.spoken_s(sound) == 4
    assert windows.spoken_s(np.zeros(1600, np.float32)) == 0.1


def test_a_sound_is_halved_at_the_quietest_place_of_its_middle() -> None:
    loud = np.full(16_000 * 8, 0.3, np.float32)
    loud[16_000 * 3 : 16_000 * 3 + 6400] = 0.0
    first, second = windows.halves(loud)
    assert 3.0 <= len(first) / 16_000 <= 3.4
    assert len(first) + len(second) == len(loud)


def loud_with_a_pause(seconds: float, pause_at_s: float) -> Samples:
    samples = np.random.default_rng(2).normal(0, 0.1, int(seconds * 16_000)).astype(np.float32)
    at = int(pause_at_s * 16_000)
    samples[at - 3200 : at + 3200] *= 0.001
    return samples


def test_long_sound_is_cut_in_its_pauses_and_nothing_is_lost() -> None:
    samples = loud_with_a_pause(70, 20)
    found = windows.pieces(samples)
    assert len(found[0]) / 16_000 == pytest.approx(20, abs=0.2)
    assert all(len(piece) <= windows.WHOLE_S * 16_000 for piece in found)
    assert np.array_equal(np.concatenate(found), samples)


def test_short_sound_stays_whole() -> None:
    samples = loud_with_a_pause(28, 20)
    assert [len(piece) for piece in windows.pieces(samples)] == [len(samples)]


def test_the_window_is_as_long_as_the_sound_and_some_silence() -> None:
    assert windows.frames_for(np.zeros(10 * 16_000, np.float32), "short") == 1100
    assert windows.frames_for(np.zeros(1600, np.float32), "short") == 300
    assert windows.frames_for(np.zeros(10 * 16_000 + 1, np.float32), "short") == 1102
    assert windows.frames_for(np.zeros(29 * 16_000, np.float32), "short") == 3000
    assert windows.frames_for(np.zeros(1600, np.float32), "full") == 3000
