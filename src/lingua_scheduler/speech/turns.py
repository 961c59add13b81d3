"""What was said before in the same turn: the memory that joins the slices of long speech.

Long speech comes as several jobs of one turn. Each slice is recognised knowing the text of the one
before it, so it waits for that one's recognition, though not for ever. The memory is bounded in
turns and in age; a turn that has ended is kept a little for its other languages. Nothing here
recognises anything: the pipeline does, and tells what it heard.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

TURNS_MAX: Final = 512
# After this long without a slice a turn is forgotten.
AGE_S: Final = 60.0
# The languages of one utterance come within moments of each other.
ENDED_AGE_S: Final = 10.0
SLICES_MAX: Final = 4


class Slice:
    """One slice of a turn: what was heard in it, once that is known."""

    __slots__ = ("_lanes", "known", "text")

    def __init__(self) -> None:
        # Set when its recognition has ended, well or not.
        self.known = asyncio.Event()
        self.text = ""
        # Jobs that work on it; the last to give up without a text lets the others go on.
        self._lanes = 0

    def enter(self) -> None:
        """Count a job that works on it."""
        self._lanes += 1

    def leave(self, text: str | None) -> None:
        """Take what a job heard; None if it heard nothing because it failed or was cancelled."""
        self._lanes -= 1
        if text is not None:
            self.text = text
        if text is not None or not self._lanes:
            self.known.set()


class Turn:
    """One turn: its latest slices by the index of their utterance."""

    __slots__ = ("expires_at", "slices")

    def __init__(self) -> None:
        self.slices: dict[int, Slice] = {}
        self.expires_at = 0.0

    def before(self, index: int) -> Slice | None:
        """Return the slice that came before an utterance, or None."""
        earlier = [number for number in self.slices if number < index]
        return self.slices[max(earlier)] if earlier else None


class Turns:
    """The turns under way on this node."""

    def __init__(self, *, turns_max: int = TURNS_MAX, clock: Callable[[], float] = monotonic):
        self._turns_max = turns_max
        self._clock = clock
        # Turn id -> turn, the longest unused first.
        self._turns: dict[str, Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def enter(self, turn_id: str | None, index: int, *, goes_on: bool) -> Place:
        """Take a job's place in its turn; in the order in which jobs come."""
        now = self._clock()
        self._forget(now)
        if not turn_id:
            return Place(Slice(), None)
        turn = self._turns.pop(turn_id, None) or Turn()
        self._turns[turn_id] = turn
        turn.expires_at = now + (AGE_S if goes_on else ENDED_AGE_S)
        before = turn.before(index)
        mine = turn.slices.setdefault(index, Slice())
        while len(turn.slices) > SLICES_MAX:
            del turn.slices[min(turn.slices)]
        return Place(mine, before)

    def _forget(self, now: float) -> None:
        """Drop what is too old, and the longest unused beyond the bound."""
        stale = [name for name, turn in self._turns.items() if turn.expires_at <= now]
        for name in stale:
            del self._turns[name]
        while len(self._turns) >= self._turns_max:
            del self._turns[next(iter(self._turns))]


class Place:
    """A job's place in its turn: its own slice and the one before."""

    __slots__ = ("_before", "_is_left", "_mine")

    def __init__(self, mine: Slice, before: Slice | None) -> None:
        self._mine = mine
        self._before = before
        self._is_left = False
        mine.enter()

    async def context(self, wait_s: float) -> str | None:
        """Return what the slice before said, waiting for it a while; None if there is none."""
        if self._before is None:
            return None
        try:
            async with asyncio.timeout(wait_s):
                await self._before.known.wait()
        except TimeoutError:
            return None
        return self._before.text or None

    def leave(self, text: str | None = None) -> None:
        """Say what was heard here, or that nothing will be; only the first word counts."""
        if not self._is_left:
            self._is_left = True
            self._mine.leave(text)
