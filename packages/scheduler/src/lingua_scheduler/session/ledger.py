"""The fate of every admitted millisecond of speech: delivered, silent, skipped, failed. Pure.

One ledger per session. An utterance counts once, for any number of languages, and only after all of
them ended; until then its time is open. All sums are whole milliseconds that add up exactly. Only
open utterances are kept. The store has the same sums (`includes/account.lua`), with which a later
owner continues.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from lingua_wire.shared import Coverage

# Reasons come from a short list; this only bounds the effect of an error elsewhere.
REASONS_MAX = 64
OTHER = "other"


Fate = Literal["delivered", "silent", "skipped", "failed"]

# The rank of a fate; of several languages the highest counts.
RANK: dict[Fate, int] = {"failed": 0, "skipped": 1, "silent": 2, "delivered": 3}


class _Open(msgspec.Struct, gc=False):
    """An utterance some of whose languages have no outcome yet."""

    duration_ms: int
    lanes: int
    # The lanes that ended, by name or "".
    ended: tuple[str, ...] = ()
    # The best fate of these, and its reason.
    best: Fate = "failed"
    reason: str = ""

    def end(self, fate: Fate, reason: str, ended: tuple[str, ...]) -> None:
        """Record the fate of a lane if it is the first or the best so far, and all that ended."""
        if not self.ended or RANK[fate] > RANK[self.best]:
            self.best, self.reason = fate, reason
        self.ended = ended


class CoverageLedger:
    """The account of one session's speech."""

    __slots__ = ("_admitted_ms", "_admitted_us", "_ms", "_open", "_reasons")

    def __init__(self) -> None:
        # All admitted time, exactly; fractions of milliseconds are carried over to the next
        # utterance instead of being lost by rounding.
        self._admitted_us = 0
        self._admitted_ms = 0
        # Ended time, by fate; a fate that nothing had is not in it.
        self._ms: dict[Fate, int] = {}
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
        return {fate: self._ms.get(fate, 0) for fate in RANK}

    def restore(self, ended: dict[Fate, int]) -> None:
        """Continue a former owner's account; `restore_open` adds its open utterances."""
        for fate, duration_ms in ended.items():
            self._end(fate, self._take(duration_ms))

    def restore_open(
        self, index: int, duration_ms: int, lanes: int, ended: tuple[str, ...], best: Fate
    ) -> None:
        """Add an open utterance of a former owner, with the languages that have ended."""
        self.admit(index, duration_ms, lanes)
        self._open[index].ended, self._open[index].best = ended, best

    def admit(self, index: int, duration_ms: float, lanes: int = 1) -> None:
        """Open the account of an utterance for a number of languages."""
        assert index not in self._open, f"utterance {index} is open already"
        assert lanes > 0, "an utterance nobody wants is settled as skipped, in one lane"
        self._open[index] = _Open(self._take(duration_ms), lanes)

    def silent(self, duration_ms: float) -> None:
        """Account for silence without an utterance: admitted and ended at once."""
        self._end("silent", self._take(duration_ms))

    def settle(self, index: int, fate: Fate, reason: str = "", lane: str = "") -> Fate | None:
        """End an utterance in one lane; return its fate if that ended it as a whole.

        A repetition for an utterance or a named lane changes nothing. Without a name each call is
        the end of another lane, and the caller must make it only once per lane.
        """
        utterance = self._open.get(index)
        if utterance is None:
            return None
        if utterance.lanes > 1:
            if lane and lane in utterance.ended:
                return None
            utterance.end(fate, reason, (*utterance.ended, lane))
            if len(utterance.ended) < utterance.lanes:
                return None
            fate, reason = utterance.best, utterance.reason
        self._close(index, utterance.duration_ms, fate, reason)
        return fate

    def settle_rest(self, fate: Fate, reason: str) -> int:
        """End every open utterance, each with its best fate so far; return their number."""
        count = len(self._open)
        for index, utterance in list(self._open.items()):
            utterance.end(fate, reason, utterance.ended)
            self._close(index, utterance.duration_ms, utterance.best, utterance.reason)
        return count

    def summary(self) -> Coverage:
        """Return the sums; admitted time in none of the four is open."""
        return Coverage(
            admitted_ms=self._admitted_ms,
            delivered_ms=self._ms.get("delivered", 0),
            silent_ms=self._ms.get("silent", 0),
            failed_ms=self._ms.get("failed", 0),
            skipped_ms=self._ms.get("skipped", 0),
        )

    def reasons(self) -> dict[tuple[Fate, str], int]:
        """Return the ended milliseconds by fate and reason, if a reason was given."""
        return dict(self._reasons)

    def _take(self, duration_ms: float) -> int:
        """Admit a duration and return its share in whole milliseconds."""
        assert duration_ms >= 0, "speech has no negative length"
        self._admitted_us += round(duration_ms * 1000)
        before_ms = self._admitted_ms
        self._admitted_ms = (self._admitted_us + 500) // 1000
        return self._admitted_ms - before_ms

    def _end(self, fate: Fate, duration_ms: int) -> None:
        self._ms[fate] = self._ms.get(fate, 0) + duration_ms

    def _close(self, index: int, duration_ms: int, fate: Fate, reason: str) -> None:
        del self._open[index]
        reasons = self._reasons
        self._ms[fate] = self._ms.get(fate, 0) + duration_ms
        if reason:
            key = (fate, reason)
            if key not in reasons and len(reasons) >= REASONS_MAX:
                key = (fate, OTHER)
            reasons[key] = reasons.get(key, 0) + duration_ms
