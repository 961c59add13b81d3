"""Is there a voice in this piece of pcm16? Pure; one call per chunk.

A client that never stops sending gives no pause to wait for; the segmenter ends its utterances by
what a detector hears. `EnergyDetector` is the cheap default: loudness against a tracked noise
floor, no model of speech. When unsure it says voice: a wrong yes costs a later cut, a wrong no
would cost words. A better detector (an extra) only has to be a `VoiceDetector`.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, Protocol

from lingua_scheduler.session.audio import SAMPLE_BYTES, pcm16_level

# Below this level nothing can be understood; nodes refuse what is twice as loud.
SILENCE_LEVEL = 0.004
# How far above the floor a voice begins, and how near to it one ends.
VOICE_ON_FACTOR = 2.0
VOICE_OFF_FACTOR = 1.6
# The floor is not believed above this: what is so loud counts as voice.
FLOOR_LEVEL_MAX = 0.1
# Longer chunks are heard in pieces, or a word in a second of silence would be averaged away.
WINDOW_MS = 100
# Speech dips towards the noise within this time, noise does not: two such spans without a dip make
# a louder level the new floor.
FLOOR_SPAN_MS = 1500


class VoiceDetector(Protocol):
    """What the segmenter asks of a detector; one detector hears one session, in order."""

    def is_voice(self, pcm: bytes) -> bool:
        """Tell whether this chunk may hold speech."""


class EnergyDetector:
    """Loudness against a noise floor that falls at once and rises only without dips."""

    __slots__ = (
        "_bytes_per_ms",
        "_floor",
        "_is_voice",
        "_lowest",
        "_lowest_before",
        "_span_left_ms",
        "_window_bytes",
    )

    def __init__(self, sample_rate: int) -> None:
        self._bytes_per_ms = SAMPLE_BYTES * sample_rate / 1000
        self._window_bytes = SAMPLE_BYTES * (sample_rate * WINDOW_MS // 1000)
        # The noise level believed in; at the start nothing is known and little counts as noise.
        self._floor = SILENCE_LEVEL / VOICE_ON_FACTOR
        # The lowest levels of the running and of the last span, from which the floor rises.
        self._lowest = inf
        self._lowest_before = 0.0
        self._span_left_ms: float = FLOOR_SPAN_MS
        # What the last window was: a voice that goes on may be quieter than one that begins.
        self._is_voice = False

    def is_voice(self, pcm: bytes) -> bool:
        """Tell whether any part of this chunk is louder than silence and than the noise."""
        if len(pcm) <= self._window_bytes:
            return self._hear(pcm)
        chunk = memoryview(pcm)
        found = False
        for start in range(0, len(pcm), self._window_bytes):
            found |= self._hear(chunk[start : start + self._window_bytes])
        return found

    def _hear(self, window: bytes | memoryview) -> bool:
        level = pcm16_level(window)
        duration_ms = len(window) / self._bytes_per_ms
        self._follow(level, duration_ms)
        factor = VOICE_OFF_FACTOR if self._is_voice else VOICE_ON_FACTOR
        self._is_voice = level >= SILENCE_LEVEL and level >= self._floor * factor
        return self._is_voice

    def _follow(self, level: float, duration_ms: float) -> None:
        if level < self._floor:
            # A whole window pulls the floor down at once, a shorter one in proportion: the level of
            # a few milliseconds is a poor measure.
            weight = duration_ms / WINDOW_MS
            self._floor += (level - self._floor) * min(weight, 1)
        self._lowest = min(self._lowest, level)
        self._span_left_ms -= duration_ms
        if self._span_left_ms <= 0:
            self._end_span()

    def _end_span(self) -> None:
        risen = min(self._lowest, self._lowest_before, FLOOR_LEVEL_MAX)
        self._floor = max(self._floor, risen)
        self._lowest_before = self._lowest
        self._lowest = inf
        self._span_left_ms = FLOOR_SPAN_MS


class Waiting(NamedTuple):
    """An unvoiced chunk, or a part of one, that may turn out to be the beginning of speech."""

    data: bytes
    client_ts_ms: int | None
    seq: int | None
    # How many bytes of its chunk came before, and whether the chunk ends with it.
    before_bytes: int = 0
    is_end: bool = True


class Preroll:
    """The latest unvoiced chunks, at most so many bytes: a word begins before it is loud."""

    __slots__ = ("_chunks", "_keep_bytes", "size")

    def __init__(self, keep_bytes: int) -> None:
        self._keep_bytes = keep_bytes
        # Oldest first; the oldest may have lost its beginning.
        self._chunks: list[Waiting] = []
        # Their bytes.
        self.size = 0

    def add(self, chunk: Waiting) -> int:
        """Take one more chunk and return how many of the oldest bytes had to go for it."""
        self._chunks.append(chunk)
        self.size += len(chunk.data)
        # Whole samples only, or the rest could not be read.
        excess = max(self.size - self._keep_bytes, 0) & ~1
        self.size -= excess
        self._drop(excess)
        return excess

    @property
    def first_seq(self) -> int | None:
        """Return the number of the oldest chunk, if there is one and it has one."""
        return self._chunks[0].seq if self._chunks else None

    @property
    def dropped_bytes(self) -> int:
        """Return how much of the oldest one's beginning is gone."""
        return self._chunks[0].before_bytes if self._chunks else 0

    def take(self) -> list[Waiting]:
        """Give out all chunks."""
        taken, self._chunks, self.size = self._chunks, [], 0
        return taken

    def clear(self) -> int:
        """Forget all chunks and return how many bytes they had."""
        dropped, self.size = self.size, 0
        self._chunks.clear()
        return dropped

    def _drop(self, count: int) -> None:
        while count:
            oldest = self._chunks[0]
            if len(oldest.data) > count:
                self._chunks[0] = oldest._replace(
                    data=oldest.data[count:], before_bytes=oldest.before_bytes + count
                )
                return
            count -= len(oldest.data)
            del self._chunks[0]
