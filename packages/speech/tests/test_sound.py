"""Audio as arrays: conversion, resampling, levels, silence at the ends."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech import sound
from lingua_speech.engine import EngineError, Sound

pytestmark = pytest.mark.unit

RATES = [8000, 11025, 22050, 24000, 32000, 44100, 48000, 96000, 192000, 44101]


def tone(hz: float, rate: int, seconds: float = 1.0, level: float = 0.5) -> sound.Samples:
    times = np.arange(int(rate * seconds)) / rate
    return (level * np.sin(2 * np.pi * hz * times)).astype(np.float32)


def middle(samples: sound.Samples) -> sound.Samples:
    """Return the middle part: at its ends an abrupt tone is distorted."""
    return samples[len(samples) // 5 : -len(samples) // 5]


@given(st.binary(max_size=400))
def test_bytes_survive_the_way_to_floats_and_back(raw: bytes) -> None:
    whole = raw[: len(raw) // 2 * 2]
    assert sound.pcm16(sound.samples_of(raw)) == whole


def test_what_is_too_loud_is_clipped_not_wrapped() -> None:
    loud = np.array([2.0, -2.0, 1.0], np.float32)
    assert np.frombuffer(sound.pcm16(loud), "<i2").tolist() == [32767, -32768, 32767]


@pytest.mark.parametrize("rate", RATES)
def test_a_tone_that_the_new_rate_carries_keeps_its_level(rate: int) -> None:
    highest = min(rate, sound.HEARING_RATE) / 2 * 0.85
    for hz in (200.0, 1000.0, highest):
        before = tone(hz, rate)
        after = sound.resample(before, rate)
        change = sound.level_db(middle(after)) - sound.level_db(middle(before))
        assert abs(change) < 0.5, (hz, change)


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate > 20_000])
def test_a_tone_above_the_new_bandwidth_is_gone(rate: int) -> None:
    for hz in (8_200.0, rate / 2 * 0.95):
        before = tone(hz, rate)
        after = sound.resample(before, rate)
        assert sound.level_db(middle(after)) < sound.level_db(before) - 40, hz


@pytest.mark.parametrize("rate", RATES)
def test_resampled_sound_is_as_long_and_in_step_with_the_original(rate: int) -> None:
    before = tone(440, rate, 0.7)
    after = sound.resample(before, rate)
    assert abs(len(after) - 0.7 * sound.HEARING_RATE) <= 1
    wanted = tone(440, sound.HEARING_RATE, 0.7)[: len(after)]
    assert float(np.abs(middle(after) - middle(wanted[: len(after)])).max()) < 0.01


def test_long_sound_is_resampled_in_blocks_that_join_without_a_trace() -> None:
    rate = 8000
    before = tone(1000, rate, sound.BLOCK_S * 2.3)
    after = sound.resample(before, rate)
    wanted = tone(1000, sound.HEARING_RATE, sound.BLOCK_S * 2.3)
    assert len(after) == len(wanted)
    assert float(np.abs(middle(after) - middle(wanted)).max()) < 0.01


@pytest.mark.parametrize("rate", [0, 7999, 192_001])
def test_an_absurd_rate_is_refused(rate: int) -> None:
    with pytest.raises(EngineError, match="sample rate"):
        sound.resample(tone(100, 8000), rate)


def test_a_sound_at_the_hearing_rate_is_taken_as_it_is() -> None:
    samples = tone(300, 16_000, 0.1)
    heard = sound.hearing(Sound(sound.pcm16(samples), 16_000))
    assert float(np.abs(heard - samples).max()) < 1e-4


def test_empty_sound_stays_empty_at_any_rate() -> None:
    assert len(sound.hearing(Sound(b"", 48_000))) == 0
    assert len(sound.trim(sound.samples_of(b""))) == 0


def test_the_level_of_a_full_tone_is_three_decibels_below_full_scale() -> None:
    assert sound.level_db(tone(1000, 16_000, level=1.0)) == pytest.approx(-3.01, abs=0.01)
    assert sound.level_db(np.zeros(0, np.float32)) == -math.inf
    assert sound.level_db(np.zeros(9, np.float32)) == -math.inf


def test_trimming_takes_the_silence_at_the_ends_but_for_a_margin() -> None:
    spoken = sound.pad(tone(300, 16_000, 0.5), before_ms=1000, after_ms=2000)
    trimmed = sound.trim(spoken, margin_ms=100)
    assert len(trimmed) / 16 == pytest.approx(700, abs=2 * sound.FRAME_MS)
    assert sound.level_db(trimmed[:1500]) == -math.inf


def test_trimming_keeps_the_quiet_end_of_a_loud_sound() -> None:
    fading = np.concatenate([tone(300, 16_000, 0.5), tone(300, 16_000, 0.5, level=0.02)])
    assert len(sound.trim(fading)) == len(fading)


def test_trimming_leaves_nothing_of_silence_and_all_of_what_is_only_quiet() -> None:
    assert len(sound.trim(np.zeros(16_000, np.float32))) == 0
    quiet = tone(300, 16_000, 0.5, level=0.002)
    assert len(sound.trim(quiet)) == len(quiet)
