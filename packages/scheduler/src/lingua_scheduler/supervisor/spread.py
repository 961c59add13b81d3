"""Which worker gets a connection: the one with the fewest of its kind. Pure.

What a worker reports is a little old. Connections that it was given since its report count as well,
so that a burst is spread as evenly as single connections are.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lingua_scheduler.supervisor.messages import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

# Nodes are moved if the numbers of nodes of two workers differ by at least this.
UNEVEN = 2
# Reports that nodes must stay uneven for, before some are moved: others may just be coming back.
UNEVEN_REPORTS = 3
UNEVEN_REPORTS_MAX = 300


class ConnectionCount:
    """The open connections of one worker, by kind."""

    def __init__(self) -> None:
        self._reported = [0 for _ in KINDS]
        # Kinds of the connections that were given and are not in a report yet, oldest first.
        self._given: deque[int] = deque()
        self._taken = 0

    def give(self, kind: int) -> None:
        """Count a connection that was handed over."""
        self._given.append(kind)

    def take_back(self, kind: int) -> None:
        """Count no longer a connection that was handed over and not taken: one of the latest."""
        self._given.reverse()
        if kind in self._given:
            self._given.remove(kind)
        self._given.reverse()

    def report(self, taken: int, opened: Sequence[int]) -> None:
        """Use a report of the worker: `taken` so far, and what is open now."""
        for _ in range(min(taken - self._taken, len(self._given))):
            self._given.popleft()
        self._taken = taken
        self._reported = list(opened)

    def of(self, kind: int) -> int:
        """Return the number of connections of a kind."""
        return self._reported[kind] + self._given.count(kind)

    @property
    def total(self) -> int:
        """Return the number of all connections."""
        return sum(self._reported) + len(self._given)


def in_turn(counts: Sequence[ConnectionCount], kind: int, turn: int) -> list[int]:
    """Return the places of workers in the order in which they should get a connection.

    Workers with equal numbers get one after another: `turn` is the number of this connection.
    """

    def rank(place: int) -> tuple[int, int, int]:
        return counts[place].of(kind), counts[place].total, (place - turn) % len(counts)

    return sorted(range(len(counts)), key=rank)


class NodeBalance:
    """Decides when a worker must send nodes away: after siblings died or were restarted."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self._since = 0
        # How long to wait; longer after a move that did not help.
        self._patience = UNEVEN_REPORTS

    def surplus(self, nodes: Sequence[int]) -> tuple[int, int] | None:
        """Return which worker sends how many nodes away, or None; called once per second."""
        if max(nodes) - min(nodes) < UNEVEN:
            self._patience, self._since, self._seen = UNEVEN_REPORTS, 0, tuple(nodes)
            return None
        self._since = self._since + 1 if tuple(nodes) == self._seen else 1
        self._seen = tuple(nodes)
        if self._since < self._patience:
            return None
        self._since, self._patience = 0, min(2 * self._patience, UNEVEN_REPORTS_MAX)
        place = max(range(len(nodes)), key=nodes.__getitem__)
        share = -(-sum(nodes) // len(nodes))
        return place, max(1, nodes[place] - share)
