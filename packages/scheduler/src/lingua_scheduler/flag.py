"""A flag that coroutines can wait for, like `asyncio.Event` but small.

Every session has several, and almost nobody ever waits for one: an `asyncio.Event` takes 800 bytes
for a queue of waiters that stays empty.
"""

from __future__ import annotations

import asyncio


class Flag:
    """True or false; waiting ends when it is set, even if it is cleared right after that."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: tuple[asyncio.Future[None], ...] = ()

    def is_set(self) -> bool:
        """Tell whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and let everyone go on who waits for it."""
        self._is_set = True
        if self._waiters:
            waiters, self._waiters = self._waiters, ()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def clear(self) -> None:
        """Clear it: from now on one waits for it."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if self._is_set:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters += (waiter,)
        try:
            await waiter
        finally:
            self._waiters = tuple(other for other in self._waiters if other is not waiter)
