"""Tasks that someone owns: none is forgotten, none fails unseen.

One `Tasks` per instance. A task that ends with an error it should have handled is reported to the
owner, which logs and counts it; the others go on, for one session's trouble is not another's.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Tasks:
    """The running tasks of one owner."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        # Kept, for looking it up costs as much as making the task.
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[Any]] = set()
        self._ending = False

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine until it ends or the owner does."""
        if self._ending:
            work.close()
            return
        task = self._loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    async def end(self) -> None:
        """Cancel what still runs and wait for it."""
        self._ending = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)
