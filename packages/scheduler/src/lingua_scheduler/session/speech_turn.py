"""The turn that is being spoken: its number, its slices, and the voice in it. Pure."""

from __future__ import annotations


class SpeechTurn:
    """The state of the current turn of a session."""

    __slots__ = ("is_sliced", "is_speaking", "number", "unvoiced_bytes")

    def __init__(self) -> None:
        # Turns of a session count from 0.
        self.number = 0
        # Slices of it were cut, so that it must still be closed.
        self.is_sliced = False
        # Only with a detector: whether it has a voice, and how much silence followed the voice.
        self.is_speaking = False
        self.unvoiced_bytes = 0

    def add_slice(self) -> None:
        """Record that a piece was cut and that the turn continues."""
        self.is_sliced = True

    def hear_voice(self) -> None:
        """Record a chunk with a voice."""
        self.is_speaking = True
        self.unvoiced_bytes = 0

    def hear_silence(self, count: int) -> None:
        """Record a chunk without a voice."""
        self.unvoiced_bytes += count

    def forget_silence(self) -> None:
        """Count the silence from now on."""
        self.unvoiced_bytes = 0

    def start_next(self, spoken_bytes: int = 0) -> None:
        """Begin the next turn; so much of it has been spoken already."""
        self.number += 1
        self.is_sliced = False
        self.is_speaking = spoken_bytes > 0
        self.unvoiced_bytes = min(self.unvoiced_bytes, spoken_bytes)
