"""Cuts sound of any length into pieces for Whisper's window, at the quietest places. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from lingua_speech.engines.whisper.mel import FRAMES_PER_S, FULL_FRAMES, HOP
from lingua_speech.sound import FRAME_MS, HEARING_RATE, frame_levels_db

if TYPE_CHECKING:
    from lingua_speech.sound import Samples

# The longest sound that is recognised in one piece, and the longest piece of a longer one.
WHOLE_S: Final = 29
PIECE_S: Final = 28
# The shortest piece; it ends at the quietest place after that.
PIECE_AT_LEAST_S: Final = 14
# The time over which the level is averaged.
QUIET_MS: Final = 200
# A pause without speech: a level this far below the loudest, for this long.
PAUSE_DB: Final = 35.0
PAUSE_MS: Final = 400
# Whisper ends a text reliably only if silence follows the speech: seconds of silence after it, and
# seconds of the window at least. `wide` is for pieces that failed in `short`.
WINDOWS: Final = {"short": (1.0, 3.0), "wide": (4.0, 10.0), "full": (0.0, 30.0)}

Window = Literal["short", "wide", "full"]


def pieces(samples: Samples) -> list[Samples]:
    """Return the sound whole, or in pieces of at most `PIECE_S`."""
    found = []
    while len(samples) > WHOLE_S * HEARING_RATE:
        end = _quietest(samples[: PIECE_S * HEARING_RATE])
        found.append(samples[:end])
        samples = samples[end:]
    return [*found, samples]


def halves(samples: Samples) -> tuple[Samples, Samples]:
    """Return the sound in two parts, cut at the quietest place of its middle half."""
    quarter = len(samples) // 4
    end = _quietest(samples[: 3 * quarter], quarter / HEARING_RATE)
    return samples[:end], samples[end:]


def _quietest(samples: Samples, after_s: float = PIECE_AT_LEAST_S) -> int:
    levels = frame_levels_db(samples)
    width = QUIET_MS // FRAME_MS
    means = np.convolve(levels, np.full(width, 1 / width), mode="valid")
    first = int(after_s * 1000) // FRAME_MS
    at = first + int(means[first:].argmin()) + width // 2
    return at * FRAME_MS * HEARING_RATE // 1000


def spoken_s(samples: Samples) -> float:
    """Return the duration of speech in a sound: its length without the pauses."""
    levels = frame_levels_db(samples)
    loud = np.flatnonzero(levels > levels.max() - PAUSE_DB)
    gaps = np.diff(loud) - 1
    paused_ms = int(gaps[gaps >= PAUSE_MS // FRAME_MS].sum()) * FRAME_MS
    return len(samples) / HEARING_RATE - paused_ms / 1000


def frames_for(samples: Samples, window: Window) -> int:
    """Return how many frames Whisper should encode; always even, because it halves them."""
    after_s, least_s = WINDOWS[window]
    needed = -(-len(samples) // HOP) + int(after_s * FRAMES_PER_S)
    return min(FULL_FRAMES, max(int(least_s * FRAMES_PER_S), needed + needed % 2))
