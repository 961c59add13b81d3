"""What is done with entries of an inbox: applied, acknowledged, tried again, put aside.

Used by the inbox's own reader and by whoever adopts it. An entry is acknowledged after its effect,
so a reader that dies leaves it to the next; effects are idempotent for that. How often an entry was
delivered is counted by the server and alone decides when it becomes a dead letter.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.between.letters import (
    KIND_OF,
    Envelope,
    Undeliverable,
    UnreadableLetter,
    unseal,
)
from lingua_scheduler.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.between.stream import Entry, InboxStream, Pending
    from lingua_scheduler.logs import EventLog

    Apply = Callable[[Envelope], Awaitable[None]]

# Why an entry is dead if none of its readers lived to say it.
ABANDONED = "abandoned"


@dataclass(slots=True)
class Counts:
    """What was done so far; `failed` counts deliveries, the others entries."""

    applied: int = 0
    failed: int = 0
    retried: int = 0
    buried: int = 0


class Handling:
    """Handles the entries of one inbox; one batch at a time."""

    def __init__(
        self, stream: InboxStream, apply: Apply, *, log: EventLog, deliveries_max: int
    ) -> None:
        self.counts = Counts()
        self._stream = stream
        self._apply = apply
        self._log = log
        self._deliveries_max = deliveries_max
        # Entries that had their effect and whose acknowledgement may not have arrived.
        self._done: set[bytes] = set()
        # Why entries that are pending failed the last time.
        self._why: dict[bytes, str] = {}

    async def handle(self, entries: Sequence[Entry]) -> None:
        """Apply entries, started in their order and awaited together; settle each."""
        unreadable: list[tuple[bytes, str]] = []
        letters: list[tuple[bytes, Envelope]] = []
        for entry in entries:
            if entry.id in self._done:
                continue  # only its acknowledgement was lost
            try:
                letters.append((entry.id, unseal(entry.id, entry.fields)))
            except UnreadableLetter as error:
                unreadable.append((entry.id, error.reason))
        attempts = [self._attempt(envelope) for _, envelope in letters]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        for (entry_id, envelope), result in zip(letters, results, strict=True):
            self._note(entry_id, envelope, result)
        await self._acknowledge()
        for entry_id, reason in unreadable:
            await self._bury(entry_id, reason)

    async def retry(self, pending: Sequence[Pending], idle_ms: int = 0) -> None:
        """Try pending entries again; those that were delivered too often become dead letters."""
        for entry in pending:
            if entry.deliveries >= self._deliveries_max and entry.id not in self._done:
                await self._bury(entry.id, self._why.get(entry.id, ABANDONED))
        again = [
            entry.id
            for entry in pending
            if entry.deliveries < self._deliveries_max or entry.id in self._done
        ]
        if again:
            claimed = await self._stream.claim(again, idle_ms)
            self.counts.retried += len(claimed)
            await self.handle(claimed)

    async def _attempt(self, envelope: Envelope) -> None:
        await self._apply(envelope)

    def _note(self, entry_id: bytes, envelope: Envelope, result: BaseException | None) -> None:
        if result is None:
            self._done.add(entry_id)
            self._why.pop(entry_id, None)
            self.counts.applied += 1
            return
        self.counts.failed += 1
        if isinstance(result, Undeliverable):
            self._why[entry_id] = result.reason
        elif isinstance(result, StoreUnavailable):
            self._why[entry_id] = "store_unavailable"
        else:
            self._why[entry_id] = "error"
            kind, about = KIND_OF[type(envelope.letter)], envelope.correlation
            self._log.error("inbox.apply_failed", kind=kind, correlation=about, error=result)

    async def _acknowledge(self) -> None:
        if self._done:
            await self._stream.finish(list(self._done))
            self._done.clear()

    async def _bury(self, entry_id: bytes, reason: str) -> None:
        if await self._stream.bury(entry_id, reason):
            self.counts.buried += 1
            instance = self._stream.keys.instance
            self._log.warning(
                "inbox.dead_letter", inbox=instance, entry=entry_id.decode(), reason=reason
            )
        self._why.pop(entry_id, None)
