"""The reader of an instance's own inbox.

It waits on a dedicated connection, so that no other call queues behind a blocking read. The group
starts at the beginning of the stream and is created before the instance serves, so that no early
message is missed. If the store is lost, the reader waits for it; in an emptied store, it creates
the stream and the group again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, NoReturn, TypedDict

from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.peers.messages import Undeliverable
from lingua_scheduler.peers.processor import DeliveryCounts, EntryProcessor
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.single import FIRST_PAUSE_S, LONGEST_PAUSE_S, jittered

if TYPE_CHECKING:
    from typing import Unpack

    from lingua_cli.logs import EventLog
    from lingua_scheduler.peers.processor import Apply
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.link import StoreLink

__all__ = ["DeliveryCounts", "Inbox", "Undeliverable"]


class InboxPaceOptions(TypedDict, total=False):
    """Deviations from the defaults of `InboxPace`."""

    block_ms: int
    batch: int
    reclaim_ms: int
    deliveries_max: int


@dataclass(frozen=True, slots=True)
class InboxPace:
    """Timing and batch size of an inbox reader."""

    # How long one read waits for messages; also the delay until a lost server is noticed.
    block_ms: int = 1000
    # How many messages are processed at the same time.
    batch: int = 64
    # How long a message may stay unacknowledged before it is retried.
    reclaim_ms: int = 1000
    # How many failed deliveries make a message a dead letter.
    deliveries_max: int = 5


class Inbox:
    """Reads one instance's messages and retries each until it is applied or given up."""

    def __init__(
        self,
        connection: Connection,
        prefix: str,
        instance: str,
        apply: Apply,
        *,
        log: EventLog,
        **pace: Unpack[InboxPaceOptions],
    ) -> None:
        self._connection = connection
        self._log = log
        self._pace = InboxPace(**pace)
        self._stream = InboxStream(connection, prefix, instance)
        self._processor = EntryProcessor(
            self._stream, apply, log=log, deliveries_max=self._pace.deliveries_max
        )
        # Whether reads succeed now; None before the first.
        self._is_reading: bool | None = None
        # When pending messages are checked next, in monotonic time.
        self._reclaim_at = 0.0

    @property
    def counts(self) -> DeliveryCounts:
        """Results of the messages so far."""
        return self._processor.counts

    async def open(self) -> None:
        """Create the stream and its group, before other instances can know of this one."""
        await self._stream.create()

    async def run(self) -> None:
        """Read and apply messages until cancelled, also across outages of the store."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                await self._serve()
            except StoreUnavailable as error:
                was_reading = self._note_loss(error)
            except StoreRejected as error:
                was_reading = self._note_loss(error, expected=error.reply.startswith("NOGROUP"))
            pause_s = FIRST_PAUSE_S if was_reading else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(jittered(pause_s))

    async def close(self, *, forget: bool) -> None:
        """End after `run`: with `forget`, an inbox without unprocessed entries is deleted."""
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
                await self._read_once(link)
                self._note_success()
        finally:
            await link.close()

    async def _read_once(self, link: StoreLink) -> None:
        pace = self._pace
        if monotonic() >= self._reclaim_at:
            await self._reclaim()
        # Not longer than until the next retry is due; 0 would wait forever.
        due_ms = int((self._reclaim_at - monotonic()) * 1000)
        block_ms = max(1, min(pace.block_ms, due_ms))
        entries = await self._stream.wait_new(link, pace.batch, block_ms)
        if entries:
            await self._processor.process(entries)

    async def _reclaim(self) -> None:
        """Retry entries that this process, or an earlier one, read and did not acknowledge."""
        pace = self._pace
        is_full = True
        while is_full:  # claimed entries are no longer idle, so the next page has other entries
            pending = await self._stream.pending(pace.batch, idle_ms=pace.reclaim_ms)
            await self._processor.retry(pending, pace.reclaim_ms)
            is_full = len(pending) == pace.batch
        self._reclaim_at = monotonic() + pace.reclaim_ms / 1000

    def _note_success(self) -> None:
        if self._is_reading is False:
            self._log("inbox.found", inbox=self._stream.keys.instance)
        self._is_reading = True

    def _note_loss(self, error: Exception, *, expected: bool = True) -> bool:
        """Note that the store was lost; True if reads had succeeded before."""
        was_reading, self._is_reading = bool(self._is_reading), False
        if not expected:
            self._log.error("inbox.refused", error=error)
        elif was_reading:
            self._log.warning("inbox.lost", error=error)
        return was_reading
