"""Runs the scripts of one deployment by name, over one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from lingua_scheduler.state.calls import CallForm
from lingua_scheduler.state.libraries import load_on_masters
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Word

T = TypeVar("T")


class ScriptRunner:
    """Sends a script to the slot of its cell.

    Every script gets the time first. It is 0 in production, which makes the script ask the server;
    tests set the time that the server would return. Either way the cell's own time
    (`lua/includes/clock.lua`) decides.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._scripts = load_scripts()
        # What calls have in common, by script, cell, policy and time.
        self._forms: dict[tuple[str, Cell, bytes, int], CallForm] = {}
        self.now_ms = 0

    def run(self, name: str, cell: Cell, args: tuple[Word, ...] = ()) -> Awaitable[list[Any]]:
        """Run a script on the keys of a cell."""
        script = self._scripts[name]
        return self.connection.run(script, cell.slot, cell.keys, (self.now_ms, *args))

    def ask(
        self,
        name: str,
        cell: Cell,
        policy: bytes,
        args: tuple[Word, ...],
        *,
        read: Callable[[Any], T],
        size: int,
    ) -> Awaitable[T]:
        """Run a script of the usual path, for a step; calls of one turn may go together.

        `size`: how long the arguments are that may be long.
        """
        form = self._forms.get((name, cell, policy, self.now_ms))
        if form is None:
            form = self._form_of(name, cell, policy)
        return self.connection.ask(form, args, read, size)

    def _form_of(self, name: str, cell: Cell, policy: bytes) -> CallForm:
        form = CallForm.of(self._scripts[name], cell.slot, cell.keys, (self.now_ms, policy))
        if not self.now_ms:  # in tests each call may have a time of its own
            self._forms[name, cell, policy, 0] = form
        return form

    def command(self, cell: Cell, words: tuple[Word, ...]) -> Awaitable[Any]:
        """Send one command to the slot of a cell."""
        return self.connection.command(cell.slot, *words)

    async def warm(self) -> None:
        """Load our library into every master, so that no utterance has to wait for it."""
        (library,) = {script.library for script in self._scripts.values()}
        await load_on_masters(self.connection, library)
