"""Checks of instances: dead ones that were not taken over, and the keys they left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.maintenance.finding import Finding
from lingua_scheduler.state.keys import InstanceKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.maintenance.store_reader import KeyName
    from lingua_scheduler.state.keys import Cell


async def check_directory(context: ScanContext) -> list[Finding]:
    """Find dead instances that were not taken over, and inboxes without an instance."""
    found = [
        Finding("instance_dead", name, name, "silent", age_ms=row.age_ms)
        for name, row in context.rows.items()
        if context.is_long_dead(name)
    ]
    for name in context.orphans:
        if name not in context.adopted:
            keys = InstanceKeys(context.prefix, name)
            (length,) = await context.reader.ask(keys.slot, [("XLEN", keys.inbox)])
            about = f"{length} messages in it" if length else "nothing in it"
            found.append(Finding("inbox_orphan", name, name, about))
    return found


async def check_records(context: ScanContext, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find records of instances that are not listed."""
    # Read again: the list from the start of the scan lacks instances that started since.
    listed = await context.reader.ask(
        cell.slot, [("ZSCORE", cell.key("instances"), name) for name in names]
    )
    return [
        Finding("instance_half_known", cell.name, name, "")
        for name, beat in zip(names, listed, strict=True)
        if beat is None
    ]


async def check_streams(context: ScanContext, names: Sequence[KeyName]) -> list[Finding]:
    """Find unlisted inboxes and dead letters, and adoption leases that never expire."""
    found = []
    home = context.cells.all[0]
    for name in names:
        kind, instance = name.family.pattern, name.instance
        listed = {"inbox": "inboxes", "dlq": "dlqs"}.get(kind)
        slot = InstanceKeys(context.prefix, instance).slot
        if kind == "adopter":
            (ttl,) = await context.reader.ask(slot, [("PTTL", name.key)])
            if ttl == -1:
                found.append(Finding("key_without_ttl", instance, name.key, "", args=("60000",)))
        elif listed and instance not in (context.inboxes if kind == "inbox" else context.dlqs):
            # Read again, as above.
            members = await context.connection.command(home.slot, "SMEMBERS", home.key(listed))
            (length,) = await context.reader.ask(slot, [("XLEN", name.key)])
            if instance.encode() not in members and (length or kind == "inbox"):
                finding = "inbox_unlisted" if kind == "inbox" else "dead_letters_unlisted"
                found.append(Finding(finding, instance, instance, f"{length} messages"))
    return found
