"""Checks of sessions, outboxes, results for listeners, and rooms: keys that would never end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.maintenance.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.keys import Cell


async def check_sessions(
    context: ScanContext, cell: Cell, sessions: Sequence[str]
) -> list[Finding]:
    """Find open sessions without a timer, and other sessions that never expire."""
    keys = [cell.key("session", session) for session in sessions]
    fields = ("epoch", "closed", "owner", "opened_at")
    rows = await context.reader.ask(cell.slot, [("HMGET", key, *fields) for key in keys])
    timers = await context.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"s|{session}") for session in sessions]
    )
    ends = await context.reader.ask(cell.slot, [("PTTL", key) for key in keys])
    found = []
    for session, row, timer, ttl in zip(sessions, rows, timers, ends, strict=True):
        if row is None:
            continue
        epoch, closed, owner, opened_at = row
        is_open = epoch is not None and closed is None
        if is_open and timer is None:
            age_ms = context.now_ms(cell) - int(opened_at or context.now_ms(cell))
            name = (owner or b"").decode()
            about = f"of {name or 'no instance'}, opened"
            found.append(
                Finding(
                    "session_without_timer",
                    cell.name,
                    session,
                    about,
                    age_ms=age_ms,
                    args=(name,),
                )
            )
        elif not is_open and ttl == -1:
            age = context.now_ms(cell) - int(closed) if closed else None
            about = "closed" if closed else "it was never opened"
            found.append(Finding("session_kept", cell.name, session, about, age_ms=age))
    return found


async def check_outboxes(
    context: ScanContext, cell: Cell, sessions: Sequence[str]
) -> list[Finding]:
    """Find outboxes of ended sessions that never expire."""
    rows = await context.reader.ask(
        cell.slot,
        [("HMGET", cell.key("session", name), "epoch", "closed") for name in sessions],
    )
    ends = await context.reader.ask(
        cell.slot, [("PTTL", cell.key("outbox", name)) for name in sessions]
    )
    found = []
    for session, row, ttl in zip(sessions, rows, ends, strict=True):
        epoch, closed = row or (None, None)
        if ttl == -1 and (epoch is None or closed is not None):
            about = "the session is closed" if closed else "the session does not exist"
            found.append(Finding("outbox_kept", cell.name, session, about))
    return found


async def check_relays(context: ScanContext, cell: Cell, sessions: Sequence[str]) -> list[Finding]:
    """Find outcomes for listeners that no timer would relay."""
    timers = await context.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"x|{session}") for session in sessions]
    )
    return [
        Finding("relay_without_timer", cell.name, session, "")
        for session, timer in zip(sessions, timers, strict=True)
        if timer is None
    ]


async def check_heard(context: ScanContext, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find results for listeners that never expire."""
    return await _endless(context, cell, [cell.key("heard", name) for name in names])


async def check_said(context: ScanContext, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find lists of results for listeners that never expire."""
    return await _endless(context, cell, [cell.key("said", name) for name in names])


async def _endless(context: ScanContext, cell: Cell, keys: Sequence[str]) -> list[Finding]:
    ends = await context.reader.ask(cell.slot, [("PTTL", key) for key in keys])
    keep_ms = str(2 * context.policy.resume_ms)
    return [
        Finding("key_without_ttl", cell.name, key, "results for listeners", args=(keep_ms,))
        for key, ttl in zip(keys, ends, strict=True)
        if ttl == -1
    ]


async def check_rooms(context: ScanContext, cell: Cell, codes: Sequence[str]) -> list[Finding]:
    """Find rooms without a timer to end them."""
    timers = await context.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"room|{code}") for code in codes]
    )
    return [
        Finding("room_without_timer", cell.name, code, "")
        for code, timer in zip(codes, timers, strict=True)
        if timer is None
    ]
