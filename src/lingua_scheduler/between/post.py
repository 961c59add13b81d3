"""Puts letters into the inboxes of other instances.

An inbox is made by the instance that reads it, never by a letter to it: a letter to an instance
that is gone is refused, instead of lying in a stream that nobody will ever read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lingua_scheduler.between.letters import seal
from lingua_scheduler.state.keys import InstanceKeys

if TYPE_CHECKING:
    from lingua_scheduler.between.letters import Letter
    from lingua_scheduler.state.script import Connection

# Instances come and go under new names; their keys are remembered up to this many.
KNOWN_MAX = 256


class Post:
    """Writes the letters of one instance."""

    def __init__(
        self, connection: Connection, prefix: str, instance: str, *, maxlen: int = 10_000
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._instance = instance
        # About how many letters an inbox may hold; the oldest go first.
        self._maxlen = maxlen
        # Keys of those written to, by instance.
        self._known: dict[str, InstanceKeys] = {}

    async def send(self, to: str, letter: Letter) -> bool:
        """Put the letter into an inbox; False if that instance has none."""
        keys = self._known.get(to) or self._learn(to)
        entry = seal(letter, self._instance, time.time_ns() // 1_000_000)
        added = await self._connection.command(
            keys.slot, "XADD", keys.inbox, "NOMKSTREAM", "MAXLEN", "~", self._maxlen, "*", *entry
        )
        return added is not None

    def _learn(self, instance: str) -> InstanceKeys:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        keys = self._known[instance] = InstanceKeys(self._prefix, instance)
        return keys
