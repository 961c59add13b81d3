"""Checks of a cell's timers: each must belong to an existing object. The sweeper has the kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.maintenance.check_jobs import ENDED
from lingua_scheduler.maintenance.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.keys import Cell

# Kind -> the number of parts that follow it.
PARTS = {"j": 1, "g": 2, "s": 1, "n": 1, "m": 1, "l": 4, "r": 4, "x": 1, "room": 1}
# Kind -> the object it belongs to.
THINGS = {
    "j": "job",
    "g": "session",
    "s": "session",
    "n": "node",
    "m": "node",
    "l": "slot",
    "x": "outcome on its way",
    "room": "room",
}


async def check_timers(context: ScanContext, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find timers of missing objects, and timers of unknown kinds."""
    found = []
    async for page in context.reader.scores(cell.slot, cell.due):
        known = []
        for timer, at_ms in page:
            kind, *parts = timer.split("|")
            if PARTS.get(kind) == len(parts):
                known.append((timer, at_ms))
            else:
                found.append(Finding("timer_unknown", cell.name, timer, ""))
        answers = await context.reader.ask(cell.slot, [_question(cell, t) for t, _ in known])
        for (timer, at_ms), answer in zip(known, answers, strict=True):
            why = _missing(context, timer, answer)
            if why:
                overdue_ms = context.now_ms(cell) - at_ms
                age_ms = overdue_ms if overdue_ms > 0 else None
                found.append(
                    Finding(
                        "timer_of_nothing",
                        cell.name,
                        timer,
                        why,
                        age_ms=age_ms,
                        args=(timer,),
                    )
                )
    return found


def _question(cell: Cell, timer: str) -> tuple[str | bytes, ...]:
    """Return the command whose reply tells whether the timer's object exists."""
    kind, name, *rest = timer.split("|")
    if kind == "j":
        return ("HGET", cell.key("job", name), "state")
    if kind in "sg":
        return ("HMGET", cell.key("session", name), "epoch", "closed")
    if kind in "nm":
        return ("HGET", cell.key("node", name), "status")
    others = {
        "l": ("ZSCORE", cell.key("leases", name), "|".join(rest)),
        "x": ("LINDEX", cell.key("relay", name), "0"),
        "room": ("HGET", cell.key("room", name), "tenant"),
        "r": ("EXISTS", cell.due),  # the object is in another cell: see `_missing`
    }
    return others[kind]


def _missing(context: ScanContext, timer: str, answer: Any) -> str:
    """Return why a timer has no object, '' if it has one."""
    kind, name = timer.split("|")[:2]
    if kind == "r":
        is_known = name in {cell.name for cell in context.cells.all}
        return "" if is_known else f"no such cell: {name}"
    if kind in "sg":
        epoch, closed = answer or (None, None)
        # A lane's timer may outlive its session; it does no harm.
        answer, is_over = epoch, closed is not None and kind == "s"
    else:
        is_over = kind == "j" and answer is not None and answer.decode() in ENDED
    if answer is None:
        return f"no such {THINGS[kind]}"
    return f"the {THINGS[kind]} is over" if is_over else ""
