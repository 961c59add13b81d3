"""How fast audio is sent: live speech is never delayed, audio ahead of real time may have to wait.

A recording, or audio sent again after an outage, would otherwise fill the server's backlog before
its `PAUSE` arrives, and audio that arrives after that is refused. Pure: the caller passes the time.
"""

from __future__ import annotations

from typing import Final

# How far ahead of real time audio may always run.
BURST_MS: Final = 200
# Audio further ahead waits while this much is unacknowledged: ends of utterances, or audio.
ENDS_AHEAD: Final = 4
AUDIO_AHEAD_MS: Final = 20_000


class AudioPacer:
    """A leaky bucket: sent audio fills it, time drains it."""

    def __init__(self) -> None:
        self._level_ms = 0.0
        self._at_ms = 0.0

    def record_sent(self, duration_ms: float, now_ms: float) -> None:
        """Record that audio of this length was sent."""
        self._level_ms = self._level(now_ms) + duration_ms
        self._at_ms = now_ms

    def wait_ms(self, ends: int, audio_ms: float, now_ms: float) -> float:
        """Return the wait if no more of the unacknowledged ends and audio is acknowledged, or 0."""
        if ends < ENDS_AHEAD and audio_ms < AUDIO_AHEAD_MS:
            return 0.0
        return max(0.0, self._level(now_ms) - BURST_MS)

    def _level(self, now_ms: float) -> float:
        return max(0.0, self._level_ms - (now_ms - self._at_ms))
