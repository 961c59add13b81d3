"""Events between the socket and their reader: bounded, so that a slow reader stops the socket."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.client.events import Event
    from lingua_scheduler.errors import LinguaError


class Mailbox:
    """A queue that says when it is full and when it has room again; it ends, or fails, once."""

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
        # Nothing more comes than what is still under way: let it in.
        self._is_last_call = False
        self._is_ended = False
        self._error: LinguaError | None = None
        self._news = asyncio.Event()

    def put(self, event: Event, size: int = 0) -> None:
        """Add an event; never refused, but the socket is stopped when it is too much."""
        self._events.append((event, size))
        self._size += size
        self._news.set()
        if not self.is_full and not self._is_last_call and self._is_over(1):
            self.is_full = True
            self._on_full()

    async def get(self) -> Event | None:
        """Return the next event, or None at the end; raise what the session failed with."""
        while not self._events:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return None
            self._news.clear()
            await self._news.wait()
        event, size = self._events.popleft()
        self._size -= size
        if self.is_full and not self._is_over(2):
            self._make_room()
        return event

    def last_call(self) -> None:
        """Take in what is still under way, though nobody may read before all of it came."""
        self._is_last_call = True
        if self.is_full:
            self._make_room()

    def end(self, error: LinguaError | None = None) -> None:
        """Nothing comes any more; what is here can still be read."""
        self._is_ended = True
        self._error = self._error or error
        self._news.set()

    def _is_over(self, part: int) -> bool:
        full_count, full_size = self._count_max // part, self._bytes_max // part
        return len(self._events) >= max(1, full_count) or self._size >= max(1, full_size)

    def _make_room(self) -> None:
        self.is_full = False
        self._on_room()
