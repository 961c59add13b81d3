"""The clock of a cell (`lua/includes/clock.lua`): the server's time without its steps."""

from __future__ import annotations

from dataclasses import dataclass

# How old the clock's mark may get, and what a step counts as.
KEEP_MS = 250
# From where on it was no time in which anybody lived.
LEAP_MS = 3000


@dataclass(slots=True)
class CellClock:
    """Follows the server's time; `seen_ms` is None until the first look."""

    seen_ms: int | None = None
    offset_ms: int = 0

    def look(self, wall_ms: int) -> int:
        """Return the cell's time when the server's is this."""
        if self.seen_ms is None:
            self.seen_ms = wall_ms
        passed_ms = wall_ms - self.seen_ms
        if abs(passed_ms) > KEEP_MS:
            if not 0 <= passed_ms <= LEAP_MS:
                self.offset_ms += KEEP_MS - passed_ms
            self.seen_ms = wall_ms
        return wall_ms + self.offset_ms

    @property
    def text(self) -> str:
        """Return what the server holds."""
        return f"{self.seen_ms:013d} {self.offset_ms}"
