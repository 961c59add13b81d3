"""Speech is detected at every level, silence and noise are not, and the preroll is bounded."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.voice import EnergyDetector, Preroll, VoiceDetector

pytestmark = pytest.mark.unit

RATE = 8_000
Samples = list[float]

# Seconds of speech and of the gaps after it: words and short breaths, as people talk.
WORDS = [(0.4, 0.12), (0.7, 0.05), (0.3, 0.25), (0.9, 0.1), (0.5, 0.3), (0.6, 0.08)]


def noise(seconds: float, level: float, seed: int = 1) -> Samples:
    """Give hiss with a falling spectrum, like a fan's, of this RMS."""
    return [level * value for value in unit_noise(seed)[: int(seconds * RATE)]]


@cache
def unit_noise(seed: int) -> Samples:
    chance = random.Random(seed)
    state, out = 0.0, []
    for _ in range(40 * RATE):
        state = 0.6 * state + chance.gauss(0.0, 0.8)
        out.append(state)
    return out


def word(seconds: float, level: float, pitch_hz: float) -> Samples:
    """Give a voiced sound of syllables: harmonics of a pitch under a 4 Hz envelope."""
    return [level * value for value in unit_word(seconds, pitch_hz)]


@cache
def unit_word(seconds: float, pitch_hz: float) -> Samples:
    out = []
    for i in range(int(seconds * RATE)):
        at = 2 * math.pi * i / RATE
        envelope = 0.35 + 0.65 * abs(math.sin(2 * at))
        sound = sum(math.sin(pitch_hz * harmonic * at) / harmonic for harmonic in range(1, 7))
        out.append(1.1 * envelope * sound)
    return out


def speech(level: float, repeats: int = 1) -> Samples:
    out: Samples = []
    for turn in range(repeats):
        for place, (spoken, gap) in enumerate(WORDS):
            out += word(spoken, level, 110.0 + 17 * ((place + turn) % 5))
            out += [0.0] * int(gap * RATE)
    return out


def mixed(*tracks: Samples) -> Samples:
    return [sum(values) for values in zip(*tracks, strict=False)]


def faded(track: Samples, first: float, last: float) -> Samples:
    count = len(track)
    return [value * (first + (last - first) * i / count) for i, value in enumerate(track)]


def pcm(track: Samples) -> bytes:
    return array(
        "h", [max(-32_768, min(32_767, round(value * 32_768))) for value in track]
    ).tobytes()


def heard(detector: VoiceDetector, track: Samples, chunk_ms: int = 100) -> list[bool]:
    data, step = pcm(track), 2 * RATE * chunk_ms // 1000
    return [detector.is_voice(data[at : at + step]) for at in range(0, len(data), step)]


def longest_unvoiced_ms(marks: list[bool], chunk_ms: int = 100) -> int:
    text = "".join("v" if mark else "." for mark in marks)
    return max(len(run) for run in text.split("v")) * chunk_ms


# Speech is not lost.


@pytest.mark.parametrize("chunk_ms", [20, 100, 250])
@pytest.mark.parametrize("level", [0.008, 0.02, 0.1, 0.4])
def test_speech_of_any_level_is_heard_from_its_first_word_on(level: float, chunk_ms: int) -> None:
    detector = EnergyDetector(RATE)
    heard(detector, noise(2.0, 0.0005), chunk_ms)
    track = mixed(speech(level, repeats=3), noise(12.0, 0.0005, seed=2))
    marks = heard(detector, track, chunk_ms)
    assert True in marks[: 200 // chunk_ms + 1]
    # Below the 400 ms of silence that would end an utterance.
    assert longest_unvoiced_ms(marks, chunk_ms) < 400


def test_speech_without_a_gap_at_the_very_start_is_heard() -> None:
    assert heard(EnergyDetector(RATE), word(0.4, 0.02, 130.0))[0]


def test_a_long_speech_does_not_become_its_own_noise_floor() -> None:
    marks = heard(EnergyDetector(RATE), mixed(speech(0.1, 8), noise(40.0, 0.003)))
    assert longest_unvoiced_ms(marks) <= 500


def test_a_vowel_held_for_three_seconds_is_a_voice_to_its_end() -> None:
    detector = EnergyDetector(RATE)
    heard(detector, noise(2.0, 0.0005))
    vowel = [0.1 * math.sin(2 * math.pi * 150 * i / RATE) for i in range(3 * RATE)]
    assert all(heard(detector, vowel))


def test_speech_over_a_loud_fan_is_heard() -> None:
    detector = EnergyDetector(RATE)
    heard(detector, noise(6.0, 0.02))
    marks = heard(detector, mixed(speech(0.08, 3), noise(12.0, 0.02, seed=3)))
    assert True in marks[:3]
    assert longest_unvoiced_ms(marks) <= 600


def test_a_word_inside_a_long_chunk_is_not_averaged_away() -> None:
    detector = EnergyDetector(RATE)
    quiet = noise(2.0, 0.002)
    assert heard(detector, quiet, chunk_ms=1000) == [False, False]
    chunk = quiet[:RATE]
    chunk[2000:3200] = word(0.15, 0.008, 120.0)
    assert heard(detector, chunk, chunk_ms=1000) == [True]


def test_an_uncertain_beginning_counts_as_voice() -> None:
    assert heard(EnergyDetector(RATE), noise(0.1, 0.01)) == [True]


# Silence and noise are let pass.


@pytest.mark.parametrize("level", [0.0, 0.0005, 0.002, 0.003])
def test_what_is_below_the_level_of_silence_is_silence_at_once(level: float) -> None:
    assert not any(heard(EnergyDetector(RATE), noise(3.0, level)))


@pytest.mark.parametrize("chunk_ms", [20, 100, 1000])
@pytest.mark.parametrize("level", [0.006, 0.02, 0.08])
def test_constant_noise_is_no_voice_after_five_seconds(level: float, chunk_ms: int) -> None:
    marks = heard(EnergyDetector(RATE), noise(12.0, level), chunk_ms)
    assert not any(marks[5000 // chunk_ms :])


def test_a_fan_that_rises_slowly_is_never_a_voice() -> None:
    detector = EnergyDetector(RATE)
    heard(detector, noise(5.0, 0.01))
    assert not any(heard(detector, faded(noise(40.0, 0.01, seed=4), 1.0, 4.0)))


def test_a_fan_switched_on_is_a_voice_only_for_some_seconds() -> None:
    detector = EnergyDetector(RATE)
    heard(detector, noise(4.0, 0.001))
    marks = heard(detector, noise(10.0, 0.03, seed=5))
    assert marks[0]
    assert not any(marks[50:])


def test_when_the_fan_stops_quiet_speech_is_heard_again_at_once() -> None:
    detector = EnergyDetector(RATE)
    heard(detector, noise(8.0, 0.05))
    heard(detector, noise(0.2, 0.001))
    assert heard(detector, word(0.2, 0.02, 120.0))[0]


def test_silence_after_speech_is_silence_within_a_chunk() -> None:
    detector = EnergyDetector(RATE)
    heard(detector, mixed(speech(0.1), noise(5.0, 0.001)))
    assert not any(heard(detector, noise(2.0, 0.001, seed=6)))


def test_what_is_louder_than_any_believable_noise_stays_a_voice() -> None:
    assert all(heard(EnergyDetector(RATE), noise(15.0, 0.25)))


def test_a_voice_that_goes_on_may_be_quieter_than_one_that_begins() -> None:
    fan, between = noise(8.0, 0.02), noise(0.1, 0.033, seed=7)
    silent, speaking = EnergyDetector(RATE), EnergyDetector(RATE)
    heard(silent, fan)
    heard(speaking, fan)
    heard(speaking, word(0.2, 0.2, 120.0))
    assert heard(silent, between) == [False]
    assert heard(speaking, between) == [True]


@given(st.lists(st.binary(max_size=7000), max_size=20))
def test_any_bytes_of_any_length_get_an_answer(chunks: list[bytes]) -> None:
    detector = EnergyDetector(RATE)
    assert all(detector.is_voice(chunk) in {True, False} for chunk in chunks)


# The preroll.


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.integers(0, 25))
def test_a_preroll_keeps_the_latest_bytes_and_tells_what_it_lost(
    chunks: list[bytes], keep_samples: int
) -> None:
    preroll, lost = Preroll(2 * keep_samples), 0
    for place, data in enumerate(chunks):
        lost += preroll.add((data, place, None, place, 0, 0.0))
        assert preroll.size <= 2 * keep_samples + 1
    assert lost % 2 == 0
    everything = b"".join(chunks)
    assert preroll.size == len(everything) - lost
    assert b"".join(chunk[0] for chunk in preroll.take()) == everything[lost:]
    assert (preroll.size, preroll.take(), preroll.clear()) == (0, [], 0)


def test_a_chunk_of_a_preroll_keeps_its_number_when_its_beginning_is_lost() -> None:
    preroll = Preroll(4)
    assert preroll.add((b"abcdef", 7, 70, 7, 0, 9.0)) == 2
    assert preroll.take() == [(b"cdef", 7, 70, 7, 2, 9.0)]


def test_a_cleared_preroll_says_how_much_it_had() -> None:
    preroll = Preroll(100)
    preroll.add((b"abcdef", None, None, None, 0, 0.0))
    assert preroll.clear() == 6
    assert preroll.take() == []


def test_the_first_number_of_a_preroll_is_that_of_its_oldest_chunk() -> None:
    preroll = Preroll(8)
    assert preroll.first_seq is None
    preroll.add((b"abcd", 5, None, 5, 0, 0.0))
    preroll.add((b"efgh", 6, None, 6, 0, 0.0))
    assert preroll.first_seq == 5
    # A part of it goes first, then all of it.
    preroll.add((b"ij", 7, None, 7, 0, 0.0))
    assert preroll.first_seq == 5
    preroll.add((b"kl", 8, None, 8, 0, 0.0))
    assert preroll.first_seq == 6


@pytest.mark.parametrize("empty", [Preroll.take, Preroll.clear])
def test_an_emptied_preroll_has_no_first_number(empty: Callable[[Preroll], object]) -> None:
    preroll = Preroll(8)
    preroll.add((b"abcd", 5, None, 5, 0, 0.0))
    empty(preroll)
    assert preroll.first_seq is None


def test_a_chunk_without_a_number_gives_a_preroll_none() -> None:
    preroll = Preroll(8)
    preroll.add((b"abcd", None, None, None, 0, 0.0))
    assert preroll.first_seq is None
