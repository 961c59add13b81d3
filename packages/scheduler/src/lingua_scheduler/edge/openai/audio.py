"""Audio of the OpenAI surface: uploaded files as blocks of pcm16, and speech of nodes at 24 kHz.

Reading and resampling block, so threads do them. A WAV file is read block by block and is never
completely in memory; other formats are decoded by `lingua_wire.recording` and written to disk.
Resampling is for the realtime socket: pure Python with six taps, good enough for speech.
"""

from __future__ import annotations

import asyncio
import io
import math
import sys
from array import array
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, BinaryIO

from lingua_wire.recording import (
    Limits,
    UnknownFormat,
    WavStream,
    read,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BLOCK_S = 4
SAMPLE_BYTES = 2
# A small file may decode into a large one: an hour at 48 kHz is 350 MB.
DECODED_S_MAX = 3600.0
# The rate of node speech with `tts_format` pcm16, and the rate that realtime clients expect.
NODE_RATE = 16_000
REALTIME_RATE = 24_000
# Half the taps of the filter, and the bits of their fractions.
HALF_TAPS = 3
FRACTION_BITS = 14


@dataclass(slots=True)
class OpenRecording:
    """An uploaded recording, open for reading."""

    sample_rate: int
    duration_ms: int
    # A WAV file, or a file of raw samples.
    source: WavStream | BinaryIO

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the samples in blocks of a few seconds, read in a thread."""
        while block := await asyncio.to_thread(self._read, BLOCK_S * self.sample_rate):
            yield block

    def _read(self, frames: int) -> bytes:
        if isinstance(self.source, WavStream):
            return self.source.read_frames(frames)
        return self.source.read(frames * SAMPLE_BYTES)

    def close(self) -> None:
        """Close the file."""
        self.source.close()


def open_wav(path: Path, limits: Limits) -> OpenRecording | None:
    """Open a WAV file, or raise `UnreadableRecording`; None if it is not one. Blocks."""
    try:
        sample_rate, duration_ms = _measured(path, limits)
    except UnknownFormat:
        return None
    return OpenRecording(sample_rate, duration_ms, WavStream(path.open("rb"), limits))


def decode(path: Path, limits: Limits) -> OpenRecording:
    """Open a file of another format, or raise `UnreadableRecording`. Blocks.

    It is decoded in memory, written next to the file and read from there. The caller must decode
    only one file at a time.
    """
    decoded_s = min(limits.duration_s_max, DECODED_S_MAX)
    whole = read(path, Limits(limits.bytes_max, decoded_s))
    samples = path.with_suffix(".pcm")
    samples.write_bytes(whole.pcm)
    return OpenRecording(whole.sample_rate, whole.duration_ms, samples.open("rb"))


def _measured(path: Path, limits: Limits) -> tuple[int, int]:
    """Return rate and length of a WAV file by reading it: its header may be wrong or incomplete."""
    with path.open("rb") as file:
        wav = WavStream(file, limits)
        size = 0
        while block := wav.read_frames(BLOCK_S * wav.sample_rate):
            size += len(block)
    return wav.sample_rate, size * 1000 // (SAMPLE_BYTES * wav.sample_rate)


# Speech of nodes


def speech_of(audio: bytes, tts_format: str) -> tuple[bytes, int]:
    """Return a node's speech as pcm16 and its rate, or raise `UnreadableRecording`."""
    if tts_format == "pcm16":
        return audio[: len(audio) & ~1], NODE_RATE
    found = read(io.BytesIO(audio))
    return found.pcm, found.sample_rate


def at_realtime_rate(pcm: bytes, sample_rate: int) -> bytes:
    """Return pcm16 at the rate of the realtime socket; about 100 ms for 10 s of speech."""
    if sample_rate == REALTIME_RATE or not pcm:
        return pcm
    divisor = math.gcd(sample_rate, REALTIME_RATE)
    up, down = REALTIME_RATE // divisor, sample_rate // divisor
    samples = array("h", pcm)
    if sys.byteorder == "big":
        samples.byteswap()
    count = len(samples)
    edge = [0] * HALF_TAPS
    padded = [*edge, *samples, *edge, *([0] * down)]
    out = array("h", bytes(SAMPLE_BYTES * (count * up // down)))
    for phase in range(up):
        wanted = len(out[phase::up])
        out[phase::up] = _phase(padded, phase, up, down, wanted)
    if sys.byteorder == "big":
        out.byteswap()
    return out.tobytes()


def _phase(padded: list[int], phase: int, up: int, down: int, wanted: int) -> array[int]:
    """Return every `up`-th output sample from `phase` on: they have the same taps."""
    whole, fraction = divmod(phase * down, up)
    lanes = [padded[whole + tap + 1 :: down][:wanted] for tap in range(2 * HALF_TAPS)]
    if not fraction and up >= down:
        return array("h", lanes[HALF_TAPS - 1])  # exactly the input samples
    a, b, c, d, e, f = _taps(fraction / up, min(1.0, up / down))
    values = [
        (a * p + b * q + c * r + d * s + e * t + f * u) >> FRACTION_BITS
        for p, q, r, s, t, u in zip(*lanes, strict=True)
    ]
    try:
        return array("h", values)
    except OverflowError:  # rare: only full-scale audio overshoots
        return array("h", [max(-32768, min(32767, value)) for value in values])


@cache
def _taps(fraction: float, cutoff: float) -> tuple[int, ...]:
    """Return the taps of a windowed sinc for a point between two samples; they sum to one."""
    at = [tap - (HALF_TAPS - 1) - fraction for tap in range(2 * HALF_TAPS)]
    raw = [_sinc(cutoff * x) * _sinc(x / HALF_TAPS) if abs(x) < HALF_TAPS else 0.0 for x in at]
    total = sum(raw)
    scaled = [round(value / total * (1 << FRACTION_BITS)) for value in raw]
    # The rounding error goes to the largest tap, so that a constant signal stays unchanged.
    middle = max(range(len(scaled)), key=lambda index: scaled[index])
    scaled[middle] += (1 << FRACTION_BITS) - sum(scaled)
    return tuple(scaled)


def _sinc(x: float) -> float:
    return 1.0 if x == 0 else math.sin(math.pi * x) / (math.pi * x)
