"""When the next cut is due: at the end of a pause, or of the hangover before a cut. Pure."""

from __future__ import annotations

from math import inf
from typing import Literal

Hangover = Literal["manual", "max_duration"]

# The longest playback, for a client that never reports its end.
TTS_MAX_MS = 60_000


class CutTimer:
    """The deadline of the pause after speech, which a hangover overrides and playback suspends."""

    __slots__ = ("_from_ms", "_pause_ms", "_playback_until_ms", "due_ms", "hangover")

    def __init__(self, pause_ms: float) -> None:
        self._pause_ms = pause_ms
        # When there is something to do; infinite if there is nothing to wait for.
        self.due_ms = inf
        # The cut that follows the running hangover; None if no hangover runs.
        self.hangover: Hangover | None = None
        # The pause is counted from here, but not before playback has ended.
        self._from_ms = -inf
        self._playback_until_ms = -inf

    def is_playing(self, now_ms: float) -> bool:
        """Tell whether the client plays a result and does not listen."""
        return now_ms < self._playback_until_ms

    def count_from(self, at_ms: float) -> None:
        """Count the pause from this time; `arm` sets the deadline."""
        self._from_ms = at_ms

    def restart(self, now_ms: float) -> None:
        """Count the pause from now: a chunk arrived."""
        self._from_ms = now_ms
        if self.hangover is None:
            from_ms = self._playback_until_ms
            if from_ms < now_ms:  # noqa: PLR1730 - `max` is a call, for every chunk
                from_ms = now_ms
            self.due_ms = from_ms + self._pause_ms

    def start_playback(self, now_ms: float) -> None:
        """Suspend the pause."""
        self._playback_until_ms = now_ms + TTS_MAX_MS

    def end_playback(self, now_ms: float) -> None:
        """Count the pause from now."""
        self._playback_until_ms = -inf
        self._from_ms = now_ms

    def start_hangover(self, hangover: Hangover, due_ms: float) -> None:
        """Wait a little longer before a cut."""
        self.hangover = hangover
        self.due_ms = due_ms

    def end_hangover(self) -> None:
        """Let the pause decide again; `arm` sets the deadline."""
        self.hangover = None

    def arm(self, *, is_needed: bool) -> None:
        """Set the deadline of the pause, unless a hangover runs."""
        if self.hangover is not None:
            return
        if is_needed:
            self.due_ms = max(self._from_ms, self._playback_until_ms) + self._pause_ms
        else:
            self.due_ms = inf
