"""Sessions, their outboxes, what others hear of them, and rooms: what nothing would end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.care.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.care.ground import Ground
    from lingua_scheduler.state.keys import Cell


async def check_sessions(ground: Ground, cell: Cell, sessions: Sequence[str]) -> list[Finding]:
    """Find open sessions without a timer, and others that stay."""
    keys = [cell.key("session", session) for session in sessions]
    fields = ("epoch", "closed", "owner", "opened_at")
    rows = await ground.reader.ask(cell.slot, [("HMGET", key, *fields) for key in keys])
    timers = await ground.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"s|{session}") for session in sessions]
    )
    ends = await ground.reader.ask(cell.slot, [("PTTL", key) for key in keys])
    found = []
    for session, row, timer, ttl in zip(sessions, rows, timers, ends, strict=True):
        if row is None:
            continue
        epoch, closed, owner, opened_at = row
        is_open = epoch is not None and closed is None
        if is_open and timer is None:
            age_ms = ground.now_ms(cell) - int(opened_at or ground.now_ms(cell))
            who = (owner or b"").decode()
            about = f"of {who or 'nobody'}, opened"
            found.append(
                Finding("session_without_timer", cell.name, session, about, age_ms, (who,))
            )
        elif not is_open and ttl == -1:
            age = ground.now_ms(cell) - int(closed) if closed else None
            about = "closed" if closed else "it was never opened"
            found.append(Finding("session_kept", cell.name, session, about, age))
    return found


async def check_outboxes(ground: Ground, cell: Cell, sessions: Sequence[str]) -> list[Finding]:
    """Find outcomes that nobody will fetch and that stay."""
    rows = await ground.reader.ask(
        cell.slot,
        [("HMGET", cell.key("session", name), "epoch", "closed") for name in sessions],
    )
    ends = await ground.reader.ask(
        cell.slot, [("PTTL", cell.key("outbox", name)) for name in sessions]
    )
    found = []
    for session, row, ttl in zip(sessions, rows, ends, strict=True):
        epoch, closed = row or (None, None)
        if ttl == -1 and (epoch is None or closed is not None):
            about = "the session is closed" if closed else "the session does not exist"
            found.append(Finding("outbox_kept", cell.name, session, about))
    return found


async def check_relays(ground: Ground, cell: Cell, sessions: Sequence[str]) -> list[Finding]:
    """Find outcomes on their way to listeners that nobody would bring."""
    timers = await ground.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"x|{session}") for session in sessions]
    )
    return [
        Finding("relay_without_timer", cell.name, session, "")
        for session, timer in zip(sessions, timers, strict=True)
        if timer is None
    ]


async def check_heard(ground: Ground, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find results for listeners that would be kept for ever."""
    return await _endless(ground, cell, [cell.key("heard", name) for name in names])


async def check_said(ground: Ground, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find lists of such results that would."""
    return await _endless(ground, cell, [cell.key("said", name) for name in names])


async def _endless(ground: Ground, cell: Cell, keys: Sequence[str]) -> list[Finding]:
    ends = await ground.reader.ask(cell.slot, [("PTTL", key) for key in keys])
    keep_ms = str(2 * ground.policy.resume_ms)
    return [
        Finding("key_without_ttl", cell.name, key, "what others heard", args=(keep_ms,))
        for key, ttl in zip(keys, ends, strict=True)
        if ttl == -1
    ]


async def check_rooms(ground: Ground, cell: Cell, codes: Sequence[str]) -> list[Finding]:
    """Find rooms that nobody would end."""
    timers = await ground.reader.ask(
        cell.slot, [("ZSCORE", cell.due, f"room|{code}") for code in codes]
    )
    return [
        Finding("room_without_timer", cell.name, code, "")
        for code, timer in zip(codes, timers, strict=True)
        if timer is None
    ]
