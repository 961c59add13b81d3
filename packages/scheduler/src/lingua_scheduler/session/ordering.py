"""Releases outcomes in the order of utterances. Pure; the reference of `lane_release`.

A lane is one speaker into one language. Every index from the first is released exactly once: with
its outcome, or with an explicit `missing`. Indices that no listener wanted in this language (a
declared range) are skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FILL_AHEAD_MAX = 256


@dataclass(slots=True)
class LaneEntry:
    """An admitted index: live while `outcome` is None."""

    job: str
    put_ms: int
    outcome: tuple[str, str] | None = None


@dataclass(slots=True)
class Lane:
    """The order of one speaker's outcomes in one language."""

    next_index: int = 0
    entries: dict[int, LaneEntry] = field(default_factory=dict)
    # Unwanted half-open ranges.
    unwanted: list[tuple[int, int]] = field(default_factory=list)

    def refuses(self, index: int, unwanted_from: int, window: int) -> str | None:
        """Return why an index is refused, or None; at most `window` may be in progress."""
        if index < self.next_index:
            return "INDEX_RELEASED"
        reach = unwanted_from if 0 <= unwanted_from < index else index
        if reach >= self.next_index + window:
            return "IN_FLIGHT_LIMIT"
        if index in self.entries:
            return "INDEX_TAKEN"
        if self._is_unwanted(index):
            return "INDEX_RELEASED"
        return "INDEX_TAKEN" if any(reach <= known < index for known in self.entries) else None

    def admit(self, index: int, job: str, now_ms: int, unwanted_from: int = -1) -> None:
        """Reserve an index for a job."""
        if 0 <= unwanted_from < index:
            if unwanted_from <= self.next_index:
                self.next_index = index
            else:
                self.unwanted.append((unwanted_from, index))
        self.entries[index] = LaneEntry(job, now_ms)

    def fill_holes(self, now_ms: int, gap_ms: int) -> list[int]:
        """Give an explicit `missing` to every hole whose time has expired."""
        due = [hole for hole in self.holes() if self.waits_since(hole) + gap_ms <= now_ms]
        since = {hole: self.waits_since(hole) for hole in due}
        for hole in due:
            self.entries[hole] = LaneEntry("-", since[hole], ("missing", "gap_timeout"))
        return due

    def waits_since(self, hole: int) -> int:
        """Return when the first index above a hole arrived, which started its timeout."""
        return min(entry.put_ms for index, entry in self.entries.items() if index > hole)

    def fill_all(self, now_ms: int, reason: str) -> None:
        """Give an explicit `missing` to every hole: the session ends."""
        for hole in self.holes():
            self.entries[hole] = LaneEntry("-", now_ms, ("missing", reason))

    def holes(self) -> list[int]:
        """Return the unoccupied indices that later ones wait for."""
        above = max(self.entries, default=self.next_index)
        return [
            index
            for index in range(self.next_index, above)
            if index not in self.entries and not self._is_unwanted(index)
        ]

    def release(self) -> list[tuple[int, LaneEntry]]:
        """Remove and return every outcome whose predecessors were all released."""
        released = []
        while True:
            entry = self.entries.get(self.next_index)
            if entry is not None and entry.outcome is not None:
                released.append((self.next_index, self.entries.pop(self.next_index)))
                self.next_index += 1
            elif entry is None and self._is_unwanted(self.next_index):
                span = next(s for s in self.unwanted if s[0] <= self.next_index < s[1])
                self.unwanted.remove(span)
                self.next_index = span[1]
            else:
                return released

    def _is_unwanted(self, index: int) -> bool:
        return any(start <= index < stop for start, stop in self.unwanted)
