"""A Lua script with its hash, and what any connection to the store can do with one.

`Connection` is the whole surface the rest of the package may use to reach the server; the single
server and the cluster each implement it (`single.py`, `cluster.py`). Nothing here does I/O, and
nothing here knows what a script means: the script texts live elsewhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import asyncio

    from lingua_scheduler.state.link import Link

Word = bytes | str | int | float

# A blocking read may ask for at most this BLOCK unless `dedicated` is told otherwise.
LONGEST_BLOCK_MS = 10_000


@dataclass(frozen=True, slots=True)
class Script:
    """One Lua script: its name for messages, its text, and the hash the server knows it by."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        """Return the script with its hash computed."""
        text = source.encode()
        sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
        return cls(name, text, sha)


class Connection(Protocol):
    """A way to the store; every call is routed by its slot (a single server ignores it).

    Calls made in one tick reach the server in order, but one that has to be resent (script not
    loaded, slot moved) may run after later ones: dependent calls must be awaited in turn.

    A failed future counts as seen: the error of a call that nobody awaits any more is not printed.
    """

    # How often the store may have lost acknowledged writes: grows, before any call succeeds
    # again, when a lost connection is back and when slots have another master than before.
    generation: int

    def run(
        self, script: Script, slot: int, keys: tuple[Word, ...], args: tuple[Word, ...]
    ) -> asyncio.Future[Any]:
        """Run the script; the future gives its reply with strings as bytes."""
        ...

    def command(self, slot: int, *words: Word) -> asyncio.Future[Any]:
        """Send any command that does not block on the server."""
        ...

    async def dedicated(self, slot: int, longest_block_ms: int = LONGEST_BLOCK_MS) -> Link:
        """Open an own connection for reads that BLOCK up to that long; the caller closes it."""
        ...

    async def every_master(self, *words: Word) -> list[Any]:
        """Send a keyless command to each master and return all replies."""
        ...

    def masters(self) -> list[int]:
        """Return a slot of each master, for keyless commands that go to one after another."""
        ...

    async def close(self) -> None:
        """Fail what is pending and leave neither tasks nor sockets behind."""
        ...
