"""Time in a test's hands: connections between a store and its server that say what time it is.

Scripts are told the server's time, or ask for it. `Lived` makes given time pass as it does in life:
a cell is looked at all the while, so that its own time follows. `Steps` is a server's clock that
somebody sets while instances work with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from lingua_scheduler.state.calls import CallForm
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.script import Script, Word
    from lingua_scheduler.steps import Answer

# Less than what counts as a leap.
LOOK_EVERY_MS = 2500


class Lived:
    """A connection on which a cell was looked at between any two times a script is told."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._look = load_scripts()["cell_time"]
        # The last time the scripts of each cell were told.
        self._told_ms: dict[Word, int] = {}
        # Callers wait for each other where time passes.
        self._passing: defaultdict[Word, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def run(
        self, script: Script, slot: int, keys: tuple[Word, ...], args: tuple[Word, ...]
    ) -> Any:
        """Let the time since the last call pass, then run a script."""
        await self._let_pass(slot, keys, args)
        return await self._connection.run(script, slot, keys, args)

    async def _let_pass(self, slot: int, keys: tuple[Word, ...], args: tuple[Word, ...]) -> None:
        if isinstance(args[0], int) and args[0]:
            async with self._passing[keys[0]]:
                await self._pass(slot, keys, int(args[0]))
        else:
            self._told_ms[keys[0]] = wall_ms()

    async def ask(
        self,
        form: CallForm,
        args: tuple[Word, ...],
        read: Callable[[Any], Any],
        size: int,
    ) -> Any:
        """The same for a step; calls of one turn of the loop go together."""
        await self._let_pass(form.slot, form.keys, form.shared)
        return await self._connection.ask(form, args, read, size)

    async def _pass(self, slot: int, keys: tuple[Word, ...], now_ms: int) -> None:
        at_ms = self._told_ms.get(keys[0], now_ms)
        self._told_ms[keys[0]] = now_ms
        while now_ms - at_ms > LOOK_EVERY_MS:
            at_ms += LOOK_EVERY_MS
            await self._connection.run(self._look, slot, keys, (at_ms,))

    def step(self, now_ms: int) -> None:
        """The server's clock is set: nothing lies between the last time and this one."""
        self._told_ms = dict.fromkeys(self._told_ms, now_ms)


class Steps:
    """The clock of a server that is set under the instances that use it."""

    def __init__(self) -> None:
        # How far it is ahead of this machine's.
        self.ahead_ms = 0

    def rule(self, connection: Connection) -> None:
        """Let every script on a connection be told the time of this clock."""
        run, ask = connection.run, connection.ask

        def at_its_time(args: tuple[Word, ...]) -> tuple[Word, ...]:
            assert args[0] == 0, "nobody else says what time it is"
            return (wall_ms() + self.ahead_ms, *args[1:])

        def told(
            script: Script, slot: int, keys: tuple[Word, ...], args: tuple[Word, ...]
        ) -> asyncio.Future[Any]:
            return run(script, slot, keys, at_its_time(args))

        def told_step(
            form: CallForm, args: tuple[Word, ...], read: Callable[[Any], Any], size: int
        ) -> Answer[Any]:
            told_form = CallForm.of(form.script, form.slot, form.keys, at_its_time(form.shared))
            return ask(told_form, args, read, size)

        connection.run = told  # type: ignore[method-assign]
        connection.ask = told_step  # type: ignore[method-assign]


def wall_ms() -> int:
    """Return this machine's time."""
    return int(time.time() * 1000)
