"""Whisper's input features: the logarithm of the energy in mel bands, every 10 ms.

Only the requested frames are computed, up to the 30 s that the network was trained on. The numbers
follow the published preprocessing (Slaney's mel scale).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from lingua_speech.sound import HEARING_RATE, Samples

BANDS: Final = 80
FRAME: Final = 400
HOP: Final = 160
# Frames per second, and in the whole window.
FRAMES_PER_S: Final = HEARING_RATE // HOP
FULL_FRAMES: Final = 30 * FRAMES_PER_S
# Up to 1 kHz (15 mel) the scale is linear; above, it is logarithmic, 27 mel for a factor of 6.4.
KNEE_HZ: Final = 1000.0
KNEE_MEL: Final = 15.0
MEL_PER_LOG: Final = 27 / np.log(6.4)
# Energies further below the loudest than this (in powers of ten) are raised to that level.
RANGE: Final = 8.0


def log_mel(samples: Samples, frames: int) -> Samples:
    """Return (1, BANDS, frames): the samples padded with silence, or cut to the frames."""
    wave = np.zeros(frames * HOP + FRAME, np.float32)
    half = FRAME // 2
    used = samples[: frames * HOP]
    wave[half : half + len(used)] = used
    wave[:half] = wave[FRAME:half:-1]
    wave[-half:] = wave[-half - 2 : -FRAME - 2 : -1]
    windows = np.lib.stride_tricks.sliding_window_view(wave, FRAME)[::HOP][:frames]
    spectrum = np.fft.rfft(windows * _window(), axis=1)
    power = np.square(spectrum.real) + np.square(spectrum.imag)
    energy = filters() @ power.T.astype(np.float32)
    logs = np.log10(np.maximum(energy, 1e-10))
    limited = np.maximum(logs, logs.max() - RANGE)
    features: Samples = ((limited + 4) / 4)[None]
    return features


@lru_cache(maxsize=1)
def _window() -> Samples:
    angles = 2 * np.pi * np.arange(FRAME) / FRAME
    return (0.5 - 0.5 * np.cos(angles)).astype(np.float32)


@lru_cache(maxsize=1)
def filters() -> Samples:
    """Return (BANDS, frequencies): overlapping triangles of equal area along the mel scale."""
    bins = np.linspace(0, HEARING_RATE / 2, FRAME // 2 + 1)
    top = KNEE_MEL + MEL_PER_LOG * np.log(HEARING_RATE / 2 / KNEE_HZ)
    corners = _to_hz(np.linspace(0, top, BANDS + 2))
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising = (bins - low) / (middle - low)
    falling = (high - bins) / (high - middle)
    triangles = np.maximum(0, np.minimum(rising, falling)) * 2 / (high - low)
    return triangles.astype(np.float32)


def _to_hz(
    mel: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    straight = mel * KNEE_HZ / KNEE_MEL
    return np.where(mel < KNEE_MEL, straight, KNEE_HZ * np.exp((mel - KNEE_MEL) / MEL_PER_LOG))
