"""The recordings of the benchmark of real speech: trimmed, softened and joined."""

from __future__ import annotations

import math
from array import array

import pytest

from lingua_bench.speech.material import LabelledRecording, join_recordings, softened, trimmed
from lingua_wire.recording import Recording

pytestmark = pytest.mark.unit

RATE = 8000


def tone(ms: int, level: float = 0.5) -> bytes:
    count = RATE * ms // 1000
    wave = (round(32_000 * level * math.sin(0.3 * at)) for at in range(count))
    return array("h", wave).tobytes()


def silence(ms: int) -> bytes:
    return bytes(2 * (RATE * ms // 1000))


def test_silence_around_a_recording_is_cut_off() -> None:
    whole = Recording(silence(500) + tone(300) + silence(400), RATE)
    length_ms = len(trimmed(whole).pcm) / 2 / RATE * 1000
    assert 300 <= length_ms <= 400


def test_a_silent_recording_stays_as_it_is() -> None:
    quiet = Recording(silence(500), RATE)
    assert trimmed(quiet) is quiet


def test_a_talk_is_its_parts_with_pauses_and_counts_only_speech() -> None:
    parts = [
        LabelledRecording("a", "one", Recording(tone(200), RATE)),
        LabelledRecording("b", "two", Recording(tone(300), RATE)),
    ]
    whole = join_recordings(parts, pause_ms=100)
    assert (whole.text, whole.speech_ms) == ("one two", 500)
    assert whole.recording.pcm == (
        silence(100) + tone(200) + silence(100) + tone(300) + silence(100)
    )


def test_a_softened_recording_begins_and_ends_at_nothing_and_is_otherwise_the_same() -> None:
    loud = Recording(array("h", [20_000] * RATE).tobytes(), RATE)
    soft = array("h", softened(loud).pcm)
    assert (soft[0], soft[-1], soft[RATE // 2]) == (0, 0, 20_000)
    assert len(soft) == RATE
