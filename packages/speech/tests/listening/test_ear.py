"""Where there is voice in an utterance, and where it is quiet."""

from __future__ import annotations

import pytest

from lingua_speech.listening.ear import Ear
from listening.sounds import RATE, noise, voice

pytestmark = pytest.mark.unit


def ear_of(*parts: bytes, piece: int = 0) -> Ear:
    ear = Ear(RATE)
    pcm = b"".join(parts)
    for at in range(0, len(pcm), piece or max(1, len(pcm))):
        ear.add(pcm[at : at + (piece or len(pcm))])
    return ear


def test_the_end_of_the_voice_is_found() -> None:
    ear = ear_of(noise(300), voice(1000), noise(250))
    assert ear.heard_ms == 1550
    assert ear.voice_end_ms() == pytest.approx(1300, abs=30)
    assert ear.quiet_ms() == pytest.approx(250, abs=30)
    assert ear.has_voice(300, 600)
    assert not ear.has_voice(1350, 1550)
    assert not ear.has_voice(1550, 9000)


def test_it_does_not_matter_how_the_audio_is_divided() -> None:
    parts = (noise(300), voice(500), noise(200))
    whole, pieces = ear_of(*parts), ear_of(*parts, piece=1002)
    assert pieces.heard_ms == whole.heard_ms
    assert pieces.voice_end_ms() == whole.voice_end_ms()


def test_a_weak_sound_after_loud_speech_is_voice() -> None:
    # 25 dB weaker: the end of a word.
    ear = ear_of(noise(300), voice(1000), voice(100, 340), noise(200))
    assert ear.voice_end_ms() == pytest.approx(1400, abs=30)


def test_without_voice_there_is_no_end_and_no_pause() -> None:
    assert (ear_of(bytes(32_000)).voice_end_ms(), ear_of(bytes(32_000)).quiet_ms()) == (0, 0)
    assert ear_of(b"").voice_end_ms() == 0


def test_in_loud_noise_it_reports_voice_in_doubt() -> None:
    ear = ear_of(noise(300, 3000), voice(1000), noise(300, 3000))
    assert ear.has_voice(1400, 1600)


def test_quiet_places_are_found_within_speech() -> None:
    ear = ear_of(noise(300), voice(500), noise(200), voice(500), noise(60), voice(300), noise(400))
    (place,) = ear.quiet_places(400, 1800, 120)
    assert place.middle_ms == pytest.approx(900, abs=30)
    assert len(ear.quiet_places(0, ear.heard_ms, 120)) == 3
