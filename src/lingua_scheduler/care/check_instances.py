"""Instances: those that died and whom nobody took over from, and what they left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.care.finding import Finding
from lingua_scheduler.state.keys import InstanceKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.care.ground import Ground
    from lingua_scheduler.care.reading import KeyName
    from lingua_scheduler.state.keys import Cell


async def check_directory(ground: Ground) -> list[Finding]:
    """Find dead instances that are not taken over from, and inboxes of nobody."""
    found = [
        Finding("instance_dead", name, name, "silent", row.age_ms)
        for name, row in ground.rows.items()
        if ground.is_long_dead(name)
    ]
    for name in ground.orphans:
        if name not in ground.adopted:
            keys = InstanceKeys(ground.prefix, name)
            (length,) = await ground.reader.ask(keys.slot, [("XLEN", keys.inbox)])
            about = f"{length} letters in it" if length else "nothing in it"
            found.append(Finding("inbox_orphan", name, name, about))
    return found


async def check_records(ground: Ground, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find records of instances that are not listed."""
    # Asked anew: the list of the look's beginning lacks those that have started since.
    listed = await ground.reader.ask(
        cell.slot, [("ZSCORE", cell.key("instances"), name) for name in names]
    )
    return [
        Finding("instance_half_known", cell.name, name, "")
        for name, beat in zip(names, listed, strict=True)
        if beat is None
    ]


async def check_streams(ground: Ground, names: Sequence[KeyName]) -> list[Finding]:
    """Find inboxes and dead letters that are not listed, and adoptions that never end."""
    found = []
    home = ground.cells.all[0]
    for name in names:
        kind, instance = name.family.pattern, name.instance
        listed = {"inbox": "inboxes", "dlq": "dlqs"}.get(kind)
        slot = InstanceKeys(ground.prefix, instance).slot
        if kind == "adopter":
            (ttl,) = await ground.reader.ask(slot, [("PTTL", name.key)])
            if ttl == -1:
                found.append(Finding("key_without_ttl", instance, name.key, "", args=("60000",)))
        elif listed and instance not in (ground.inboxes if kind == "inbox" else ground.dlqs):
            # Asked anew, as above.
            members = await ground.connection.command(home.slot, "SMEMBERS", home.key(listed))
            (length,) = await ground.reader.ask(slot, [("XLEN", name.key)])
            if instance.encode() not in members and (length or kind == "inbox"):
                finding = "inbox_unlisted" if kind == "inbox" else "dead_letters_unlisted"
                found.append(Finding(finding, instance, instance, f"{length} letters"))
    return found
