"""Adoption: a surviving instance processes the inbox of a dead one to its end.

One survivor at a time does this, under a lease. If it dies too, the next one continues with the
unacknowledged entries. Entries are applied in stream order, first those that the dead instance had
read. The caller defines the effect of an entry, and handles the nodes and sessions of the dead one.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.peers.processor import EntryProcessor
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.single import end_task

if TYPE_CHECKING:
    from lingua_cli.logs import EventLog
    from lingua_scheduler.peers.presence import Presence
    from lingua_scheduler.peers.processor import Apply
    from lingua_scheduler.state.connection import Connection


class Adopted(NamedTuple):
    """The result of an adoption; `finished` if this call completed it.

    Not finished if the instance is back, or if another survivor holds the lease or was first.
    """

    entries: int
    dead_letters: int
    finished: bool


@dataclass(frozen=True, slots=True)
class AdoptionPace:
    """Timing and batch size of an adoption."""

    # How long the lease of a survivor that dies blocks the others.
    lease_ms: int = 2000
    # How many messages are processed at the same time.
    batch: int = 64
    # How many deliveries, to any reader, make a message a dead letter.
    deliveries_max: int = 5
    # How long to wait before failed messages are retried.
    retry_ms: int = 200


class Adopter:
    """Adopts the inboxes of dead instances, for one survivor."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        presence: Presence,
        *,
        log: EventLog,
        pace: AdoptionPace = AdoptionPace(),  # noqa: B008  (frozen)
    ) -> None:
        self._connection = connection
        self._prefix = prefix
        self._presence = presence
        self._log = log
        self._pace = pace
        # Instances whose inbox this one processes now, or whose lease it waits for.
        self._under_way: set[str] = set()

    async def adopt(self, dead: str, apply: Apply) -> Adopted:
        """Apply all entries of a dead instance's inbox, remove it, delete the instance's record.

        Raises `StoreUnavailable` if the store is lost. Call it again while the instance is dead.
        """
        if dead in self._under_way:
            return Adopted(0, 0, finished=False)
        self._under_way.add(dead)
        try:
            adoption = Adoption(self._connection, self._prefix, dead, self._presence, self._pace)
            processor = EntryProcessor(
                adoption.stream, apply, log=self._log, deliveries_max=self._pace.deliveries_max
            )
            finished = await adoption.run(processor)
        finally:
            self._under_way.discard(dead)
        done = Adopted(processor.counts.applied, processor.counts.buried, finished)
        if any(done):
            self._log(
                "inbox.adopted",
                inbox=dead,
                entries=done.entries,
                dead_letters=done.dead_letters,
                finished=finished,
            )
        return done


class Adoption:
    """One adoption in progress."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        dead: str,
        presence: Presence,
        pace: AdoptionPace,
    ) -> None:
        self.stream = InboxStream(connection, prefix, dead, reader=presence.instance)
        self._dead = dead
        self._presence = presence
        self._pace = pace
        # Until when the lease is certainly held, in monotonic time.
        self._held_until = 0.0

    async def run(self, processor: EntryProcessor) -> bool:
        """Wait for the lease and process all entries; True if none is left."""
        if not await self._take_lease():
            return False
        keeper = asyncio.create_task(self._keep(), name=f"keep the lease on {self._dead}")
        try:
            return await self._read_to_the_end(processor) and await self._remove_and_forget()
        finally:
            await end_task(keeper)
            # If that fails, the lease expires a little later.
            with contextlib.suppress(StoreUnavailable):
                await self.stream.lease(self._presence.instance, 0)

    # The lease.

    async def _take_lease(self) -> bool:
        """Take the lease; wait while it may belong to a survivor that died."""
        patience_s = 2 * self._pace.lease_ms / 1000
        give_up_at = monotonic() + patience_s
        while not await self._renew():
            if monotonic() > give_up_at or self._is_back():
                return False
            await asyncio.sleep(patience_s / 20)
        return True

    async def _renew(self) -> bool:
        asked_at = monotonic()
        held = await self.stream.lease(self._presence.instance, self._pace.lease_ms)
        if held:
            self._held_until = asked_at + self._pace.lease_ms / 1000
        return held

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._pace.lease_ms / 4000)
            # If the store is unavailable, the calls that process entries fail and end the work.
            with contextlib.suppress(StoreUnavailable):
                if not await self._renew():
                    self._held_until = 0.0
                    return

    def _must_stop(self) -> bool:
        return self._is_back() or monotonic() > self._held_until

    def _is_back(self) -> bool:
        return self._presence.is_alive(self._dead)

    # Processing.

    async def _read_to_the_end(self, processor: EntryProcessor) -> bool:
        """Apply entries until none is left; each pass retries those that failed."""
        if not await self.stream.exists():
            return True
        await self.stream.create()  # in case only the group is missing
        for _ in range(self._pace.deliveries_max + 1):
            if not (await self._retry_pending(processor) and await self._process_unread(processor)):
                return False
            if not await self.stream.pending(1):
                return True
            await asyncio.sleep(self._pace.retry_ms / 1000)
        return False

    async def _retry_pending(self, processor: EntryProcessor) -> bool:
        after = b""
        while page := await self.stream.pending(self._pace.batch, after=after):
            if self._must_stop():
                return False
            await processor.retry(page)
            after = page[-1].id
        return True

    async def _process_unread(self, processor: EntryProcessor) -> bool:
        while not self._must_stop():
            entries = await self.stream.read_new(self._pace.batch)
            if not entries:
                return True
            await processor.process(entries)
        return False

    async def _remove_and_forget(self) -> bool:
        if self._must_stop() or not await self.stream.remove():
            return False
        return await self._presence.forget(self._dead)
