"""Checks of streams: leases of unknown nodes, leases that should be gone, ranks of other pools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_scheduler.maintenance.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.keys import Cell

# The node's next heartbeat removes an expired lease, the loss of the node all of them.
LEFT_MS: Final = 60_000


async def check_stream_leases(
    context: ScanContext, cell: Cell, nodes: Sequence[str]
) -> list[Finding]:
    """Find streams of unknown nodes, and those that expired and that no step has removed."""
    existing = await context.reader.ask(
        cell.slot, [("EXISTS", cell.key("node", node)) for node in nodes]
    )
    first = await context.reader.ask(
        cell.slot,
        [("ZRANGE", cell.key("streams", node), 0, 0, "WITHSCORES") for node in nodes],
    )
    found = []
    for node, exists, row in zip(nodes, existing, first, strict=True):
        age_ms = context.now_ms(cell) - int(float(row[1])) if row else 0
        if row and (not exists or age_ms > LEFT_MS):
            about = "expired" if exists else "the node is not known"
            found.append(
                Finding("streams_of_no_node", cell.name, node, about, age_ms=max(0, age_ms))
            )
    return found


async def check_stream_keys(
    context: ScanContext, cell: Cell, streams: Sequence[str]
) -> list[Finding]:
    """Find names of streams that never expire."""
    keys = [cell.key("stream", stream) for stream in streams]
    ends = await context.reader.ask(cell.slot, [("PTTL", key) for key in keys])
    keep_ms = str(context.policy.binding_ms)
    return [
        Finding("key_without_ttl", cell.name, key, "the node of a stream", args=(keep_ms,))
        for key, ttl in zip(keys, ends, strict=True)
        if ttl == -1
    ]


async def check_streaming(context: ScanContext, cell: Cell, pools: Sequence[str]) -> list[Finding]:
    """Find nodes that rank among those of another pool."""
    found = []
    for pool in pools:
        async for page in context.reader.scores(cell.slot, cell.key("streaming", pool)):
            own = await context.reader.ask(
                cell.slot, [("HGET", cell.key("node", node), "pool") for node, _ in page]
            )
            strange = [
                node for (node, _), where in zip(page, own, strict=True) if where != pool.encode()
            ]
            if strange:
                about = f"{', '.join(strange)} is not in the pool"
                found.append(Finding("streaming_broken", cell.name, pool, about))
    return found
