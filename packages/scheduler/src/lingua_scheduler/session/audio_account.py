"""How much of a session's audio was cut into utterances or passed over as silence. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_scheduler.session.audio import AudioFormat


class AudioAccount:
    """Counts the audio that is not kept any more; durations add up without rounding errors."""

    __slots__ = ("_format", "settled_bytes", "silent_bytes", "silent_ms")

    def __init__(self, audio_format: AudioFormat) -> None:
        self._format = audio_format
        # Cut or passed over, and the part of it that was passed over as silence.
        self.settled_bytes = 0
        self.silent_bytes = 0
        self.silent_ms = 0

    def start_at(self, at_ms: int) -> None:
        """Begin in the middle of a session."""
        self.settled_bytes = self._format.bytes_lasting(at_ms)

    def settle(self, count: int) -> tuple[int, int]:
        """Count audio that was cut; returns where it starts and ends, in ms."""
        start_ms = self._format.duration_ms(self.settled_bytes)
        self.settled_bytes += count
        return start_ms, self._format.duration_ms(self.settled_bytes)

    def pass_over(self, count: int) -> None:
        """Count audio that is silence."""
        start_ms, end_ms = self.settle(count)
        self.silent_bytes += count
        self.silent_ms += end_ms - start_ms
