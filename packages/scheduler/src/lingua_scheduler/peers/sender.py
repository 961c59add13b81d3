"""Writes messages into the inboxes of other instances.

Only the instance that reads an inbox creates it. A message to an instance without an inbox is
refused, instead of staying in a stream that is never read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lingua_scheduler.peers.messages import encode_entry
from lingua_scheduler.state.keys import InstanceKeys

if TYPE_CHECKING:
    from lingua_scheduler.peers.messages import PeerMessage
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.script import Word

# Instances restart under new names; the keys of at most this many are cached.
KNOWN_MAX = 256


class PeerSender:
    """Sends the messages of one instance."""

    def __init__(
        self, connection: Connection, prefix: str, instance: str, *, maxlen: int = 10_000
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._instance = instance
        # The approximate size limit of an inbox; the oldest messages are trimmed first.
        self._maxlen = maxlen
        # The keys of receivers, by instance.
        self._known: dict[str, InstanceKeys] = {}

    async def send(self, to: str, message: PeerMessage) -> bool:
        """Write the message into an inbox; False if that instance has none."""
        keys = self._known.get(to) or self._cache_keys(to)
        entry = encode_entry(message, self._instance, time.time_ns() // 1_000_000)
        trimming: tuple[Word, ...] = ("MAXLEN", "~", self._maxlen)
        words = ("XADD", keys.inbox, "NOMKSTREAM", *trimming, "*", *entry)
        added = await self._connection.command(keys.slot, *words)
        return added is not None

    def _cache_keys(self, instance: str) -> InstanceKeys:
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        keys = self._known[instance] = InstanceKeys(self._prefix, instance)
        return keys
