"""One recognition for everybody who wants the same speech in another language.

In a room the same utterance comes once for each language. The first job starts the recognition, the
others wait for it; the answer is kept a little for those that come later, or again after a failure
further on. Bounded in number and age. An error is told to those who wait and kept for nobody; who
gives up waiting stops nobody else, and the last one who does stops the work.
"""

from __future__ import annotations

import asyncio
import hashlib
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.speech.engine import Heard, Hint, Sound

    Tell = Callable[[str], None]
    # Recognises, telling what is known so far.
    Recognise = Callable[[Tell], Awaitable[Heard]]

ENTRIES_MAX: Final = 256
AGE_S: Final = 20.0


def key_of(scope: str, sound: Sound, hint: Hint) -> bytes:
    """Return what is the same for the same speech of the same session, and for nothing else."""
    digest = hashlib.blake2b(sound.pcm, digest_size=16)
    digest.update(msgspec.msgpack.encode((scope, sound.sample_rate, hint)))
    return digest.digest()


class Flight:
    """A recognition under way or done."""

    __slots__ = ("_listeners", "_task", "at", "latest", "waiting")

    def __init__(self, recognise: Recognise, at: float) -> None:
        # When it began.
        self.at = at
        # What is known so far, and who is told.
        self.latest = ""
        self._listeners: set[Tell] = set()
        # How many wait for it.
        self.waiting = 0
        self._task = asyncio.ensure_future(recognise(self._tell))

    @property
    def is_usable(self) -> bool:
        """Tell whether one more may wait for it: it did not fail and was not given up."""
        task = self._task
        if not task.done():
            return not task.cancelling()
        return not task.cancelled() and task.exception() is None

    @property
    def is_idle(self) -> bool:
        """Tell whether it is over and nobody needs it."""
        return self._task.done() and not self.waiting

    async def wait(self, tell: Tell | None) -> Heard:
        """Wait for the answer, being told of what is known so far."""
        self.waiting += 1
        if tell is not None:
            self._listeners.add(tell)
            if self.latest and not self._task.done():
                tell(self.latest)
        try:
            return await asyncio.shield(self._task)
        finally:
            self.waiting -= 1
            if tell is not None:
                self._listeners.discard(tell)
            if not self.waiting and not self._task.done():
                await self._stop()

    def _tell(self, text: str) -> None:
        self.latest = text
        for listener in tuple(self._listeners):
            listener(text)

    async def _stop(self) -> None:
        # Waited for, so that a cancelled job has really ended when it says so.
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            # Nobody is left to be told how it ended.
            self._task.exception()


class Recognitions:
    """The recognitions of one node, under way and recent."""

    def __init__(
        self, *, entries_max: int = ENTRIES_MAX, age_s: float = AGE_S,
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self._entries_max = entries_max
        self._age_s = age_s
        self._clock = clock
        # By key, the oldest first.
        self._flights: dict[bytes, Flight] = {}
        # How often an answer was shared.
        self.shared = 0

    def __len__(self) -> int:
        return len(self._flights)

    async def hear(self, key: bytes, recognise: Recognise, tell: Tell | None = None) -> Heard:
        """Return what is heard, by this call or by one that began before it."""
        self._forget()
        flight = self._flights.get(key)
        if flight is not None and flight.is_usable:
            self.shared += 1
        else:
            flight = Flight(recognise, self._clock())
            self._flights.pop(key, None)
            self._flights[key] = flight
        try:
            return await flight.wait(tell)
        finally:
            if not flight.is_usable and self._flights.get(key) is flight:
                del self._flights[key]

    def _forget(self) -> None:
        """Drop what is too old, and the oldest beyond the bound; who waits still gets it."""
        oldest = self._clock() - self._age_s
        for key, flight in tuple(self._flights.items()):
            too_many = len(self._flights) >= self._entries_max
            if not too_many and flight.at > oldest:
                break
            if flight.is_idle or too_many:
                del self._flights[key]
