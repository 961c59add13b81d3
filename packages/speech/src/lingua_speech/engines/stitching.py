"""Joins separately spoken sentences: each is trimmed of silence and followed by a short pause.

Voices end a sentence with up to 1.6 s of silence (Pico after "..."), for which a listener would
wait in vain. So the silence at both ends is removed, and a pause of fixed length is inserted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lingua_speech.engine import Sound

if TYPE_CHECKING:
    from collections.abc import Iterable

PAUSE_MS: Final = 250
# The silence kept around a sentence, so that no soft sound is cut off.
EDGE_MS: Final = 40
# Quieter than this is silence: 1 % of full scale.
SILENCE: Final = 327


def stitched(pieces: Iterable[bytes], sample_rate: int, pause_ms: int = PAUSE_MS) -> Sound:
    """Return one sound made of several pieces; silent pieces are dropped."""
    pause = bytes(2 * (sample_rate * pause_ms // 1000))
    audible = [trimmed for piece in pieces if (trimmed := _trimmed(piece, sample_rate))]
    return Sound(pause.join(audible), sample_rate)


def _trimmed(pcm: bytes, sample_rate: int) -> bytes:
    levels = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32))
    (loud,) = np.nonzero(levels > SILENCE)
    if not len(loud):
        return b""
    edge = sample_rate * EDGE_MS // 1000
    return pcm[2 * max(0, int(loud[0]) - edge) : 2 * (int(loud[-1]) + 1 + edge)]
