"""Audio as arrays: conversion, resampling, levels, silence at the ends.

Engines share these functions before recognition and after synthesis; they need only numpy. Samples
are float32 between -1 and 1, mono; `HEARING_RATE` is the sample rate of recognisers.
"""

from __future__ import annotations

from math import ceil, gcd, inf
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lingua_speech.engine import EngineError

if TYPE_CHECKING:
    from lingua_speech.engine import Sound

Samples = npt.NDArray[np.float32]

HEARING_RATE: Final = 16_000
LOWEST_RATE: Final = 8_000
HIGHEST_RATE: Final = 192_000
FULL_SCALE: Final = 32_768.0
# Up to this part of the lower bandwidth the low-pass filter is 1; then it falls to 0.
PASSED_PART: Final = 0.92
# Long audio is resampled in blocks of about this length, so that memory stays bounded.
BLOCK_S: Final = 16
MARGIN_S: Final = 0.05
# The frame length of levels.
FRAME_MS: Final = 10
# A frame is silence below this level, or if it is this far below the loudest frame.
SILENCE_DB: Final = -75.0
BELOW_LOUDEST_DB: Final = 45.0


def hearing(sound: Sound) -> Samples:
    """Return a sound as samples at the rate of recognisers."""
    return resample(samples_of(sound.pcm), sound.sample_rate)


def samples_of(pcm: bytes) -> Samples:
    """Return 16-bit audio as floats; an odd byte at the end is ignored."""
    whole = np.frombuffer(pcm, dtype="<i2", count=len(pcm) // 2)
    return whole.astype(np.float32) / np.float32(FULL_SCALE)


def pcm16(samples: Samples) -> bytes:
    """Return floats as 16-bit audio, clipped."""
    scaled = np.rint(samples * np.float32(FULL_SCALE))
    clipped: bytes = np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()
    return clipped


def resample(samples: Samples, rate: int, wanted: int = HEARING_RATE) -> Samples:
    """Return the samples at another rate, without the frequencies above its limit."""
    for one in (rate, wanted):
        if not LOWEST_RATE <= one <= HIGHEST_RATE:
            raise EngineError("PROCESSING_ERROR", f"a sample rate of {one} Hz is not supported")
    if rate == wanted or not len(samples):
        return samples
    return _Resampler(rate, wanted).apply(samples)


class _Resampler:
    """Resamples overlapping blocks by cutting or extending their spectrum.

    Blocks and margins are multiples of the shortest period that both rates divide, so the results
    join without a gap.
    """

    def __init__(self, rate: int, wanted: int) -> None:
        common = gcd(rate, wanted)
        # The number of samples in one period, before and after.
        self._before, self._after = rate // common, wanted // common
        self._margin = ceil(MARGIN_S * rate / self._before)
        self._block = max(1, round(BLOCK_S * rate / self._before))
        # The highest frequency that passes, as a part of the source rate.
        self._edge = min(rate, wanted) / 2 / rate

    def apply(self, samples: Samples) -> Samples:
        periods = ceil(len(samples) / self._before)
        parts = [
            self._block_result(samples, at, min(self._block, periods - at))
            for at in range(0, periods, self._block)
        ]
        length = round(len(samples) * self._after / self._before)
        return np.concatenate(parts)[:length]

    def _block_result(self, samples: Samples, at: int, count: int) -> Samples:
        first, last = at - self._margin, at + count + self._margin
        padded = np.zeros(_fast_length(last - first) * self._before, np.float32)
        start, end = max(0, first * self._before), min(len(samples), last * self._before)
        offset = start - first * self._before
        padded[offset : offset + end - start] = samples[start:end]
        whole = self._convert(padded)
        skipped = self._margin * self._after
        return whole[skipped : skipped + count * self._after]

    def _convert(self, padded: Samples) -> Samples:
        length = len(padded) // self._before * self._after
        spectrum = np.fft.rfft(padded)
        kept = min(len(spectrum), length // 2 + 1)
        share = np.arange(kept) / len(padded) / self._edge
        slope = np.clip((1 - share) / (1 - PASSED_PART), 0, 1)
        gain = (0.5 - 0.5 * np.cos(np.pi * slope)) * (self._after / self._before)
        passed = spectrum[:kept] * gain.astype(np.float32)
        return np.fft.irfft(passed, length).astype(np.float32)


def _fast_length(count: int) -> int:
    """Return a slightly larger number with a fast Fourier transform."""
    power = 1 << max(0, count - 1).bit_length()
    return min(size for size in (power, power * 3 // 4, power * 5 // 8) if size >= count)


def level_db(samples: Samples) -> float:
    """Return the average level in dB of full scale; minus infinity for silence."""
    if not len(samples):
        return -inf
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return 10 * float(np.log10(power)) if power > 0 else -inf


def frame_levels_db(samples: Samples, rate: int = HEARING_RATE) -> npt.NDArray[np.float64]:
    """Return the level of each whole frame of `FRAME_MS`, at least -120 dB."""
    size = rate * FRAME_MS // 1000
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    power = np.mean(np.square(frames, dtype=np.float64), axis=1)
    levels: npt.NDArray[np.float64] = 10 * np.log10(np.maximum(power, 1e-12))
    return levels


def trim(samples: Samples, margin_ms: int = 200, rate: int = HEARING_RATE) -> Samples:
    """Return samples without silence at the ends except a margin; empty if all is silence."""
    levels = frame_levels_db(samples, rate)
    if not len(levels):
        return samples[:0]
    floor = max(SILENCE_DB, float(levels.max()) - BELOW_LOUDEST_DB)
    loud = np.flatnonzero(levels > floor)
    if not len(loud):
        return samples[:0]
    size, margin = rate * FRAME_MS // 1000, rate * margin_ms // 1000
    end = (int(loud[-1]) + 1) * size
    if loud[-1] == len(levels) - 1:
        end = len(samples)
    return samples[max(0, int(loud[0]) * size - margin) : end + margin]


def pad(
    samples: Samples, before_ms: int = 0, after_ms: int = 0, rate: int = HEARING_RATE
) -> Samples:
    """Return samples with silence added at the ends."""
    return np.pad(samples, (rate * before_ms // 1000, rate * after_ms // 1000))
