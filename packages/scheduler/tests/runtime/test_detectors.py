import array
import math
import random
import sys

import pytest

from lingua_scheduler.runtime.detectors import WebrtcDetector, check_detector, detector_for
from lingua_scheduler.session.voice import EnergyDetector
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

RATE = 16_000


def vowel(ms: int, level: float = 0.2) -> bytes:
    """A buzz of a voice's pitch with formants, its loudness moving as syllables do."""
    count = RATE * ms // 1000
    samples = array.array("h")
    for i in range(count):
        t = i / RATE
        pitch = 120 + 15 * math.sin(2 * math.pi * 3 * t)
        tone = sum(
            weight * math.sin(2 * math.pi * pitch * k * t)
            for k, weight in ((1, 0.5), (2, 0.4), (4, 0.5), (6, 0.4), (10, 0.2), (20, 0.1))
        )
        swell = 0.5 + 0.5 * math.sin(2 * math.pi * 4 * t)
        samples.append(int(32767 * level * swell * tone / 2))
    return samples.tobytes()


def noise(ms: int, level: float) -> bytes:
    chance = random.Random(7)
    return array.array(
        "h", (int(chance.gauss(0, level * 32767)) for _ in range(RATE * ms // 1000))
    ).tobytes()


def chunks(pcm: bytes, ms: int = 100) -> list[bytes]:
    size = RATE * ms // 1000 * 2
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


def test_webrtc_hears_a_voice_and_not_silence() -> None:
    detector = WebrtcDetector(RATE)
    spoken = [detector.is_voice(chunk) for chunk in chunks(vowel(2000))]
    silent = [detector.is_voice(chunk) for chunk in chunks(bytes(2 * RATE * 2))]
    assert sum(spoken) >= 0.8 * len(spoken)
    assert not any(silent[3:])


def test_webrtc_does_not_take_steady_noise_for_a_voice() -> None:
    detector = WebrtcDetector(RATE)
    heard = [detector.is_voice(chunk) for chunk in chunks(noise(4000, 0.02))]
    assert sum(heard[10:]) <= 0.2 * len(heard[10:])


def test_chunks_of_any_length_are_taken_whole() -> None:
    detector = WebrtcDetector(RATE)
    pcm = vowel(1000)
    heard = [detector.is_voice(pcm[at : at + 334]) for at in range(0, len(pcm), 334)]
    assert any(heard)


def test_the_kind_and_the_rate_choose_the_detector() -> None:
    assert detector_for("off", RATE) is None
    assert isinstance(detector_for("energy", RATE), EnergyDetector)
    assert isinstance(detector_for("webrtc", RATE), WebrtcDetector)
    assert isinstance(detector_for("webrtc", 44_100), EnergyDetector)


def test_a_detector_that_is_not_installed_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "webrtcvad", None)
    check_detector("energy")
    with pytest.raises(ConfigError, match=r"needs an extra; run: .*\[vad\]"):
        check_detector("webrtc")
