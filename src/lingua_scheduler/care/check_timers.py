"""Timers of a cell: each must be of something that is there. The kinds are the sweeper's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.care.check_jobs import ENDED
from lingua_scheduler.care.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.care.ground import Ground
    from lingua_scheduler.state.keys import Cell

# Kind -> how many parts follow it.
PARTS = {"j": 1, "g": 2, "s": 1, "n": 1, "m": 1, "l": 4, "r": 4, "x": 1, "room": 1}
# Kind -> what it is a timer of.
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


async def check_timers(ground: Ground, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find timers of things that do not exist, and timers of no known kind."""
    found = []
    async for page in ground.reader.scores(cell.slot, cell.due):
        known = []
        for timer, at_ms in page:
            kind, *parts = timer.split("|")
            if PARTS.get(kind) == len(parts):
                known.append((timer, at_ms))
            else:
                found.append(Finding("timer_unknown", cell.name, timer, ""))
        answers = await ground.reader.ask(cell.slot, [_question(cell, t) for t, _ in known])
        for (timer, at_ms), answer in zip(known, answers, strict=True):
            why = _missing(ground, timer, answer)
            if why:
                overdue_ms = ground.now_ms(cell) - at_ms
                age_ms = overdue_ms if overdue_ms > 0 else None
                found.append(Finding("timer_of_nothing", cell.name, timer, why, age_ms, (timer,)))
    return found


def _question(cell: Cell, timer: str) -> tuple[str | bytes, ...]:
    """Return the command whose answer says whether the timer's thing is there."""
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
        "r": ("EXISTS", cell.due),  # of another cell: see _missing
    }
    return others[kind]


def _missing(ground: Ground, timer: str, answer: Any) -> str:
    """Return why a timer is of nothing, '' if it is not."""
    kind, name = timer.split("|")[:2]
    if kind == "r":
        is_known = name in {cell.name for cell in ground.cells.all}
        return "" if is_known else f"no such cell: {name}"
    if kind in "sg":
        epoch, closed = answer or (None, None)
        # A lane's timer does not know that its session was closed, and does no harm.
        answer, is_over = epoch, closed is not None and kind == "s"
    else:
        is_over = kind == "j" and answer is not None and answer.decode() in ENDED
    if answer is None:
        return f"no such {THINGS[kind]}"
    return f"the {THINGS[kind]} is over" if is_over else ""
