"""Where the voice in an utterance ends, and when that was spoken."""

from __future__ import annotations

import math
from array import array
from random import Random

import pytest

from lingua_translate.spoken import SpokenAudio

pytestmark = pytest.mark.unit

RATE = 16_000


def tone(ms: int, level: int, rate: int = RATE) -> bytes:
    return array(
        "h", [round(level * math.sin(at / 5)) for at in range(rate * ms // 1000)]
    ).tobytes()


def noise(ms: int, level: int, rate: int = RATE) -> bytes:
    random = Random(ms)
    return array("h", [random.randint(-level, level) for _ in range(rate * ms // 1000)]).tobytes()


def heard(pcm: bytes, rate: int = RATE, chunk_ms: int = 50) -> SpokenAudio:
    """Return what was spoken from the time 100 on, chunk by chunk."""
    spoken = SpokenAudio(rate)
    size = 2 * (rate * chunk_ms // 1000)
    for at in range(0, len(pcm), size):
        chunk = pcm[at : at + size]
        spoken.add(chunk, 100 + (at + len(chunk)) / (2 * rate))
    return spoken


@pytest.mark.parametrize("rate", [8000, 11_025, 16_000, 44_100])
@pytest.mark.parametrize("hiss", [0, 3, 60])
def test_the_voice_ends_before_the_silence_that_ended_the_utterance(rate: int, hiss: int) -> None:
    pcm = noise(300, hiss, rate) + tone(1200, 6000, rate) + noise(500, hiss, rate)
    spoken = heard(pcm, rate)
    assert spoken.duration_ms == pytest.approx(2000, abs=1)
    assert spoken.voice_end_ms(0, 2000) == pytest.approx(1500, abs=20)


def test_a_soft_last_syllable_is_voice_and_a_click_is_not() -> None:
    pcm = tone(1000, 8000) + tone(100, 2000) + bytes(6400) + tone(8, 8000) + bytes(6400)
    assert heard(pcm).voice_end_ms(0, 1500) == pytest.approx(1100, abs=20)


def test_the_sound_of_the_room_is_no_voice_though_true_silence_follows() -> None:
    room = noise(400, 300)
    pcm = room + tone(1500, 9000) + room + bytes(16_000)
    assert heard(pcm).voice_end_ms(0, 2800) == pytest.approx(1900, abs=20)


def test_only_the_utterance_itself_is_looked_at() -> None:
    pcm = tone(500, 200) + bytes(16_000) + tone(1000, 12_000)
    assert heard(pcm).voice_end_ms(0, 1000) == pytest.approx(500, abs=20)


@pytest.mark.parametrize("pcm", [bytes(32_000), tone(1000, 5000)])
def test_where_no_silence_can_be_told_from_voice_the_end_is_the_end(pcm: bytes) -> None:
    assert heard(pcm).voice_end_ms(0, 1000) == 1000


def test_what_was_never_heard_has_no_other_end() -> None:
    assert SpokenAudio(RATE).voice_end_ms(100, 900) == 900
    assert SpokenAudio(RATE).spoken_at_s(5) is None


def test_a_place_in_the_audio_was_spoken_when_its_chunk_was_less_what_followed_in_it() -> None:
    spoken = heard(bytes(2 * RATE))
    for at_ms in (0, 10, 50, 51, 333, 1000):
        assert spoken.spoken_at_s(at_ms) == pytest.approx(100 + at_ms / 1000)
    assert spoken.spoken_at_s(5000) == pytest.approx(101)


def test_a_chunk_that_came_late_was_spoken_late() -> None:
    spoken = SpokenAudio(RATE)
    spoken.add(bytes(1600), 100.05)
    spoken.add(bytes(1600), 102.0)
    assert spoken.spoken_at_s(50) == pytest.approx(100.05)
    assert spoken.spoken_at_s(75) == pytest.approx(101.975)
