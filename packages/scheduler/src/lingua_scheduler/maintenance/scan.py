"""One scan of the store: reads all keys once and checks each by its family.

A finding of one scan may be work in progress; `doctor.py` reports it if a second scan agrees.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.maintenance.check_instances import (
    check_directory,
    check_records,
    check_streams,
)
from lingua_scheduler.maintenance.check_jobs import (
    check_audio,
    check_jobs,
    check_leases,
    check_reserved,
)
from lingua_scheduler.maintenance.check_nodes import (
    check_marks,
    check_node_list,
    check_nodes,
    check_pool_list,
    check_pools,
)
from lingua_scheduler.maintenance.check_queue import check_pending, check_queues, check_waiting
from lingua_scheduler.maintenance.check_sessions import (
    check_heard,
    check_outboxes,
    check_relays,
    check_rooms,
    check_said,
    check_sessions,
)
from lingua_scheduler.maintenance.check_streams import (
    check_stream_keys,
    check_stream_leases,
    check_streaming,
)
from lingua_scheduler.maintenance.check_timers import check_timers
from lingua_scheduler.maintenance.context import read_context
from lingua_scheduler.maintenance.finding import Finding
from lingua_scheduler.maintenance.store_reader import StoreReader, read_key
from lingua_scheduler.state.cluster import key_slot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from lingua_scheduler.config import Settings
    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.maintenance.store_reader import KeyName
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell

    Check = Callable[[ScanContext, Cell, Sequence[str]], Awaitable[list[Finding]]]

# Nobody reads more findings than this; a later scan finds the rest.
FINDINGS_MAX = 10_000
PAIRING_MS = 300_000


class ScanResult(NamedTuple):
    """The findings of one scan."""

    context: ScanContext
    findings: dict[tuple[str, str, str], Finding]


async def check_pairs(context: ScanContext, cell: Cell, codes: Sequence[str]) -> list[Finding]:
    """Find pairing codes that never expire."""
    keys = [cell.key("pair", code) for code in codes]
    ends = await context.reader.ask(cell.slot, [("PTTL", key) for key in keys])
    return [
        Finding("key_without_ttl", cell.name, key, "a pairing code", args=(str(PAIRING_MS),))
        for key, ttl in zip(keys, ends, strict=True)
        if ttl == -1
    ]


# The first word of a family -> the check of its keys.
CHECKS: dict[str, Check] = {
    "due": check_timers,
    "job": check_jobs,
    "leases": check_leases,
    "reserved": check_reserved,
    "audio": check_audio,
    "pending": check_pending,
    "queue": check_queues,
    "waiting": check_waiting,
    "session": check_sessions,
    "outbox": check_outboxes,
    "relay": check_relays,
    "heard": check_heard,
    "said": check_said,
    "room": check_rooms,
    "node": check_nodes,
    "nodes": check_node_list,
    "marks": check_marks,
    "streams": check_stream_leases,
    "stream": check_stream_keys,
    "streaming": check_streaming,
    "pool": check_pools,
    "pools": check_pool_list,
    "instance": check_records,
    "pair": check_pairs,
}


async def scan(connection: Connection, settings: Settings, **bounds: int) -> ScanResult:
    """Check the whole store once."""
    reader = StoreReader(connection, settings.redis.key_prefix, **bounds)
    context = await read_context(connection, settings, reader)
    found = list(await check_directory(context))
    async for page in reader.keys():
        if len(found) < FINDINGS_MAX:
            found += await _check_page(context, page)
    if reader.is_cut:
        about = f"only {reader.keys_seen} keys were read"
        found.append(Finding("not_all_looked_at", "", "keys", about))
    return ScanResult(context, {finding.identity: finding for finding in found})


async def _check_page(context: ScanContext, page: Sequence[str]) -> list[Finding]:
    found: list[Finding] = []
    known: list[KeyName] = []
    for key in dict.fromkeys(page):
        name = read_key(key, context.prefix)
        if name is None:
            found.append(Finding("key_unknown", "", key, ""))
        else:
            known.append(name)
    # '' is for the keys of instances.
    cells = {"", *(cell.name for cell in context.cells.all)}
    found += [
        Finding("key_of_unknown_cell", name.cell, name.key, "")
        for name in known
        if name.cell not in cells
    ]
    wrong, right = await _by_type(context, [name for name in known if name.cell in cells])
    found += wrong
    groups: dict[tuple[str, str], list[KeyName]] = defaultdict(list)
    for name in right:
        groups[name.cell, name.family.pattern.partition(":")[0]].append(name)
    for (cell, head), names in groups.items():
        if not cell:
            found += await check_streams(context, names)
        elif head in CHECKS:
            place = context.cells.named(cell)
            found += await CHECKS[head](context, place, [name.rest for name in names])
    return found


async def _by_type(
    context: ScanContext, names: Sequence[KeyName]
) -> tuple[list[Finding], list[KeyName]]:
    """Separate keys of the wrong type from the others; keys that no longer exist are in neither."""
    asked: list[tuple[KeyName, Any]] = [
        (name, context.connection.command(key_slot(name.key), "TYPE", name.key)) for name in names
    ]
    wrong, right = [], []
    for name, future in asked:
        kind = (await future).decode()
        if kind == name.family.kind:
            right.append(name)
        elif kind != "none":
            about = f"{kind}, not {name.family.kind}"
            wrong.append(Finding("key_wrong_type", name.cell or name.instance, name.key, about))
    return wrong, right
