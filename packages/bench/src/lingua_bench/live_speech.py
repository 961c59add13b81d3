"""Audio that a voice detector takes for speech, cut into frames: syllables of noise with pauses."""

from __future__ import annotations

from array import array
from random import Random

from lingua_bench.live_speaker import SAMPLE_RATE

FRAME_MS = 100
FRAMES = 30
# Loudness of each frame in turn, of full scale: syllables, and pauses as between words.
SYLLABLES = (0.12, 0.2, 0.16, 0.003, 0.14, 0.22, 0.1, 0.18, 0.004, 0.15)
FULL_SCALE = 32_767


def speech_frames() -> list[bytes]:
    """Return three seconds of pcm16 in frames of 100 ms, to be sent repeatedly."""
    chance = Random(1)
    samples = SAMPLE_RATE * FRAME_MS // 1000
    frames = []
    for number in range(FRAMES):
        peak = int(SYLLABLES[number % len(SYLLABLES)] * FULL_SCALE * 1.7)
        noise = array("h", (chance.randint(-peak, peak) for _ in range(samples)))
        frames.append(noise.tobytes())
    return frames
