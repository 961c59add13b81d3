"""Pairing codes: six digits that let a session use one node, once, within five minutes.

Codes are random and kept in the store, so that a code is valid on every instance. Each instance
limits the rate of guesses.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING

from lingua_scheduler.session.rate import TokenBucket
from lingua_wire.errors import InvalidInput

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell

VALID_MS = 5 * 60_000
CODE = re.compile(r"[0-9]{6}")
TRIES_MAX = 100
# Guesses per second of all sessions of an instance: too few to find a code in five minutes.
GUESSES_PER_S = 5


class InvalidPairingCode(InvalidInput):
    """A pairing code that is wrong, used or too old, or one guess too many."""


class Pairing:
    """The codes that were issued and not used yet."""

    def __init__(self, connection: Connection, cell: Cell, clock: Clock) -> None:
        self._connection = connection
        # All codes are in one cell.
        self._cell = cell
        self._clock = clock
        self._guesses = TokenBucket(GUESSES_PER_S, GUESSES_PER_S * 4)

    async def issue(self, node: str) -> str:
        """Return a new code for a node."""
        for _ in range(TRIES_MAX):
            code = f"{secrets.randbelow(1_000_000):06d}"
            key = self._cell.key("pair", code)
            set_if_free = ("SET", key, node, "NX", "PX", VALID_MS)
            done = await self._connection.command(self._cell.slot, *set_if_free)
            if done is not None:
                return code
        raise RuntimeError("no free pairing code was found: far too many are in use")

    async def redeem(self, code: str) -> str:
        """Return the node of a code and delete the code, or raise."""
        if not self._guesses.take(self._clock.now_ms()):
            raise InvalidPairingCode("too many pairing codes were tried; wait a moment")
        node = None
        if CODE.fullmatch(code):
            key = self._cell.key("pair", code)
            node = await self._connection.command(self._cell.slot, "GETDEL", key)
        if node is None:
            raise InvalidPairingCode("the pairing code is wrong, used or too old")
        found: str = node.decode()
        return found
