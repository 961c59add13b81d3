"""The findings that every checker of outcomes has in common, and the rules of their sequence.

Each utterance must have exactly one outcome per language, in order, at positions without a gap.
`checker.py` applies this to marked audio, `speech/chaos_report.py` to real speech.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable


@dataclass(slots=True)
class OutcomeFindings:
    """What the histories of clients show."""

    utterances: int = 0
    outcomes: int = 0
    lost: int = 0
    duplicates: int = 0
    inversions: int = 0
    # Positions of outcomes that were left out or repeated.
    gaps: int = 0
    # Outcomes of other audio, in another language, or of no utterance.
    wrong: int = 0
    # Outcomes without a translation, by reason.
    missing: Counter[str] = field(default_factory=Counter)
    # Errors and other notices that clients received.
    told: Counter[str] = field(default_factory=Counter)
    # Clients that did not end as they should, by reason.
    broken: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    # Faults that met utterances in progress, and these utterances.
    hits: int = 0
    affected: int = 0
    affected_p50_s: float = 0.0
    resumes: int = 0

    @property
    def kills(self) -> int:
        """Return how many processes were killed."""
        return sum(count for kind, count in self.faults.items() if "kill" in kind)

    def counted_violations(self, names: Iterable[str]) -> list[str]:
        """Return the named counts that are not 0, and the clients that broke."""
        found = [f"{name}: {getattr(self, name)}" for name in names if getattr(self, name)]
        return found + [f"a speaker broke: {why} ({count})" for why, count in self.broken.items()]


class OutcomeSequence:
    """Follows the outcomes of clients and counts what is out of order or out of place."""

    def __init__(self, findings: OutcomeFindings) -> None:
        self._findings = findings
        # Lane -> the newest utterance that had an outcome.
        self._newest: dict[Hashable, int] = {}
        # Session -> epoch and position of its last outcome.
        self._positions: dict[Hashable, tuple[str, int]] = {}

    def follow_position(self, session: Hashable, epoch: str, seq: int) -> bool:
        """Compare a position with the last one; return whether a new epoch begins with it."""
        last_epoch, last_seq = self._positions.get(session, (epoch, 0))
        is_new = last_epoch != epoch
        self._findings.gaps += seq != (1 if is_new else last_seq + 1)
        self._positions[session] = (epoch, seq)
        return is_new

    def follow_order(self, lane: Hashable, number: int) -> None:
        """Compare an utterance with the newest one of its lane."""
        newest = self._newest.get(lane, -1)
        self._findings.inversions += number < newest
        self._newest[lane] = max(number, newest)
