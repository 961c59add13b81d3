"""The format of a session's audio: durations of bytes, loudness of samples. Pure.

Audio is never decoded here. pcm16 (little-endian, mono) is exact; opus is opaque, so its duration
is an estimate and its loudness is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import hypot, sqrt
from struct import Struct
from typing import TYPE_CHECKING

from lingua_wire.errors import InvalidInput, InvalidMessage

if TYPE_CHECKING:
    from collections.abc import Callable

PCM16 = "pcm16"
OPUS = "opus"
SAMPLE_RATE_MIN = 8_000
SAMPLE_RATE_MAX = 192_000

SAMPLE_BYTES = 2
FULL_SCALE = 32_768
# The assumed size of an opus packet of speech, as in the old protocol.
OPUS_PACKET_BYTES = 60
OPUS_PACKET_MS = 20
# The shortest pcm16 accepted as an utterance: less is an error of the client.
UTTERANCE_MS_MIN = 1
# The approximate number of samples measured: the level is exact to a few percent, at low cost.
SAMPLES_LOOKED_AT = 150


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """The encoding of a session's audio; unknown values are `InvalidInput`."""

    name: str
    sample_rate: int
    # Of the shortest utterance, if the format tells.
    least_bytes: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        if self.name not in {PCM16, OPUS}:
            raise InvalidInput(f"audio_format must be pcm16 or opus but is: {self.name[:40]!r}")
        if not SAMPLE_RATE_MIN <= self.sample_rate <= SAMPLE_RATE_MAX:
            raise InvalidInput(
                f"sample_rate must be {SAMPLE_RATE_MIN} to {SAMPLE_RATE_MAX} "
                f"but is: {self.sample_rate}"
            )
        if self.name == PCM16:
            object.__setattr__(self, "least_bytes", self.bytes_lasting(UTTERANCE_MS_MIN))

    def check_utterance(self, byte_count: int) -> None:
        """Refuse audio that cannot be an utterance; a single byte of opus may be a packet."""
        if not byte_count:
            raise InvalidMessage("audio is empty")
        if self.name != PCM16:
            return
        if byte_count % SAMPLE_BYTES:
            raise InvalidMessage("audio of pcm16 has two bytes per sample, got an odd number")
        if byte_count < self.least_bytes:
            raise InvalidMessage(
                f"audio is shorter than any speech: {byte_count // SAMPLE_BYTES} samples at "
                f"{self.sample_rate} Hz, the least is {UTTERANCE_MS_MIN} ms"
            )

    def duration_ms(self, byte_count: int) -> int:
        """Return the duration of bytes in whole milliseconds; an estimate for opus."""
        if self.name == PCM16:
            return byte_count * 1000 // (SAMPLE_BYTES * self.sample_rate)
        return byte_count // OPUS_PACKET_BYTES * OPUS_PACKET_MS

    def bytes_lasting(self, duration_ms: int) -> int:
        """Return the smallest number of bytes of this duration, in whole samples or packets."""
        if self.name == PCM16:
            return SAMPLE_BYTES * -(-duration_ms * self.sample_rate // 1000)
        return OPUS_PACKET_BYTES * -(-duration_ms // OPUS_PACKET_MS)


def pcm16_level(pcm: bytes | memoryview, looked_at: int = SAMPLES_LOOKED_AT) -> float:
    """Return the loudness of little-endian samples, 0 to 1 of full scale, RMS without offset.

    Only every n-th sample is measured, about so many in all, with another n in the second half, so
    that no tone is in step with both. An odd last byte is ignored.
    """
    samples = picker(len(pcm) // SAMPLE_BYTES, looked_at)(pcm)
    count = len(samples)
    # The variance ignores the constant offset of cheap microphones.
    mean, norm = sum(samples) / count, hypot(*samples)
    variance = norm * norm / count - mean * mean
    return sqrt(variance) / FULL_SCALE if variance > 0 else 0.0


@lru_cache(maxsize=256)
def picker(count: int, looked_at: int) -> Callable[[bytes | memoryview], tuple[int, ...]]:
    """Return the function that reads the measured samples of so many; a zero if there are none."""
    if not count:
        return lambda _: (0,)
    half, step = count // 2, count // looked_at | 1
    wanted = [*range(0, half, step), *range(half, count, step + 2)]
    gaps = (after - at - 1 for at, after in zip(wanted, [*wanted[1:], wanted[-1] + 1], strict=True))
    picked = "".join(f"h{gap * SAMPLE_BYTES}x" if gap else "h" for gap in gaps)
    return Struct("<" + picked).unpack_from
