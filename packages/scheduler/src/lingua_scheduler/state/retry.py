"""Steps that are repeated until the store takes them, and whether any step waits for it now.

Every step of the store may be repeated. One `StoreRetry` per instance, because all its sessions
report an unavailable store to their clients in the same way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

# How soon a step that met an unavailable store is repeated, at first and at most.
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0


class StoreRetry:
    """Repeats steps while the store is unavailable."""

    def __init__(self) -> None:
        # Steps that wait for the store now.
        self._waiting = 0

    @property
    def is_store_available(self) -> bool:
        """Tell whether no step waits for the store."""
        return not self._waiting

    async def until_stored(
        self, step: Callable[[], Awaitable[T]], on_failure: Callable[[], None] | None = None
    ) -> T:
        """Repeat a step until the store answers; `on_failure` is called after each failed try."""
        delay_s, has_failed = RETRY_FIRST_S, False
        try:
            while True:
                try:
                    return await step()
                except StoreUnavailable:
                    if not has_failed:
                        has_failed = True
                        self._waiting += 1
                    if on_failure is not None:
                        on_failure()
                    await asyncio.sleep(delay_s)
                    delay_s = min(2 * delay_s, RETRY_MAX_S)
        finally:
            self._waiting -= has_failed
