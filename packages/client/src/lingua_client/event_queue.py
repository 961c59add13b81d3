"""Events between the socket and their reader: bounded, so that a slow reader pauses the socket."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from lingua_client.events import Partial

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_client.events import Event
    from lingua_wire.errors import LinguaError


class EventQueue:
    """A queue that reports when it is full and when it has room again; it ends, or fails, once."""

    def __init__(
        self,
        count_max: int,
        bytes_max: int,
        on_full: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._on_full = on_full
        self._on_room = on_room
        self._events: deque[tuple[Event, int]] = deque()
        self._size = 0
        self.is_full = False
        # The session is closing: the bound no longer applies to the events still to come.
        self._is_unbounded = False
        self._is_ended = False
        self._error: LinguaError | None = None
        self._changed = asyncio.Event()

    def put(self, event: Event, size: int = 0) -> None:
        """Add an event; it is never refused, but a full queue pauses the socket."""
        self._events.append((event, size))
        self._size += size
        self._changed.set()
        if not self.is_full and not self._is_unbounded and self._is_over(1):
            self.is_full = True
            self._on_full()

    def put_newest(self, event: Partial, size: int = 0) -> None:
        """Add a partial text, in place of an unread one of the same utterance at the end."""
        last = self._events[-1][0] if self._events else None
        if isinstance(last, Partial) and is_same_utterance(last, event):
            self._size -= self._events.pop()[1]
        self.put(event, size)

    async def get(self) -> Event | None:
        """Return the next event, or None at the end; raise the error that ended the session."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        event, size = self._events.popleft()
        self._size -= size
        if self.is_full and not self._is_over(2):
            self._report_room()
        return event

    def lift_bound(self) -> None:
        """Accept all further events: a closing session may be read only after its end."""
        self._is_unbounded = True
        if self.is_full:
            self._report_room()

    def end(self, error: LinguaError | None = None) -> None:
        """End the queue; events that are in it can still be read."""
        self._is_ended = True
        self._error = self._error or error
        self._changed.set()

    def _is_over(self, part: int) -> bool:
        full_count, full_size = self._count_max // part, self._bytes_max // part
        return len(self._events) >= max(1, full_count) or self._size >= max(1, full_size)

    def _report_room(self) -> None:
        self.is_full = False
        self._on_room()


def is_same_utterance(first: Partial, second: Partial) -> bool:
    """Tell whether two partial texts are of one utterance of one speaker."""
    return (first.speaker, first.utterance_index) == (second.speaker, second.utterance_index)
