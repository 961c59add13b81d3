"""What became of every admitted millisecond of speech: delivered, silent, skipped, failed. Pure.

One ledger per session. An utterance counts once, whatever the number of languages it goes into,
and only when all of them ended; until then its time is open. All sums are whole milliseconds that
add up exactly. It keeps the utterances that are open and nothing of those that ended. The store
keeps the same sums with the session (`includes/account.lua`), from which a later owner goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lingua_scheduler.messages.shared import Coverage

# Reasons come from a short list; this only bounds what a mistake elsewhere could cost.
REASONS_MAX = 64
OTHER = "other"


Fate = Literal["delivered", "silent", "skipped", "failed"]

# How speech ended; of several languages the largest counts.
RANK: dict[Fate, int] = {"failed": 0, "skipped": 1, "silent": 2, "delivered": 3}


@dataclass(slots=True)
class _Open:
    """An utterance some of whose languages have no outcome yet."""

    duration_ms: int
    lanes: int
    # The lanes that ended, by name or "".
    ended: tuple[str, ...] = ()
    # The best end of these, and its reason.
    best: Fate = "failed"
    reason: str = ""

    def end(self, fate: Fate, reason: str) -> None:
        """Let a lane's end count if it is the first or the best so far."""
        if not self.ended or RANK[fate] > RANK[self.best]:
            self.best, self.reason = fate, reason


class CoverageLedger:
    """The account of one session's speech."""

    __slots__ = ("_admitted_ms", "_admitted_us", "_ms", "_open", "_reasons")

    def __init__(self) -> None:
        # Everything admitted, exactly; whole milliseconds are handed out of it, so that
        # fractions are carried over to the next utterance instead of being rounded away.
        self._admitted_us = 0
        self._admitted_ms = 0
        # Ended time, by fate.
        self._ms: dict[Fate, int] = dict.fromkeys(RANK, 0)
        # By utterance index.
        self._open: dict[int, _Open] = {}
        # Ended time that has a reason.
        self._reasons: dict[tuple[Fate, str], int] = {}

    @property
    def open_ms(self) -> int:
        """Return the admitted time that has not ended yet."""
        return self._admitted_ms - sum(self._ms.values())

    @property
    def open_utterances(self) -> int:
        """Return how many utterances have not ended yet."""
        return len(self._open)

    @property
    def ended(self) -> dict[Fate, int]:
        """Return the ended time by fate."""
        return dict(self._ms)

    def go_on(self, ended: dict[Fate, int]) -> None:
        """Take up a former owner's account; `go_on_with` adds what is open in it."""
        for fate, duration_ms in ended.items():
            self._ms[fate] += self._take(duration_ms)

    def go_on_with(
        self, index: int, duration_ms: int, lanes: int, ended: tuple[str, ...], best: Fate
    ) -> None:
        """Take up an utterance of a former owner that ended in some languages, or in none."""
        self.admit(index, duration_ms, lanes)
        self._open[index].ended, self._open[index].best = ended, best

    def admit(self, index: int, duration_ms: float, lanes: int = 1) -> None:
        """Open the account of an utterance that goes into so many languages."""
        assert index not in self._open, f"utterance {index} is open already"
        assert lanes > 0, "an utterance nobody wants is settled as skipped, in one lane"
        self._open[index] = _Open(self._take(duration_ms), lanes)

    def silent(self, duration_ms: float) -> None:
        """Account for silence that became no utterance: admitted and ended at once."""
        self._ms["silent"] += self._take(duration_ms)

    def settle(self, index: int, fate: Fate, reason: str = "", lane: str = "") -> Fate | None:
        """End an utterance in one lane; return its fate if that ended it as a whole.

        Ending an utterance or a named lane again changes nothing. Without a name each call is
        another lane's end, and it is the caller who makes it only once per lane.
        """
        utterance = self._open.get(index)
        if utterance is None:
            return None
        if lane and lane in utterance.ended:
            return None
        utterance.end(fate, reason)
        utterance.ended += (lane,)
        if len(utterance.ended) < utterance.lanes:
            return None
        self._close(index, utterance)
        return utterance.best

    def settle_rest(self, fate: Fate, reason: str) -> int:
        """End every open utterance, each with its best lane so far; return how many there were."""
        count = len(self._open)
        for index, utterance in list(self._open.items()):
            utterance.end(fate, reason)
            self._close(index, utterance)
        return count

    def summary(self) -> Coverage:
        """Return the sums; what is admitted and in none of the four is open."""
        return Coverage(
            admitted_ms=self._admitted_ms,
            delivered_ms=self._ms["delivered"],
            silent_ms=self._ms["silent"],
            failed_ms=self._ms["failed"],
            skipped_ms=self._ms["skipped"],
        )

    def reasons(self) -> dict[tuple[Fate, str], int]:
        """Return the ended milliseconds by fate and reason, where a reason was given."""
        return dict(self._reasons)

    def _take(self, duration_ms: float) -> int:
        """Admit a duration and return the whole milliseconds that are its share."""
        assert duration_ms >= 0, "speech has no negative length"
        self._admitted_us += round(duration_ms * 1000)
        before_ms = self._admitted_ms
        self._admitted_ms = (self._admitted_us + 500) // 1000
        return self._admitted_ms - before_ms

    def _close(self, index: int, utterance: _Open) -> None:
        del self._open[index]
        self._ms[utterance.best] += utterance.duration_ms
        if utterance.reason:
            key = (utterance.best, utterance.reason)
            if key not in self._reasons and len(self._reasons) >= REASONS_MAX:
                key = (utterance.best, OTHER)
            self._reasons[key] = self._reasons.get(key, 0) + utterance.duration_ms
