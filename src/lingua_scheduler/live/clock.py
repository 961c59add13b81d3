"""The two clocks of an instance: one that only goes forward, one that people read."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now_ms(self) -> float:
        """Return milliseconds that never go back, for every duration."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for what is shown or compared with others' clocks."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> float:
        """Return milliseconds that never go back."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(time.time() * 1000)
