"""Audio as numbers: bytes <-> floats, other rates, levels, silence at the ends.

What engines share before they listen and after they speak; numpy only. It knows nothing of
models. Samples are float32 between -1 and 1, mono; `HEARING_RATE` is what recognisers listen at.
"""

from __future__ import annotations

from math import ceil, gcd, inf
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from lingua_scheduler.speech.engine import EngineError

if TYPE_CHECKING:
    from lingua_scheduler.speech.engine import Sound

Samples = npt.NDArray[np.float32]

HEARING_RATE: Final = 16_000
LOWEST_RATE: Final = 8_000
HIGHEST_RATE: Final = 192_000
FULL_SCALE: Final = 32_768.0
# The low-pass falls from 1 to 0 over this part of the lower of the two bandwidths.
PASSED_PART: Final = 0.92
# Long audio is resampled in blocks of about this length, so that memory stays bounded.
BLOCK_S: Final = 16
MARGIN_S: Final = 0.05
# Levels are taken over frames of this length.
FRAME_MS: Final = 10
# Quieter than this is silence in any recording; so is what is this far below its loudest frame.
SILENCE_DB: Final = -75.0
BELOW_LOUDEST_DB: Final = 45.0


def hearing(sound: Sound) -> Samples:
    """Return a sound as samples at the rate that recognisers listen at."""
    return resample(samples_of(sound.pcm), sound.sample_rate)


def samples_of(pcm: bytes) -> Samples:
    """Return 16-bit audio as floats; an odd byte at the end is left out."""
    whole = np.frombuffer(pcm, dtype="<i2", count=len(pcm) // 2)
    return whole.astype(np.float32) / np.float32(FULL_SCALE)


def pcm16(samples: Samples) -> bytes:
    """Return floats as 16-bit audio; what is too loud is clipped."""
    scaled = np.rint(samples * np.float32(FULL_SCALE))
    clipped: bytes = np.clip(scaled, -FULL_SCALE, FULL_SCALE - 1).astype("<i2").tobytes()
    return clipped


def resample(samples: Samples, rate: int, wanted: int = HEARING_RATE) -> Samples:
    """Return the samples at another rate, without what that rate cannot carry."""
    for one in (rate, wanted):
        if not LOWEST_RATE <= one <= HIGHEST_RATE:
            raise EngineError("PROCESSING_ERROR", f"a sample rate of {one} Hz is not supported")
    if rate == wanted or not len(samples):
        return samples
    return _Resampler(rate, wanted).apply(samples)


class _Resampler:
    """Overlapping blocks, each cut or extended in its spectrum.

    Blocks and margins are whole numbers of the shortest stretch that both rates divide, so the
    results join to the sample.
    """

    def __init__(self, rate: int, wanted: int) -> None:
        common = gcd(rate, wanted)
        # One stretch: so many samples before, so many after.
        self._before, self._after = rate // common, wanted // common
        self._margin = ceil(MARGIN_S * rate / self._before)
        self._block = max(1, round(BLOCK_S * rate / self._before))
        # The highest frequency that may pass, as a part of the rate before.
        self._edge = min(rate, wanted) / 2 / rate

    def apply(self, samples: Samples) -> Samples:
        stretches = ceil(len(samples) / self._before)
        parts = [
            self._part(samples, at, min(self._block, stretches - at))
            for at in range(0, stretches, self._block)
        ]
        length = round(len(samples) * self._after / self._before)
        return np.concatenate(parts)[:length]

    def _part(self, samples: Samples, at: int, count: int) -> Samples:
        first, last = at - self._margin, at + count + self._margin
        padded = np.zeros(_easy(last - first) * self._before, np.float32)
        start, end = max(0, first * self._before), min(len(samples), last * self._before)
        offset = start - first * self._before
        padded[offset : offset + end - start] = samples[start:end]
        whole = self._stretched(padded)
        skipped = self._margin * self._after
        return whole[skipped : skipped + count * self._after]

    def _stretched(self, padded: Samples) -> Samples:
        length = len(padded) // self._before * self._after
        spectrum = np.fft.rfft(padded)
        kept = min(len(spectrum), length // 2 + 1)
        share = np.arange(kept) / len(padded) / self._edge
        slope = np.clip((1 - share) / (1 - PASSED_PART), 0, 1)
        gain = (0.5 - 0.5 * np.cos(np.pi * slope)) * (self._after / self._before)
        passed = spectrum[:kept] * gain.astype(np.float32)
        return np.fft.irfft(passed, length).astype(np.float32)


def _easy(count: int) -> int:
    """Return a number, not much larger, whose Fourier transform is quick."""
    power = 1 << max(0, count - 1).bit_length()
    return min(size for size in (power, power * 3 // 4, power * 5 // 8) if size >= count)


def level_db(samples: Samples) -> float:
    """Return how loud it is on average, in dB of full scale; silence is minus infinity."""
    if not len(samples):
        return -inf
    power = float(np.mean(np.square(samples, dtype=np.float64)))
    return 10 * float(np.log10(power)) if power > 0 else -inf


def frame_levels_db(samples: Samples, rate: int = HEARING_RATE) -> npt.NDArray[np.float64]:
    """Return the level of each whole frame of `FRAME_MS`; nothing is quieter than -120 dB."""
    size = rate * FRAME_MS // 1000
    frames = samples[: len(samples) // size * size].reshape(-1, size)
    power = np.mean(np.square(frames, dtype=np.float64), axis=1)
    levels: npt.NDArray[np.float64] = 10 * np.log10(np.maximum(power, 1e-12))
    return levels


def trim(samples: Samples, margin_ms: int = 200, rate: int = HEARING_RATE) -> Samples:
    """Return it without the silence at its ends but for a margin; empty if all is silence."""
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
    """Return it with silence added at its ends."""
    return np.pad(samples, (rate * before_ms // 1000, rate * after_ms // 1000))
