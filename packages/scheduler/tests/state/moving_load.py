"""A steady load for tests that move a cell: no utterance may be lost.

Sessions of one cell submit and settle through the product's dispatcher without a pause, while its
sweeper runs. Calls that fail with a typed error are retried, as a caller would do; errors and wrong
answers are counted. In the end each utterance must have one outcome, in order, and it must be the
one that was reported.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.reply import Reply
from servers import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jobs.deployment import Deployment, Speaker
    from lingua_scheduler.state.keys import Cell

SPEAKERS = 12
# How many utterances must be through before the move, and again after it.
PAIRS_AROUND = 150
BOUND_S = 40.0
PAUSE_S = 0.005
SWEEP_PAUSE_S = 0.05


class Load:
    """Sessions that submit and settle without a pause, and try again after every typed error."""

    def __init__(self, d: Deployment, home: Cell) -> None:
        self.d = d
        self.home = home
        # Pairs of submit and settle that are through, and every error or odd answer on the way.
        self.pairs = 0
        self.troubles: Counter[str] = Counter()
        self.cells: Counter[str] = Counter()
        # No more is said; and what was said has its outcomes, so that nothing is left to sweep for.
        self._is_over = False
        self._is_through = False

    async def during(self, move: Callable[[], Awaitable[None]]) -> None:
        """Run the load before, during and after a move, then let everything come to rest."""
        speakers = [await self.d.speaker(self.home) for _ in range(SPEAKERS)]
        async with asyncio.TaskGroup() as around:
            # Until the last one is through: what was cut off on its way is placed by a sweep.
            around.create_task(self._sweep_on())
            async with asyncio.TaskGroup() as group:
                for speaker in speakers:
                    group.create_task(self._speak(speaker))
                await self._run_on(PAIRS_AROUND)
                await move()
                await self._run_on(PAIRS_AROUND)
                self._is_over = True
            self._is_through = True
        await self._come_to_rest()

    async def _run_on(self, count: int) -> None:
        goal = self.pairs + count
        await until(lambda: self.pairs >= goal, BOUND_S, f"{count} more pairs are through")

    async def _speak(self, speaker: Speaker) -> None:
        index = 0
        while not self._is_over:
            speaker.admit(index)
            await self._see_through(speaker, index)
            self.pairs += 1
            index += 1

    async def _see_through(self, speaker: Speaker, index: int) -> None:
        for _ in range(int(BOUND_S / PAUSE_S)):
            if await self._attempted(self._pair(speaker, index)):
                return
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"utterance {index} of {speaker.session} has no end")

    async def _pair(self, speaker: Speaker, index: int) -> bool:
        """Submit, or find what an earlier try submitted, and settle; True when it is through."""
        answer, _ = await speaker.submit(index)
        if answer.placement is not None:
            self.cells[answer.placement.cell] += 1
            attempt, node = answer.placement.attempt, answer.placement.node
        elif answer.reply is Reply.DUPLICATE:
            attempt, node = answer.attempt, answer.node
        elif answer.reply is Reply.QUEUED:
            return False  # slots whose holder was cut off are free again in a moment
        else:
            self.troubles[f"submit {answer.reply.name}"] += 1
            return False
        if answer.outcome:
            return True
        if not node:
            return False  # it waits, or was cut off half-way through its placement: a sweep sees it
        settled, _ = await self.d.dispatcher.settle(
            speaker.home, speaker.job(index), attempt, node, kind="completed"
        )
        if settled.reply in (Reply.SETTLED, Reply.ALREADY):
            return True
        self.troubles[f"settle {settled.reply.name}"] += 1
        return False

    async def _sweep_on(self) -> None:
        while not self._is_through:
            await self._attempted(self._sweep())
            await asyncio.sleep(SWEEP_PAUSE_S)

    async def _sweep(self) -> bool:
        await self.d.sweep()
        return True

    async def _attempted(self, step: Awaitable[bool]) -> bool:
        try:
            return await step
        except StoreUnavailable as error:
            self.troubles[type(error).__name__] += 1
        except StoreRejected as error:
            self.troubles[f"rejected: {error.reply}"] += 1
        return False

    async def _come_to_rest(self) -> None:
        for _ in range(int(BOUND_S / SWEEP_PAUSE_S)):
            await self.d.sweep()
            if not await self.d.timers():
                break
            await asyncio.sleep(SWEEP_PAUSE_S)
        await self.d.assert_quiet()
        for speaker in self.d.speakers:
            assert {kind for _, kind, _ in await speaker.told()} == {"completed"}
