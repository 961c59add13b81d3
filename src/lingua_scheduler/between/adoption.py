"""A survivor does what a dead instance can no longer do: it reads its inbox to the end.

One survivor at a time, under a lease; what it was given and did not acknowledge goes to the next,
if it dies too. Entries are applied in stream order, those that were read by the dead one first.
What an entry's effect is, and what becomes of the dead one's nodes and sessions, is the caller's.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.between.handling import Handling
from lingua_scheduler.between.stream import InboxStream
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.single import end_task

if TYPE_CHECKING:
    from lingua_scheduler.between.handling import Apply
    from lingua_scheduler.between.presence import Presence
    from lingua_scheduler.logs import EventLog
    from lingua_scheduler.state.script import Connection


class Adopted(NamedTuple):
    """What an adoption did; `finished` if it was this one that brought it to its end.

    It is not if the dead one is back, if another survivor has the turn, or if another was first.
    """

    entries: int
    dead_letters: int
    finished: bool


@dataclass(frozen=True, slots=True)
class AdoptionPace:
    """How an inbox is adopted."""

    # How long a survivor that dies keeps others from going on.
    lease_ms: int = 2000
    # How many letters are in work at the same time.
    batch: int = 64
    # How often a letter is delivered, by anybody, before it is put aside.
    deliveries_max: int = 5
    # How long to wait until those that failed are tried again.
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
        # Those whose inbox this instance reads or waits for now.
        self._under_way: set[str] = set()

    async def adopt(self, dead: str, apply: Apply) -> Adopted:
        """Apply all that is in a dead instance's inbox, remove it, forget the instance.

        Raises StoreUnavailable if the store goes away. Call it again while the instance is dead.
        """
        if dead in self._under_way:
            return Adopted(0, 0, finished=False)
        self._under_way.add(dead)
        try:
            adoption = Adoption(self._connection, self._prefix, dead, self._presence, self._pace)
            handling = Handling(
                adoption.stream, apply, log=self._log, deliveries_max=self._pace.deliveries_max
            )
            finished = await adoption.run(handling)
        finally:
            self._under_way.discard(dead)
        done = Adopted(handling.counts.applied, handling.counts.buried, finished)
        if any(done):
            self._log(
                "inbox.adopted", inbox=dead, entries=done.entries,
                dead_letters=done.dead_letters, finished=finished,
            )  # fmt: skip
        return done


class Adoption:
    """One adoption under way."""

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
        # Until when the lease is held for sure, in monotonic time.
        self._held_until = 0.0

    async def run(self, handling: Handling) -> bool:
        """Wait for the turn and do all there is to do; True if it is done."""
        if not await self._take_turn():
            return False
        keeper = asyncio.create_task(self._keep(), name=f"keep the lease on {self._dead}")
        try:
            return await self._read_to_the_end(handling) and await self._remove_and_forget()
        finally:
            await end_task(keeper)
            # If that fails, the lease ends by itself a little later.
            with contextlib.suppress(StoreUnavailable):
                await self.stream.lease(self._presence.instance, 0)

    # The lease.

    async def _take_turn(self) -> bool:
        """Take the lease; another's is waited for while it may be that of a survivor that died."""
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
            # A store that is away ends the work by the work's own calls.
            with contextlib.suppress(StoreUnavailable):
                if not await self._renew():
                    self._held_until = 0.0
                    return

    def _must_stop(self) -> bool:
        return self._is_back() or monotonic() > self._held_until

    def _is_back(self) -> bool:
        return self._presence.is_alive(self._dead)

    # The work.

    async def _read_to_the_end(self, handling: Handling) -> bool:
        """Apply entries until none is left; each pass delivers those that failed once more."""
        if not await self.stream.exists():
            return True
        await self.stream.create()  # the group, should only that be missing
        for _ in range(self._pace.deliveries_max + 1):
            if not (await self._retry_pending(handling) and await self._take_unread(handling)):
                return False
            if not await self.stream.pending(1):
                return True
            await asyncio.sleep(self._pace.retry_ms / 1000)
        return False

    async def _retry_pending(self, handling: Handling) -> bool:
        after = b""
        while page := await self.stream.pending(self._pace.batch, after=after):
            if self._must_stop():
                return False
            await handling.retry(page)
            after = page[-1].id
        return True

    async def _take_unread(self, handling: Handling) -> bool:
        while not self._must_stop():
            entries = await self.stream.read_new(self._pace.batch)
            if not entries:
                return True
            await handling.handle(entries)
        return False

    async def _remove_and_forget(self) -> bool:
        if self._must_stop() or not await self.stream.remove():
            return False
        return await self._presence.forget(self._dead)
