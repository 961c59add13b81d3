"""Reads all instances and all inboxes at one moment, for operators and for `doctor`.

It only reads: `adoption.py` empties orphaned inboxes, `deadletters.py` handles dead letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.peers.deadletters import DeadLetters
from lingua_scheduler.peers.presence import Directory
from lingua_scheduler.peers.stream import GROUP
from lingua_scheduler.state.keys import InstanceKeys

if TYPE_CHECKING:
    from lingua_scheduler.peers.presence import InstanceRow
    from lingua_scheduler.state.connection import Connection


class InboxRow(NamedTuple):
    """One instance's streams; `record` is None for an orphan, lengths are 0 without a stream."""

    instance: str
    record: InstanceRow | None
    length: int
    pending: int
    dead_letters: int


def state_of(row: InboxRow, silence_ms: int) -> str:
    """Return alive, draining, dead (silent), orphan (an inbox without a record), gone (only dead
    letters are left)."""
    record = row.record
    if record is None:
        return "gone" if row.dead_letters and not row.length else "orphan"
    if record.age_ms > silence_ms:
        return "dead"
    return "draining" if record.draining else "alive"


async def inspect_instances(connection: Connection, prefix: str) -> tuple[InboxRow, ...]:
    """Return every instance that has a record, an inbox or dead letters, by name."""
    rows, orphans = await Directory(connection, prefix).read()
    dead_letters = await DeadLetters(connection, prefix).counts()
    found = []
    for name in sorted({*rows, *orphans, *dead_letters}):
        keys = InstanceKeys(prefix, name)
        length: int = await connection.command(keys.slot, "XLEN", keys.inbox)
        pending = await _count_pending(connection, keys)
        found.append(InboxRow(name, rows.get(name), length, pending, dead_letters.get(name, 0)))
    return tuple(found)


async def _count_pending(connection: Connection, keys: InstanceKeys) -> int:
    try:
        raw = await connection.command(keys.slot, "XPENDING", keys.inbox, GROUP)
    except StoreRejected as error:
        if error.reply.startswith("NOGROUP"):
            return 0  # no inbox, or one that was never opened
        raise
    count: int = raw[0]
    return count
