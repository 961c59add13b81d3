"""What every connection to the store can do.

`Connection` is the only way by which the rest of the package reaches the server. The single server
and the cluster each implement it (`single.py`, `cluster.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from lingua_scheduler.state.calls import CallForm
    from lingua_scheduler.state.link import StoreLink
    from lingua_scheduler.state.script import Script, Word
    from lingua_scheduler.steps import Answer

T = TypeVar("T")

# The longest BLOCK of a blocking read, unless `dedicated` is given another one.
LONGEST_BLOCK_MS = 10_000


class Connection(Protocol):
    """A connection to the store; every call is routed by its slot (a single server ignores it).

    Calls of one tick reach the server in order, but a call that is resent (not loaded yet, slot
    moved) may run after later ones: dependent calls must be awaited one after the other.

    The error of a call whose future is not awaited any more is not printed.
    """

    # Counts the events after which acknowledged writes may be lost. It increases before any call
    # succeeds again, when a lost connection is restored or when slots get another master.
    generation: int

    def run(
        self, script: Script, slot: int, keys: tuple[Word, ...], args: tuple[Word, ...]
    ) -> asyncio.Future[Any]:
        """Run the script; the future gives its reply with strings as bytes."""
        ...

    def ask(
        self,
        form: CallForm,
        args: tuple[Word, ...],
        read: Callable[[Any], T],
        size: int,
    ) -> Answer[T]:
        """Run a script for a step (`steps.py`), which goes on in the callback of the reply.

        The reply is read by `read` then. `size`: how long the arguments are that may be long.
        """
        ...

    def command(self, slot: int, *words: Word) -> asyncio.Future[Any]:
        """Send any command that does not block on the server."""
        ...

    async def dedicated(self, slot: int, longest_block_ms: int = LONGEST_BLOCK_MS) -> StoreLink:
        """Open a separate connection for reads that BLOCK up to that long; the caller closes it."""
        ...

    async def every_master(self, *words: Word) -> list[Any]:
        """Send a keyless command to each master and return all replies."""
        ...

    def masters(self) -> list[int]:
        """Return a slot of each master, for keyless commands to one master after another."""
        ...

    async def close(self) -> None:
        """Fail pending calls and end all tasks and sockets."""
        ...
