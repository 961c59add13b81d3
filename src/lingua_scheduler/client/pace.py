"""How fast audio may go out: live speech is never held, what runs ahead of it waits for the server.

A recording, or what is said again after an outage, would else fill the server's backlog before its
`PAUSE` arrives, and what arrives after that is refused. Pure: the caller brings the clock.
"""

from __future__ import annotations

from typing import Final

# How far ahead of real time audio may run in any case.
BURST_MS: Final = 200
# Beyond it audio waits while so much has not been acknowledged: ends of utterances, or audio.
ENDS_AHEAD: Final = 4
AUDIO_AHEAD_MS: Final = 20_000


class Pace:
    """A bucket that fills with what is sent and drains with time."""

    def __init__(self) -> None:
        self._level_ms = 0.0
        self._at_ms = 0.0

    def sent(self, duration_ms: float, now_ms: float) -> None:
        """Audio of this length went out."""
        self._level_ms = self._level(now_ms) + duration_ms
        self._at_ms = now_ms

    def wait_ms(self, ends: int, audio_ms: float, now_ms: float) -> float:
        """Return how long to wait with so much unacknowledged, if nothing is acknowledged; or 0."""
        if ends < ENDS_AHEAD and audio_ms < AUDIO_AHEAD_MS:
            return 0.0
        return max(0.0, self._level(now_ms) - BURST_MS)

    def _level(self, now_ms: float) -> float:
        return max(0.0, self._level_ms - (now_ms - self._at_ms))
