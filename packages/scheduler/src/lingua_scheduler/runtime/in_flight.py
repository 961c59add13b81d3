"""Utterances in the store that wait for outcomes: how many there may be, and since when. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class InFlightWindow:
    """The utterances of a session between the store and their outcomes."""

    __slots__ = ("_in_flight_max", "open", "waiting_since_ms")

    def __init__(self, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        # Index -> lanes still open.
        self.open: dict[int, int] = {}
        # Since when any lane is open.
        self.waiting_since_ms = 0.0

    def __len__(self) -> int:
        return len(self.open)

    def restore(self, indices: Iterable[int], now_ms: float) -> None:
        """Continue where a former owner stopped: one index for each open lane."""
        for index in indices:
            self.open[index] = self.open.get(index, 0) + 1
        if self.open:
            self.waiting_since_ms = now_ms

    def admits(self, index: int) -> bool:
        """Tell whether an index may be submitted."""
        return not self.open or index - min(self.open) < self._in_flight_max

    def add(self, index: int, lanes: int, now_ms: float) -> None:
        """Add an utterance that is submitted."""
        if not self.open:
            self.waiting_since_ms = now_ms
        self.open[index] = lanes

    def settle(self, index: int) -> bool | None:
        """Note the outcome of one lane: True if it was the last one, None if none was open."""
        left = self.open.get(index)
        if left is None:
            return None
        if left > 1:
            self.open[index] = left - 1
            return False
        del self.open[index]
        return True
