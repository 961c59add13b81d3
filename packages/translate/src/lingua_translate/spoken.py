"""The level and the time of the spoken audio, so that a latency starts at the real end of speech.

An utterance's `end_ms` includes the silence that ended it, or cuts it off: neither is when the
speaker stopped. This module keeps the level of every 10 ms of audio (not the audio), and the time
at which it was spoken. The voice ends with the last 20 ms that are 8 dB above the quiet parts of
the utterance (the room, or its softest sounds), within 35 dB of its loud parts; anything within 15
dB of these is voice in any case. The rule is simple and the same for every engine. Where it errs it
is early, so that a latency is rather too long than too short. Pure: the caller brings the clock.
"""

from __future__ import annotations

import math
import sys
from array import array
from operator import mul
from typing import Final

FRAME_S: Final = 0.01
# Parts of an utterance, by level: the loud ones and the quiet ones.
LOUD_PART, QUIET_PART = 0.95, 0.10
# So far below the loud parts is no voice; so near to them is voice.
NO_VOICE_DB, VOICE_DB = 35.0, 15.0
ABOVE_QUIET_DB: Final = 8.0
# A click is shorter.
FRAMES_MIN: Final = 2
# Nothing is quieter than a sample's last bit.
FLOOR_DB: Final = 0.0


class SpokenAudio:
    """The audio of one source as far as it was read."""

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate
        self._frame = round(sample_rate * FRAME_S)
        # Level of each whole frame, in dB above one bit.
        self._levels: array[float] = array("f")
        # Samples that do not fill a frame yet.
        self._rest = b""
        # Of each chunk: the samples up to its end, and when it was complete.
        self._ends: array[int] = array("q")
        self._at_s: array[float] = array("d")

    @property
    def duration_ms(self) -> float:
        """Return how much was read."""
        return self._ends[-1] * 1000 / self._rate if self._ends else 0.0

    def add(self, pcm: bytes, at_s: float) -> None:
        """Add a chunk whose last sample was spoken at this time."""
        self._ends.append((self._ends[-1] if self._ends else 0) + len(pcm) // 2)
        self._at_s.append(at_s)
        samples = array("h", self._rest + pcm)
        if sys.byteorder == "big":
            samples.byteswap()
        whole = len(samples) - len(samples) % self._frame
        for start in range(0, whole, self._frame):
            frame = samples[start : start + self._frame]
            power = sum(map(mul, frame, frame)) / self._frame
            self._levels.append(10 * math.log10(power) if power > 1 else FLOOR_DB)
        self._rest = samples[whole:].tobytes()

    def voice_end_ms(self, start_ms: float, end_ms: float) -> float:
        """Return when the voice ends within a part of the audio; its end if it has no other."""
        first, last = self._frame_at(start_ms), self._frame_at(end_ms)
        levels = self._levels[first:last]
        # Without digital silence, which says nothing about the room.
        ranked = sorted(level for level in levels if level > FLOOR_DB)
        if not ranked:
            return end_ms
        loud, quiet = (ranked[int((len(ranked) - 1) * part)] for part in (LOUD_PART, QUIET_PART))
        least = min(max(loud - NO_VOICE_DB, quiet + ABOVE_QUIET_DB), loud - VOICE_DB)
        found = _last_run(levels, least)
        return end_ms if found is None else (first + found) * self._frame * 1000 / self._rate

    def spoken_at_s(self, at_ms: float) -> float | None:
        """Return when this position of the audio was spoken; None if it was not spoken yet."""
        sample = at_ms * self._rate / 1000
        low, high = 0, len(self._ends)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._ends[middle] < sample else (low, middle)
        if low == len(self._ends):
            return self._at_s[-1] if self._ends else None
        return self._at_s[low] - (self._ends[low] - sample) / self._rate

    def _frame_at(self, at_ms: float) -> int:
        return round(at_ms * self._rate / 1000 / self._frame)


def _last_run(levels: array[float], least: float) -> int | None:
    """Return where the last run of frames of at least this level ends."""
    run = 0
    for index in range(len(levels) - 1, -1, -1):
        run = run + 1 if levels[index] >= least else 0
        if run == FRAMES_MIN:
            return index + run
    return None
