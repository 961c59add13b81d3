"""Tasks with an owner: none is forgotten, and every failure is reported.

One `Tasks` per instance. A task that ends with an unhandled error is reported to the owner, which
logs and counts it. The other tasks go on: an error in one session must not affect others. Work that
usually waits for the store alone is begun as a step (`steps.py`).
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.steps import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

# Steps that `all_of` runs at the same time, and how long one may take.
AT_ONCE = 64
STEP_S = 5.0


class Tasks:
    """The running tasks of one owner."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        # Kept, because looking it up costs as much as making the task.
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[Any]] = set()
        self._steps: set[Step] = set()
        # Set when no step is left; None while nobody waits for that.
        self._no_steps: asyncio.Event | None = None
        self._ending = False

    def __len__(self) -> int:
        return len(self._running) + len(self._steps)

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine until it ends or the owner does."""
        if self._ending:
            work.close()
            return
        task = self._loop.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine at once, without a task while it waits for the store alone."""
        if self._ending:
            work.close()
            return
        step = Step(work, self)
        self._steps.add(step)
        step.advance()

    async def rest(self, limit_s: float) -> None:
        """Give the running tasks some time to end by themselves."""
        if len(self):
            self._no_steps = asyncio.Event()
            if not self._steps:
                self._no_steps.set()
            steps = self._loop.create_task(self._no_steps.wait())
            await asyncio.wait([steps, *self._running], timeout=limit_s)
            steps.cancel()
            self._no_steps = None

    async def end(self) -> None:
        """Cancel the running tasks and wait for them."""
        self._ending = True
        for step in list(self._steps):
            step.close()
        self._steps.clear()
        if self._no_steps is not None:
            self._no_steps.set()
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # What steps report

    def step_ended(self, step: Step, error: Exception | None) -> None:
        """Note that a step has ended, and report its error."""
        self._steps.discard(step)
        if self._no_steps is not None and not self._steps:
            self._no_steps.set()
        if error is not None:
            self._on_error(error)

    def step_waits(self, step: Step, rest: Coroutine[Any, Any, Any]) -> None:
        """Go on with what is left of a step in a task."""
        self.step_ended(step, None)
        self.start(rest)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)


async def all_of(steps: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all steps, even if a part of the store is unavailable; that error is raised at the end.

    Steps on other parts of the store must not wait, so that a step is cancelled after `STEP_S`.
    """
    unavailable: StoreUnavailable | None = None
    rest = iter(steps)
    while some := list(islice(rest, AT_ONCE)):
        for result in await _results_of([asyncio.ensure_future(step) for step in some]):
            if isinstance(result, StoreUnavailable):
                unavailable = result
            elif isinstance(result, asyncio.CancelledError):
                unavailable = StoreUnavailable("store", f"a step took longer than {STEP_S} s")
            elif result is not None:
                raise result
    if unavailable is not None:
        raise unavailable


async def _results_of(tasks: list[asyncio.Future[None]]) -> list[BaseException | None]:
    """Wait for tasks at most `STEP_S`; they are cancelled then, or if this is cancelled."""
    try:
        await asyncio.wait(tasks, timeout=STEP_S)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    return results
