"""Checks of nodes and pools: dead hosts, incomplete records, pools with wrong members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.maintenance.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.keys import Cell


async def check_nodes(context: ScanContext, cell: Cell, nodes: Sequence[str]) -> list[Finding]:
    """Find nodes that are not listed, have no timer, or count as connected to a dead instance."""
    fields = ("status", "instance", "beat_at")
    rows = await context.reader.ask(
        cell.slot, [("HMGET", cell.key("node", node), *fields) for node in nodes]
    )
    listed = await context.reader.ask(
        cell.slot, [("ZSCORE", cell.key("nodes"), node) for node in nodes]
    )
    timers = await context.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"n|{node}") for node in nodes]
    )
    found = []
    for node, row, place, timer in zip(nodes, rows, listed, timers, strict=True):
        if row is not None and row[0] is not None:
            found += _check_node(context, cell, node, row, (place, timer))
    return found


def _check_node(
    context: ScanContext, cell: Cell, node: str, row: list[Any], known: tuple[Any, Any]
) -> list[Finding]:
    found = []
    status, instance = row[0].decode(), (row[1] or b"").decode()
    if known[0] is None:
        found.append(Finding("node_half_known", cell.name, node, "it is not listed"))
    if known[1] is None:
        found.append(Finding("node_without_timer", cell.name, node, status))
    if status != "offline" and context.is_long_dead(instance):
        silent = context.rows.get(instance)
        about = f"{status} on {instance or 'no instance'}, last beat"
        age_ms = context.now_ms(cell) - int(row[2] or context.now_ms(cell))
        if silent is None:
            about = f"{status} on {instance or 'no instance'}, which is not known; last beat"
        found.append(
            Finding(
                "node_of_dead_instance",
                cell.name,
                node,
                about,
                age_ms=age_ms,
                args=(instance,),
            )
        )
    return found


async def check_node_list(context: ScanContext, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find listed nodes without a record."""
    found = []
    async for nodes in context.reader.names(cell.slot, cell.key("nodes")):
        states = await context.reader.ask(
            cell.slot, [("HGET", cell.key("node", node), "status") for node in nodes]
        )
        found += [
            Finding("node_half_known", cell.name, node, "it has no record")
            for node, status in zip(nodes, states, strict=True)
            if status is None
        ]
    return found


async def check_marks(context: ScanContext, cell: Cell, nodes: Sequence[str]) -> list[Finding]:
    """Find marks of unknown nodes."""
    existing = await context.reader.ask(
        cell.slot, [("EXISTS", cell.key("node", node)) for node in nodes]
    )
    return [
        Finding("marks_of_no_node", cell.name, node, "")
        for node, exists in zip(nodes, existing, strict=True)
        if not exists
    ]


async def check_pools(context: ScanContext, cell: Cell, pools: Sequence[str]) -> list[Finding]:
    """Find pools with nodes that belong to another pool."""
    found = []
    for pool in pools:
        async for page in context.reader.scores(cell.slot, cell.key("pool", pool)):
            own = await context.reader.ask(
                cell.slot, [("HGET", cell.key("node", node), "pool") for node, _ in page]
            )
            strange = [
                node for (node, _), where in zip(page, own, strict=True) if where != pool.encode()
            ]
            if strange:
                about = f"{', '.join(strange)} is not in it"
                found.append(Finding("pool_broken", cell.name, pool, about))
    return found


async def check_pool_list(context: ScanContext, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find listed pools without nodes."""
    found = []
    async for page in context.reader.fields(cell.slot, cell.key("pools")):
        existing = await context.reader.ask(
            cell.slot, [("EXISTS", cell.key("pool", pool)) for pool, _ in page]
        )
        found += [
            Finding("pool_broken", cell.name, pool, "it has no nodes")
            for (pool, _), exists in zip(page, existing, strict=True)
            if not exists
        ]
    return found
