"""The whole deployment at one moment, for people: every instance, every cell, and what is not well.

It only reads, with commands that a scheduler's own user has, page by page: what is counted while it
changes is about right. Counting stops at a bound, and that is told.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.between.survey import survey
from lingua_scheduler.care.reading import Reader
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from lingua_scheduler.between.survey import InboxRow
    from lingua_scheduler.config import Settings
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Connection

# A timer that rang so long ago should have been acted on.
OVERDUE_MS = 5000
# How many timers of one cell are read to count sessions.
TIMERS_MAX = 200_000
# An inbox with more letters than this is not read fast enough.
INBOX_LONG = 100


class InstanceView(msgspec.Struct, frozen=True):
    """One instance; -1 is "not known", of an instance without a record."""

    instance: str
    # alive, draining, dead (silent), orphan (an inbox without a record), gone (dead letters only)
    state: str
    uptime_ms: int
    beat_age_ms: int
    version: str
    host: str
    pid: int
    url: str
    inbox: int
    pending: int
    dead_letters: int
    sessions: int
    nodes: int


class CellView(msgspec.Struct, frozen=True):
    """One cell."""

    cell: str
    nodes: int
    waiting: int
    timers: int
    due: int
    overdue: int


class Overview(msgspec.Struct, frozen=True):
    """All of it, and a sentence on top."""

    well: bool
    sentence: str
    instances: tuple[InstanceView, ...]
    cells: tuple[CellView, ...]
    # Sessions and nodes of instances that are not known.
    sessions_of_nobody: int
    nodes_of_nobody: int
    # Whether some timers were not read, so that there may be more sessions.
    is_cut: bool


class _Owned:
    """Whose sessions and nodes were counted."""

    def __init__(self) -> None:
        self.sessions: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        self.is_cut = False


async def overview(connection: Connection, settings: Settings) -> Overview:
    """Read everything once."""
    prefix = settings.redis.key_prefix
    cells = Cells(prefix, settings.cells)
    reader, store = Reader(connection, prefix), Store(connection, FleetPolicy.of(settings))
    owned = _Owned()
    rows = await survey(connection, prefix)
    places = tuple(await asyncio.gather(*(_cell(store, reader, cell, owned) for cell in cells.all)))
    instances = tuple(_instance(row, owned, settings.instances.silence_ms) for row in rows)
    known = {view.instance for view in instances}
    sessions, nodes = (
        sum(count for name, count in counts.items() if name not in known)
        for counts in (owned.sessions, owned.nodes)
    )
    problems = [
        *problems_of_instances(instances),
        *problems_of_cells(places, sessions, nodes),
        *problems_of_letters(instances),
    ]
    alive = sum(view.state in ("alive", "draining") for view in instances)
    return Overview(
        not problems, sentence_of(problems, alive, owned), instances, places, sessions, nodes,
        owned.is_cut,
    )  # fmt: skip


async def _cell(store: Store, reader: Reader, cell: Cell, owned: _Owned) -> CellView:
    now_ms = await store.cell_time(cell)
    nodes, waiting, timers, due, overdue = await reader.ask(
        cell.slot,
        [
            ("ZCARD", cell.key("nodes")),
            ("ZCARD", cell.key("pending")),
            ("ZCARD", cell.due),
            ("ZCOUNT", cell.due, "-inf", now_ms),
            ("ZCOUNT", cell.due, "-inf", now_ms - OVERDUE_MS),
        ],
    )
    await _count_nodes(reader, cell, owned)
    await _count_sessions(reader, cell, owned)
    return CellView(cell.name, nodes or 0, waiting or 0, timers or 0, due or 0, overdue or 0)


async def _count_nodes(reader: Reader, cell: Cell, owned: _Owned) -> None:
    """Count the nodes of each host; those that are offline have none."""
    async for nodes in reader.names(cell.slot, cell.key("nodes")):
        rows = await reader.ask(
            cell.slot,
            [("HMGET", cell.key("node", node), "status", "instance") for node in nodes],
        )
        for row in rows:
            if row and row[0] not in (None, b"offline"):
                owned.nodes[(row[1] or b"").decode()] += 1


async def _count_sessions(reader: Reader, cell: Cell, owned: _Owned) -> None:
    """Count the sessions of each owner: every open one has a timer."""
    seen: set[str] = set()
    read = 0
    async for page in reader.scores(cell.slot, cell.due):
        fresh = [timer[2:] for timer, _ in page if timer.startswith("s|") and timer[2:] not in seen]
        seen.update(fresh)
        rows = await reader.ask(
            cell.slot,
            [("HMGET", cell.key("session", session), "owner", "closed") for session in fresh],
        )
        for row in rows:
            if row and row[0] is not None and row[1] is None:
                owned.sessions[row[0].decode()] += 1
        read += len(page)
        if read >= TIMERS_MAX:
            owned.is_cut = True
            return


def _instance(row: InboxRow, owned: _Owned, silence_ms: int) -> InstanceView:
    name, record = row.instance, row.record
    counts = (row.length, row.pending, row.dead_letters, owned.sessions[name], owned.nodes[name])
    if record is None:
        state = "gone" if row.dead_letters and not row.length else "orphan"
        return InstanceView(name, state, -1, -1, "", "", 0, "", *counts)
    state = "draining" if record.draining else "alive"
    if record.age_ms > silence_ms:
        state = "dead"
    about = record.about
    return InstanceView(
        name, state, record.uptime_ms, record.age_ms, about.version, about.host, about.pid,
        about.url, *counts,
    )  # fmt: skip


def problems_of_instances(instances: tuple[InstanceView, ...]) -> list[str]:
    """Return who does not live, or not for long."""
    found = []
    states = Counter(view.state for view in instances)
    if not states["alive"] + states["draining"]:
        found.append("no instance lives (`lingua serve` starts one)")
    elif not states["alive"]:
        found.append("every instance is draining")
    for state, text in (("dead", "is dead"), ("orphan", "left an inbox that nobody owns")):
        names = [view.instance for view in instances if view.state == state]
        if names:
            found.append(f"{listed(names)} {text if len(names) == 1 else plural(text)}")
    return found


def problems_of_cells(
    cells: tuple[CellView, ...], sessions_of_nobody: int, nodes_of_nobody: int
) -> list[str]:
    """Return what is late in the cells, and what is of nobody."""
    found = []
    late = [cell.cell for cell in cells if cell.overdue]
    if late:
        found.append(f"timers are overdue in {listed(late)}")
    for count, one in ((nodes_of_nobody, "node"), (sessions_of_nobody, "session")):
        if count:
            found.append(f"{count_of(count, one)} of instances that are not known")
    waiting = sum(cell.waiting for cell in cells)
    if waiting:
        found.append(f"{count_of(waiting, 'job')} waiting for a node")
    return found


def problems_of_letters(instances: tuple[InstanceView, ...]) -> list[str]:
    """Return who does not keep up with its letters."""
    found = []
    full = [view.instance for view in instances if view.inbox > INBOX_LONG]
    if full:
        found.append(f"letters pile up for {listed(full)}")
    dead_letters = sum(view.dead_letters for view in instances)
    if dead_letters:
        found.append(f"{count_of(dead_letters, 'dead letter')} (`lingua dlq ls`)")
    return found


def sentence_of(problems: list[str], alive: int, owned: _Owned) -> str:
    """Return the one sentence on top."""
    if problems:
        return f"not well: {'; '.join(problems)}"
    counts = [
        count_of(alive, "instance"),
        count_of(owned.nodes.total(), "node"),
        count_of(owned.sessions.total(), "session"),
    ]
    return f"all is well: {', '.join(counts)}"


def count_of(count: int, one: str) -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def listed(names: list[str]) -> str:
    """Return names as people list them; all of them, as this is in `--json`, too."""
    return ", ".join(names)


def plural(text: str) -> str:
    """Return the same said of several."""
    return text.replace("is ", "are ", 1)
