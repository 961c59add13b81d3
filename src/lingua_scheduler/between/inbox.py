"""The reader of an instance's own inbox.

It waits on a connection of its own, so that no other call ever queues behind a blocking read. The
group begins at the start of the stream and is made before the instance serves: nothing that was
sent early is missed. A lost store is waited for; an emptied one gets a new stream and group.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, TypedDict

from lingua_scheduler.between.handling import Counts, Handling
from lingua_scheduler.between.letters import Undeliverable
from lingua_scheduler.between.stream import InboxStream
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.state.single import FIRST_PAUSE_S, LONGEST_PAUSE_S, jittered

if TYPE_CHECKING:
    from typing import Unpack

    from lingua_scheduler.between.handling import Apply
    from lingua_scheduler.logs import EventLog
    from lingua_scheduler.state.link import Link
    from lingua_scheduler.state.script import Connection

__all__ = ["Counts", "Inbox", "Undeliverable"]


class PaceOptions(TypedDict, total=False):
    """How an inbox may be read otherwise than by default; see `Pace`."""

    block_ms: int
    batch: int
    reclaim_ms: int
    deliveries_max: int


@dataclass(frozen=True, slots=True)
class Pace:
    """How an inbox is read."""

    # How long one read waits for letters; also how late a lost server may be noticed.
    block_ms: int = 1000
    # How many letters are in work at the same time.
    batch: int = 64
    # After how long without acknowledgement a letter is tried again.
    reclaim_ms: int = 1000
    # After how many deliveries without effect it is put aside.
    deliveries_max: int = 5


class Inbox:
    """Reads one instance's letters and has them applied, each until it had its effect."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        instance: str,
        apply: Apply,
        *,
        log: EventLog,
        **pace: Unpack[PaceOptions],
    ) -> None:
        self._connection = connection
        self._log = log
        self._pace = Pace(**pace)
        self._stream = InboxStream(connection, prefix, instance)
        self._handling = Handling(
            self._stream, apply, log=log, deliveries_max=self._pace.deliveries_max
        )
        # Whether reads succeed now; None before the first.
        self._is_reading: bool | None = None
        # When pending letters are looked at next, in monotonic time.
        self._reclaim_at = 0.0

    @property
    def counts(self) -> Counts:
        """What became of the letters so far."""
        return self._handling.counts

    async def open(self) -> None:
        """Make the stream and its group; before anybody can know of this instance."""
        await self._stream.create()

    async def run(self) -> None:
        """Read and apply until cancelled, whatever happens to the store."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._serve()
            except StoreUnavailable as error:
                was_reading = self._lost(error)
            except StoreRejected as error:
                was_reading = self._lost(error, expected=error.reply.startswith("NOGROUP"))
            pause_s = FIRST_PAUSE_S if was_reading else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(jittered(pause_s))

    async def close(self, *, forget: bool) -> None:
        """End in good order, after `run`: an inbox with nothing left in it is deleted."""
        if not forget:
            return
        if await self._stream.remove():
            await self._stream.unlist()
        else:
            self._log("inbox.left_to_others", inbox=self._stream.keys.instance)

    async def _serve(self) -> NoReturn:
        await self._stream.create()
        slot, block_ms = self._stream.keys.slot, self._pace.block_ms
        link = await self._connection.dedicated(slot, block_ms)
        try:
            while True:
                await self._turn(link)
                self._found()
        finally:
            await link.close()

    async def _turn(self, link: Link) -> None:
        pace = self._pace
        if monotonic() >= self._reclaim_at:
            await self._reclaim()
        # Not past the time when those that failed are due; 0 would wait for ever.
        due_ms = int((self._reclaim_at - monotonic()) * 1000)
        block_ms = max(1, min(pace.block_ms, due_ms))
        entries = await self._stream.wait_new(link, pace.batch, block_ms)
        if entries:
            await self._handling.handle(entries)

    async def _reclaim(self) -> None:
        """Try again what was read and not acknowledged: by this process, or by one before it."""
        pace = self._pace
        is_full = True
        while is_full:  # what was claimed is not idle any more, so the next page is another one
            pending = await self._stream.pending(pace.batch, idle_ms=pace.reclaim_ms)
            await self._handling.retry(pending, pace.reclaim_ms)
            is_full = len(pending) == pace.batch
        self._reclaim_at = monotonic() + pace.reclaim_ms / 1000

    def _found(self) -> None:
        if self._is_reading is False:
            self._log("inbox.found", inbox=self._stream.keys.instance)
        self._is_reading = True

    def _lost(self, error: Exception, *, expected: bool = True) -> bool:
        """Note the end of a connection; True if it had worked."""
        was_reading, self._is_reading = bool(self._is_reading), False
        if not expected:
            self._log.error("inbox.refused", error=error)
        elif was_reading:
            self._log.warning("inbox.lost", error=error)
        return was_reading
