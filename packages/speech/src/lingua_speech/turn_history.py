"""The recent slices of each turn, which join the pieces of long speech.

Long speech arrives as several jobs of one turn. The recognition of a slice uses the text of the
slice before it, and waits a limited time for it. The history is bounded in turns and in age; a turn
that has ended is kept briefly for the jobs of its other languages. Recognition itself is the job
of the pipeline.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS_MAX: Final = 512
# A turn without a new slice for this long is dropped.
AGE_S: Final = 60.0
# The jobs of one utterance, one for each language, arrive within moments of each other.
ENDED_AGE_S: Final = 10.0
SLICES_MAX: Final = 4


class TurnSlice:
    """One slice of a turn, and its text once that is known."""

    __slots__ = ("_jobs", "known", "text")

    def __init__(self) -> None:
        # Set when its recognition has ended, with or without success.
        self.known = asyncio.Event()
        self.text = ""
        # Number of jobs that work on it; if the last one fails, the following slices continue.
        self._jobs = 0

    def add_job(self) -> None:
        """Count a job that works on this slice."""
        self._jobs += 1

    def end_job(self, text: str | None) -> None:
        """Store the text that a job recognised; None if it failed or was cancelled."""
        self._jobs -= 1
        if text is not None:
            self.text = text
        if text is not None or not self._jobs:
            self.known.set()


class TurnSlices:
    """The latest slices of one turn, by utterance index."""

    __slots__ = ("by_index", "expires_at")

    def __init__(self) -> None:
        self.by_index: dict[int, TurnSlice] = {}
        self.expires_at = 0.0

    def before(self, index: int) -> TurnSlice | None:
        """Return the slice before an utterance, or None."""
        earlier = [number for number in self.by_index if number < index]
        return self.by_index[max(earlier)] if earlier else None


class TurnHistory:
    """The current turns of this node."""

    def __init__(self, *, turns_max: int = TURNS_MAX, clock: Callable[[], float] = monotonic):
        self._turns_max = turns_max
        self._clock = clock
        # By turn id, the least recently used first.
        self._turns: dict[str, TurnSlices] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, turn_id: str | None, index: int, *, continues: bool) -> SlicePosition:
        """Add a job to its turn; to be called in the order in which jobs arrive.

        `continues`: the turn has further slices after this one.
        """
        now = self._clock()
        self._expire(now)
        if not turn_id:
            return SlicePosition(TurnSlice(), None)
        turn = self._turns.pop(turn_id, None) or TurnSlices()
        self._turns[turn_id] = turn
        turn.expires_at = now + (AGE_S if continues else ENDED_AGE_S)
        before = turn.before(index)
        own = turn.by_index.setdefault(index, TurnSlice())
        while len(turn.by_index) > SLICES_MAX:
            del turn.by_index[min(turn.by_index)]
        return SlicePosition(own, before)

    def _expire(self, now: float) -> None:
        """Drop expired turns, and the least recently used beyond the limit."""
        expired = [turn_id for turn_id, turn in self._turns.items() if turn.expires_at <= now]
        for turn_id in expired:
            del self._turns[turn_id]
        while len(self._turns) >= self._turns_max:
            del self._turns[next(iter(self._turns))]


class SlicePosition:
    """The position of a job in its turn: its own slice and the one before."""

    __slots__ = ("_before", "_is_left", "_own")

    def __init__(self, own: TurnSlice, before: TurnSlice | None) -> None:
        self._own = own
        self._before = before
        self._is_left = False
        own.add_job()

    async def previous_text(self, wait_s: float) -> str | None:
        """Return the text of the slice before, waiting for it up to a limit; None without one."""
        if self._before is None:
            return None
        try:
            async with asyncio.timeout(wait_s):
                await self._before.known.wait()
        except TimeoutError:
            return None
        return self._before.text or None

    def leave(self, text: str | None = None) -> None:
        """Publish the text of this slice, None if it has none; only the first call counts."""
        if not self._is_left:
            self._is_left = True
            self._own.end_job(text)
