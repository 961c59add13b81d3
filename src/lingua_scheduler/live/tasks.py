"""Tasks that someone owns: none is forgotten, none fails unseen.

One `Tasks` per instance. A task that ends with an error it should have handled is reported to the
owner, which logs and counts it; the others go on, for one session's trouble is not another's.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

# Steps that `all_of` takes at the same time, and how long one may take.
AT_ONCE = 64
STEP_S = 5.0


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

    async def rest(self, limit_s: float) -> None:
        """Give what runs now some time to end by itself."""
        if self._running:
            await asyncio.wait(list(self._running), timeout=limit_s)

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


async def all_of(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Take all steps, though some meet a part of the store that is away; that is raised at the end.

    What lives in other parts of it must not wait; so a step that insists is left after a time.
    """
    away: StoreUnavailable | None = None
    rest = iter(steps)
    while some := list(islice(rest, AT_ONCE)):
        for result in await _results_of([asyncio.ensure_future(step) for step in some]):
            if isinstance(result, StoreUnavailable):
                away = result
            elif isinstance(result, asyncio.CancelledError):
                away = StoreUnavailable("store", f"a step took longer than {STEP_S} s")
            elif result is not None:
                raise result
    if away is not None:
        raise away


async def _results_of(tasks: list[asyncio.Future[None]]) -> list[BaseException | None]:
    """Wait for tasks, but not for ever; whoever ends this ends them too."""
    try:
        await asyncio.wait(tasks, timeout=STEP_S)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    return results
