"""One recognition shared by all jobs of the same speech.

In a room the same utterance arrives once for each target language. The first job starts the
recognition and the others wait for it; the answer is kept briefly for later jobs and for retries.
The number and age of entries are bounded. An error is raised in all waiting jobs and not kept. A
cancelled job does not stop the others; when the last one is cancelled, the recognition stops.
"""

from __future__ import annotations

import asyncio
import hashlib
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_speech.engine import Hint, Sound, Transcript

    OnPartial = Callable[[str], None]
    # Recognises speech and reports partial texts.
    Recognise = Callable[[OnPartial], Awaitable[Transcript]]

ENTRIES_MAX: Final = 256
AGE_S: Final = 20.0


def key_of(scope: str, sound: Sound, hint: Hint) -> bytes:
    """Return a key that identifies the same speech with the same hint in one session."""
    digest = hashlib.blake2b(sound.pcm, digest_size=16)
    digest.update(msgspec.msgpack.encode((scope, sound.sample_rate, hint)))
    return digest.digest()


class Recognition:
    """A recognition in progress or done."""

    __slots__ = ("_listeners", "_task", "at", "latest", "waiting")

    def __init__(self, recognise: Recognise, at: float) -> None:
        # When it started.
        self.at = at
        # The text so far, and the listeners for it.
        self.latest = ""
        self._listeners: set[OnPartial] = set()
        # Number of jobs that wait for it.
        self.waiting = 0
        self._task = asyncio.ensure_future(recognise(self._report))

    @property
    def is_usable(self) -> bool:
        """Tell whether another job may wait for it: it has not failed and is not cancelled."""
        task = self._task
        if not task.done():
            return not task.cancelling()
        return not task.cancelled() and task.exception() is None

    @property
    def is_idle(self) -> bool:
        """Tell whether it has ended and no job waits for it."""
        return self._task.done() and not self.waiting

    async def wait(self, on_partial: OnPartial | None) -> Transcript:
        """Wait for the transcript; partial texts are reported meanwhile."""
        self.waiting += 1
        if on_partial is not None:
            self._listeners.add(on_partial)
            if self.latest and not self._task.done():
                on_partial(self.latest)
        try:
            return await asyncio.shield(self._task)
        finally:
            self.waiting -= 1
            if on_partial is not None:
                self._listeners.discard(on_partial)
            if not self.waiting and not self._task.done():
                await self._stop()

    def _report(self, text: str) -> None:
        self.latest = text
        for listener in tuple(self._listeners):
            listener(text)

    async def _stop(self) -> None:
        # Wait, so that a cancelled job has really ended when it reports that.
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            # Retrieve the error: no job waits for it any more.
            self._task.exception()


class SharedRecognitions:
    """The current and recent recognitions of one node."""

    def __init__(
        self,
        *,
        entries_max: int = ENTRIES_MAX,
        age_s: float = AGE_S,
        clock: Callable[[], float] = monotonic,
        on_shared: Callable[[], object] = bool,
    ) -> None:
        self._entries_max = entries_max
        self._age_s = age_s
        self._clock = clock
        # By key, the oldest first.
        self._entries: dict[bytes, Recognition] = {}
        # Called each time an answer serves one more job.
        self._on_shared = on_shared

    def __len__(self) -> int:
        return len(self._entries)

    async def recognise(
        self, key: bytes, recognise: Recognise, on_partial: OnPartial | None = None
    ) -> Transcript:
        """Return the transcript, from this call or an earlier one with the same key."""
        self._expire()
        entry = self._entries.get(key)
        if entry is not None and entry.is_usable:
            self._on_shared()
        else:
            entry = Recognition(recognise, self._clock())
            self._entries.pop(key, None)
            self._entries[key] = entry
        try:
            return await entry.wait(on_partial)
        finally:
            if not entry.is_usable and self._entries.get(key) is entry:
                del self._entries[key]

    def _expire(self) -> None:
        """Drop old entries, and the oldest beyond the limit; waiting jobs are not affected."""
        oldest = self._clock() - self._age_s
        for key, entry in tuple(self._entries.items()):
            too_many = len(self._entries) >= self._entries_max
            if not too_many and entry.at > oldest:
                break
            if entry.is_idle or too_many:
                del self._entries[key]
