"""Detects voice in pcm16. Pure; one call per chunk.

A client that sends without a pause needs a detector to end its utterances. `EnergyDetector` is the
cheap default: loudness compared with a tracked noise floor, without a model of speech. In doubt it
reports voice: a false positive delays a cut, a false negative would lose words. A better detector
(an extra) only has to be a `VoiceDetector`.
"""

from __future__ import annotations

from math import hypot, inf, sqrt
from typing import TYPE_CHECKING, Protocol

from lingua_scheduler.session.audio import FULL_SCALE, SAMPLE_BYTES, picker

if TYPE_CHECKING:
    from lingua_scheduler.session.speech_buffer import SpeechChunk

# Below this level no speech can be understood; nodes refuse even twice this level.
SILENCE_LEVEL = 0.004
# The factors above the floor at which a voice begins and ends.
VOICE_ON_FACTOR = 2.0
VOICE_OFF_FACTOR = 1.6
# The highest floor: louder sound counts as voice.
FLOOR_LEVEL_MAX = 0.1
# Longer chunks are analysed in windows, or a word in a second of silence would be averaged out.
WINDOW_MS = 100
# The approximate number of samples measured of a window: loudness is compared by factors, and more
# samples would cost more than everything else that happens to a chunk.
SAMPLES_LOOKED_AT = 72
# Speech has quiet moments within this time, noise has not: after two such spans without one, the
# louder level becomes the new floor.
FLOOR_SPAN_MS = 1500


class VoiceDetector(Protocol):
    """The interface of a detector; one detector gets the chunks of one session, in order."""

    def is_voice(self, pcm: bytes) -> bool:
        """Tell whether this chunk may contain speech."""


class EnergyDetector:
    """Compares loudness with a noise floor, which falls at once and rises only without dips."""

    __slots__ = (
        "_bytes_per_ms",
        "_floor",
        "_is_voice",
        "_lowest",
        "_lowest_before",
        "_pick",
        "_picked_bytes",
        "_span_left_bytes",
        "_window_bytes",
    )

    def __init__(self, sample_rate: int) -> None:
        self._bytes_per_ms = SAMPLE_BYTES * sample_rate / 1000
        self._window_bytes = SAMPLE_BYTES * (sample_rate * WINDOW_MS // 1000)
        # The estimated noise level; it starts low, because nothing is known.
        self._floor = SILENCE_LEVEL / VOICE_ON_FACTOR
        # The lowest levels of the running and of the last span, from which the floor rises.
        self._lowest = inf
        self._lowest_before = 0.0
        self._span_left_bytes = FLOOR_SPAN_MS * self._bytes_per_ms
        # Reads the measured samples of a chunk with so many bytes: most chunks are of one size.
        self._picked_bytes = 0
        self._pick = picker(0, SAMPLES_LOOKED_AT)
        # The result of the last window: a continuing voice may be quieter than a beginning one.
        self._is_voice = False

    def is_voice(self, pcm: bytes | memoryview) -> bool:
        """Tell whether any part of this chunk is louder than silence and than the noise."""
        size = len(pcm)
        if size != self._picked_bytes:
            if size > self._window_bytes:
                return self._is_voice_in_any_window(memoryview(pcm))
            self._picked_bytes = size
            self._pick = picker(size // SAMPLE_BYTES, SAMPLES_LOOKED_AT)
        # `pcm16_level` in place: this is done for every chunk.
        samples = self._pick(pcm)
        count = len(samples)
        mean, norm = sum(samples) / count, hypot(*samples)
        variance = norm * norm / count - mean * mean
        level = sqrt(variance) / FULL_SCALE if variance > 0 else 0.0
        floor = self._floor
        if level < floor:
            # A whole window lowers the floor at once, a shorter one in proportion, because the
            # level of a few milliseconds is inexact.
            weight = size / self._bytes_per_ms / WINDOW_MS
            self._floor = floor = floor + (level - floor) * (min(1, weight))
        if level < self._lowest:  # noqa: PLR1730 a call for every chunk
            self._lowest = level
        self._span_left_bytes = left_bytes = self._span_left_bytes - size
        if left_bytes <= 0:
            floor = self._end_span()
        factor = VOICE_OFF_FACTOR if self._is_voice else VOICE_ON_FACTOR
        self._is_voice = is_voice = level >= SILENCE_LEVEL and level >= floor * factor
        return is_voice

    def _is_voice_in_any_window(self, chunk: memoryview) -> bool:
        size, found = self._window_bytes, False
        for start in range(0, len(chunk), size):
            found |= self.is_voice(chunk[start : start + size])
        return found

    def _end_span(self) -> float:
        """Begin the next span and return the floor, which may have risen."""
        risen = min(self._lowest, self._lowest_before, FLOOR_LEVEL_MAX)
        self._floor = floor = max(self._floor, risen)
        self._lowest_before = self._lowest
        self._lowest = inf
        self._span_left_bytes = FLOOR_SPAN_MS * self._bytes_per_ms
        return floor


class Preroll:
    """The latest unvoiced chunks up to a size, because a word begins before it is loud."""

    __slots__ = ("_chunks", "_keep_bytes", "size")

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        # Oldest first; the oldest may have lost its beginning.
        self._chunks: list[SpeechChunk] = []
        # Their bytes.
        self.size = 0

    def add(self, chunk: SpeechChunk) -> int:
        """Add a chunk and return how many of the oldest bytes were dropped."""
        self._chunks.append(chunk)
        self.size += len(chunk[0])
        # Whole samples only, or the rest would be unreadable.
        excess = max(self.size - self._keep_bytes, 0) & ~1
        self.size -= excess
        self._drop(excess)
        return excess

    @property
    def first_seq(self) -> int | None:
        """Return the number of the oldest chunk, if it has one."""
        return self._chunks[0][1] if self._chunks else None

    @property
    def dropped_bytes(self) -> int:
        """Return how much of the oldest chunk's beginning was dropped."""
        return self._chunks[0][4] if self._chunks else 0

    def take(self) -> list[SpeechChunk]:
        """Remove and return all chunks."""
        taken, self._chunks, self.size = self._chunks, [], 0
        return taken

    def clear(self) -> int:
        """Forget all chunks and return how many bytes they had."""
        dropped, self.size = self.size, 0
        self._chunks.clear()
        return dropped

    def _drop(self, count: int) -> None:
        while count:
            audio, seq, client_ts_ms, whole_seq, before_bytes, at_ms = self._chunks[0]
            if len(audio) > count:
                before_bytes += count
                rest = (audio[count:], seq, client_ts_ms, whole_seq, before_bytes, at_ms)
                self._chunks[0] = rest
                return
            count -= len(audio)
            del self._chunks[0]
