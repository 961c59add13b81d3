"""Audio with voice at known places, for tests."""

from __future__ import annotations

import math
import random
from array import array

RATE = 16_000


def noise(ms: int, level: int = 10) -> bytes:
    chance = random.Random(ms)
    return array("h", (chance.randint(-level, level) for _ in range(16 * ms))).tobytes()


def voice(ms: int, level: int = 6000) -> bytes:
    """Return a tone that is as loud as a voice."""
    step = 2 * math.pi * 180 / RATE
    return array("h", (round(level * math.sin(step * at)) for at in range(16 * ms))).tobytes()
