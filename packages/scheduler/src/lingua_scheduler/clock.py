"""The two clocks of an instance: a monotonic one, and the wall clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The source of time."""

    def now_ms(self) -> float:
        """Return monotonic milliseconds, for every duration."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, for display and comparison with other machines."""


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> float:
        """Return monotonic milliseconds."""
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        """Return milliseconds since 1970."""
        return int(time.time() * 1000)
