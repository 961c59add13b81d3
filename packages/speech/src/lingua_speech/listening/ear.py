"""The loudness of an utterance while it grows: where there is voice, and where it is quiet.

Cheap, so it may look at everything at once. In doubt it reports voice: then a pass is made later,
or a job does the usual work. Recognition has a detector of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lingua_speech import sound as audio

if TYPE_CHECKING:
    import numpy.typing as npt

FRAME_MS: Final = audio.FRAME_MS
# Levels are averaged over so many frames; shorter sounds are clicks.
SMOOTHED: Final = 3
# The voice is louder than the noise and not far below the loudest speech.
ABOVE_NOISE_DB: Final = 8.0
BELOW_LOUDEST_DB: Final = 34.0
# Nor can the threshold be nearer to the loudest speech, however loud the noise is.
NEAREST_DB: Final = 14.0
LOWEST_DB: Final = -58.0
NOISE_PERCENTILE, LOUD_PERCENTILE = 5, 97


class QuietPlace(NamedTuple):
    """A part without voice."""

    start_ms: int
    end_ms: int

    @property
    def middle_ms(self) -> int:
        """Return its middle."""
        return (self.start_ms + self.end_ms) // 2


class Ear:
    """The levels of one utterance, frame by frame."""

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate
        self._frame_bytes = 2 * (sample_rate * FRAME_MS // 1000)
        self._levels: list[float] = []
        # Less than a frame.
        self._rest = b""

    @property
    def heard_ms(self) -> int:
        """Return how much was heard."""
        return len(self._levels) * FRAME_MS

    def add(self, pcm: bytes) -> None:
        """Hear more."""
        pcm = self._rest + pcm
        whole = len(pcm) // self._frame_bytes * self._frame_bytes
        self._rest = pcm[whole:]
        samples = audio.samples_of(pcm[:whole])
        self._levels.extend(audio.frame_levels_db(samples, self._sample_rate).tolist())

    def voice_end_ms(self) -> int:
        """Return where the last voice so far ended; 0 without any."""
        loud = np.flatnonzero(self._is_voice())
        return (int(loud[-1]) + 1) * FRAME_MS if len(loud) else 0

    def quiet_ms(self) -> int:
        """Return how long it has been quiet since the last voice; 0 without any voice."""
        end_ms = self.voice_end_ms()
        return self.heard_ms - end_ms if end_ms else 0

    def has_voice(self, start_ms: float, end_ms: float) -> bool:
        """Tell whether there is voice between two places; what was not heard has none."""
        first, last = int(start_ms) // FRAME_MS, int(end_ms) // FRAME_MS
        return bool(self._is_voice()[first:last].any())

    def quiet_places(self, start_ms: float, end_ms: float, least_ms: int) -> list[QuietPlace]:
        """Return the quiet places between two places that are long enough."""
        is_voice = self._is_voice()
        first, last = max(0, int(start_ms) // FRAME_MS), min(len(is_voice), int(end_ms) // FRAME_MS)
        found: list[QuietPlace] = []
        began = first
        for at in range(first, last + 1):
            if at < last and not is_voice[at]:
                continue
            if (at - began) * FRAME_MS >= least_ms:
                found.append(QuietPlace(began * FRAME_MS, at * FRAME_MS))
            began = at + 1
        return found

    def _is_voice(self) -> npt.NDArray[np.bool_]:
        levels = np.array(self._levels)
        if len(levels) < SMOOTHED:
            return np.zeros(len(levels), bool)
        smooth = np.convolve(levels, np.full(SMOOTHED, 1 / SMOOTHED), mode="same")
        # The convolution takes what is beyond the ends for 0 dB.
        smooth[0], smooth[-1] = levels[0], levels[-1]
        noise, loud = np.percentile(smooth, (NOISE_PERCENTILE, LOUD_PERCENTILE))
        threshold = max(noise + ABOVE_NOISE_DB, loud - BELOW_LOUDEST_DB, LOWEST_DB)
        found: npt.NDArray[np.bool_] = smooth > min(threshold, max(loud - NEAREST_DB, LOWEST_DB))
        return found
