"""Nodes and pools: hosts that do not live, half-known nodes, pools that are not as they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.care.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.care.ground import Ground
    from lingua_scheduler.state.keys import Cell


async def check_nodes(ground: Ground, cell: Cell, nodes: Sequence[str]) -> list[Finding]:
    """Find nodes that are not listed, not timed, or connected to nobody."""
    fields = ("status", "instance", "beat_at")
    rows = await ground.reader.ask(
        cell.slot, [("HMGET", cell.key("node", node), *fields) for node in nodes]
    )
    listed = await ground.reader.ask(
        cell.slot, [("ZSCORE", cell.key("nodes"), node) for node in nodes]
    )
    timers = await ground.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"n|{node}") for node in nodes]
    )
    found = []
    for node, row, place, timer in zip(nodes, rows, listed, timers, strict=True):
        if row is not None and row[0] is not None:
            found += _check_node(ground, cell, node, row, (place, timer))
    return found


def _check_node(
    ground: Ground, cell: Cell, node: str, row: list[Any], known: tuple[Any, Any]
) -> list[Finding]:
    found = []
    status, instance = row[0].decode(), (row[1] or b"").decode()
    if known[0] is None:
        found.append(Finding("node_half_known", cell.name, node, "it is not listed"))
    if known[1] is None:
        found.append(Finding("node_without_timer", cell.name, node, status))
    if status != "offline" and ground.is_long_dead(instance):
        silent = ground.rows.get(instance)
        about = f"{status} on {instance or 'no instance'}, last beat"
        age_ms = ground.now_ms(cell) - int(row[2] or ground.now_ms(cell))
        if silent is None:
            about = f"{status} on {instance or 'no instance'}, which is not known; last beat"
        found.append(Finding("node_of_dead_instance", cell.name, node, about, age_ms, (instance,)))
    return found


async def check_node_list(ground: Ground, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find nodes that are listed and have no record."""
    found = []
    async for nodes in ground.reader.names(cell.slot, cell.key("nodes")):
        states = await ground.reader.ask(
            cell.slot, [("HGET", cell.key("node", node), "status") for node in nodes]
        )
        found += [
            Finding("node_half_known", cell.name, node, "it has no record")
            for node, status in zip(nodes, states, strict=True)
            if status is None
        ]
    return found


async def check_marks(ground: Ground, cell: Cell, nodes: Sequence[str]) -> list[Finding]:
    """Find marks of nodes that are not known."""
    there = await ground.reader.ask(
        cell.slot, [("EXISTS", cell.key("node", node)) for node in nodes]
    )
    return [
        Finding("marks_of_no_node", cell.name, node, "")
        for node, exists in zip(nodes, there, strict=True)
        if not exists
    ]


async def check_pools(ground: Ground, cell: Cell, pools: Sequence[str]) -> list[Finding]:
    """Find pools with nodes that are elsewhere, and pools that are not listed."""
    found = []
    for pool in pools:
        async for page in ground.reader.scores(cell.slot, cell.key("pool", pool)):
            own = await ground.reader.ask(
                cell.slot, [("HGET", cell.key("node", node), "pool") for node, _ in page]
            )
            strange = [
                node for (node, _), where in zip(page, own, strict=True) if where != pool.encode()
            ]
            if strange:
                about = f"{', '.join(strange)} is not in it"
                found.append(Finding("pool_broken", cell.name, pool, about))
    return found


async def check_pool_list(ground: Ground, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find pools that are listed and have no nodes."""
    found = []
    async for page in ground.reader.fields(cell.slot, cell.key("pools")):
        there = await ground.reader.ask(
            cell.slot, [("EXISTS", cell.key("pool", pool)) for pool, _ in page]
        )
        found += [
            Finding("pool_broken", cell.name, pool, "it has no nodes")
            for (pool, _), exists in zip(page, there, strict=True)
            if not exists
        ]
    return found
