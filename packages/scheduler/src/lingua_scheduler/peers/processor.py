"""Processes the entries of an inbox: applies, acknowledges and retries them, or gives them up.

Used by the inbox's own reader and by its adopter. An entry is acknowledged after it was applied, so
that the next reader gets it if this one dies; therefore effects are idempotent. The server counts
deliveries, and this count alone decides when an entry becomes a dead letter.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.messages import (
    KIND_OF,
    ReceivedMessage,
    Undeliverable,
    UnreadableMessage,
    decode_entry,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_cli.logs import EventLog
    from lingua_scheduler.peers.stream import InboxStream, PendingEntry, StreamEntry

    Apply = Callable[[ReceivedMessage], Awaitable[None]]

# The reason of a dead letter if every reader died before it could give one.
ABANDONED = "abandoned"


@dataclass(slots=True)
class DeliveryCounts:
    """Results so far; `failed` counts deliveries, the others count entries."""

    applied: int = 0
    failed: int = 0
    retried: int = 0
    buried: int = 0

    def add(self, *, applied: int = 0, failed: int = 0, retried: int = 0, buried: int = 0) -> None:
        """Add to the counts."""
        self.applied += applied
        self.failed += failed
        self.retried += retried
        self.buried += buried


class EntryProcessor:
    """Processes the entries of one inbox, one batch at a time."""

    def __init__(
        self, stream: InboxStream, apply: Apply, *, log: EventLog, deliveries_max: int
    ) -> None:
        self.counts = DeliveryCounts()
        self._stream = stream
        self._apply = apply
        self._log = log
        self._deliveries_max = deliveries_max
        # Entries that were applied and whose acknowledgement may have been lost.
        self._done: set[bytes] = set()
        # The last failure of each pending entry.
        self._reasons: dict[bytes, str] = {}

    async def process(self, entries: Sequence[StreamEntry]) -> None:
        """Apply entries, started in their order and awaited together; settle each."""
        unreadable: list[tuple[bytes, str]] = []
        messages: list[tuple[bytes, ReceivedMessage]] = []
        for entry in entries:
            if entry.id in self._done:
                continue  # only its acknowledgement was lost
            try:
                messages.append((entry.id, decode_entry(entry.id, entry.fields)))
            except UnreadableMessage as error:
                unreadable.append((entry.id, error.reason))
        attempts = [self._attempt(received) for _, received in messages]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        for (entry_id, received), result in zip(messages, results, strict=True):
            self._note(entry_id, received, result)
        await self._acknowledge()
        for entry_id, reason in unreadable:
            await self._bury(entry_id, reason)

    async def retry(self, pending: Sequence[PendingEntry], idle_ms: int = 0) -> None:
        """Retry pending entries; those with too many deliveries become dead letters."""
        for entry in pending:
            if entry.deliveries >= self._deliveries_max and entry.id not in self._done:
                await self._bury(entry.id, self._reasons.get(entry.id, ABANDONED))
        again = [
            entry.id
            for entry in pending
            if entry.deliveries < self._deliveries_max or entry.id in self._done
        ]
        if again:
            claimed = await self._stream.claim(again, idle_ms)
            self.counts.add(retried=len(claimed))
            await self.process(claimed)

    async def _attempt(self, received: ReceivedMessage) -> None:
        await self._apply(received)

    def _note(
        self, entry_id: bytes, received: ReceivedMessage, result: BaseException | None
    ) -> None:
        if result is None:
            self._done.add(entry_id)
            self._reasons.pop(entry_id, None)
            self.counts.add(applied=1)
            return
        self.counts.add(failed=1)
        if isinstance(result, Undeliverable):
            self._reasons[entry_id] = result.reason
        elif isinstance(result, StoreUnavailable):
            self._reasons[entry_id] = "store_unavailable"
        else:
            self._reasons[entry_id] = "error"
            kind, about = KIND_OF[type(received.message)], received.correlation
            self._log.error("inbox.apply_failed", kind=kind, correlation=about, error=result)

    async def _acknowledge(self) -> None:
        if self._done:
            await self._stream.finish(list(self._done))
            self._done.clear()

    async def _bury(self, entry_id: bytes, reason: str) -> None:
        if await self._stream.bury(entry_id, reason):
            self.counts.add(buried=1)
            instance = self._stream.keys.instance
            self._log.warning(
                "inbox.dead_letter", inbox=instance, entry=entry_id.decode(), reason=reason
            )
        self._reasons.pop(entry_id, None)
