"""When a worker that ended is started again, and when that is given up. Pure: time is given."""

from __future__ import annotations

WITHIN_S = 60.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
# Starts in a row that fail before the worker was ready. Only if no sibling serves, they end the
# service: as long as one does, the cause may pass.
FAILED_STARTS_MAX = 8


class WorkerRestarts:
    """The ends of one worker."""

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._was_ever_ready = False
        self._failed_starts = 0

    def ready(self) -> None:
        """Note that it serves."""
        self._was_ever_ready, self._failed_starts = True, 0

    def ended(self, now: float, *, was_ready: bool) -> float:
        """Note that it ended by itself; return the pause before its next start, in seconds."""
        self._failed_starts += not was_ready
        self._ends = [end for end in self._ends if now - end < WITHIN_S]
        self._ends.append(now)
        if len(self._ends) == 1:
            return 0.0
        return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (len(self._ends) - 2)))

    def is_hopeless(self, *, has_siblings: bool) -> bool:
        """Tell whether the service ends because this worker cannot be started."""
        if not self._was_ever_ready:
            return self._failed_starts > 0
        return self._failed_starts >= FAILED_STARTS_MAX and not has_siblings
