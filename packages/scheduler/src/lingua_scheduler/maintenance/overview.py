"""The whole deployment at one moment, for operators: instances, cells, and their problems.

It only reads, page by page, with commands that the scheduler's own store user may use. Counts of a
changing store are approximate. Counting stops at a bound, and the result says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.maintenance.store_reader import StoreReader
from lingua_scheduler.peers.inspection import inspect_instances, state_of
from lingua_scheduler.peers.presence import InstanceInfo
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from lingua_scheduler.config import Settings
    from lingua_scheduler.peers.inspection import InboxRow
    from lingua_scheduler.state.connection import Connection
    from lingua_scheduler.state.keys import Cell

# A timer that was due this long ago should have been handled.
OVERDUE_MS = 5000
# The most timers of one cell that are read to count sessions.
TIMERS_MAX = 200_000
# An inbox with more messages than this is not read fast enough.
INBOX_LONG = 100


class InstanceView(msgspec.Struct, frozen=True):
    """One instance; -1 is "unknown", for an instance without a record."""

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
    """The whole deployment, with a summary."""

    well: bool
    sentence: str
    instances: tuple[InstanceView, ...]
    cells: tuple[CellView, ...]
    # Sessions and nodes of unknown instances.
    sessions_of_nobody: int
    nodes_of_nobody: int
    # Whether some timers were not read: there may be more sessions.
    is_cut: bool


class _Owned:
    """The number of sessions and nodes by instance."""

    def __init__(self) -> None:
        self.sessions: Counter[str] = Counter()
        self.nodes: Counter[str] = Counter()
        self.is_cut = False


async def overview(connection: Connection, settings: Settings) -> Overview:
    """Read the whole deployment once."""
    prefix = settings.redis.key_prefix
    cells = Cells(prefix, settings.cells)
    reader, store = StoreReader(connection, prefix), Store(connection, FleetPolicy.of(settings))
    owned = _Owned()
    rows = await inspect_instances(connection, prefix)
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
        *problems_of_inboxes(instances),
    ]
    alive = sum(view.state in ("alive", "draining") for view in instances)
    return Overview(
        well=not problems,
        sentence=sentence_of(problems, alive, owned),
        instances=instances,
        cells=places,
        sessions_of_nobody=sessions,
        nodes_of_nobody=nodes,
        is_cut=owned.is_cut,
    )


async def _cell(store: Store, reader: StoreReader, cell: Cell, owned: _Owned) -> CellView:
    now_ms = await store.cells.time(cell)
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
    return CellView(
        cell=cell.name,
        nodes=nodes or 0,
        waiting=waiting or 0,
        timers=timers or 0,
        due=due or 0,
        overdue=overdue or 0,
    )


async def _count_nodes(reader: StoreReader, cell: Cell, owned: _Owned) -> None:
    """Count the nodes of each host; offline nodes have no host."""
    async for nodes in reader.names(cell.slot, cell.key("nodes")):
        rows = await reader.ask(
            cell.slot,
            [("HMGET", cell.key("node", node), "status", "instance") for node in nodes],
        )
        for row in rows:
            if row and row[0] not in (None, b"offline"):
                owned.nodes[(row[1] or b"").decode()] += 1


async def _count_sessions(reader: StoreReader, cell: Cell, owned: _Owned) -> None:
    """Count the sessions of each owner: every open session has a timer."""
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
    about = record.about if record is not None else InstanceInfo()
    return InstanceView(
        instance=name,
        state=state_of(row, silence_ms),
        uptime_ms=record.uptime_ms if record is not None else -1,
        beat_age_ms=record.age_ms if record is not None else -1,
        version=about.version,
        host=about.host,
        pid=about.pid,
        url=about.url,
        inbox=row.length,
        pending=row.pending,
        dead_letters=row.dead_letters,
        sessions=owned.sessions[name],
        nodes=owned.nodes[name],
    )


def problems_of_instances(instances: tuple[InstanceView, ...]) -> list[str]:
    """Return the problems of instances: dead, draining, or orphaned inboxes."""
    found = []
    states = Counter(view.state for view in instances)
    if not states["alive"] + states["draining"]:
        found.append("no instance is alive (`lingua serve` starts one)")
    elif not states["alive"]:
        found.append("every instance is draining")
    for state, text in (("dead", "is dead"), ("orphan", "left an inbox without an owner")):
        names = [view.instance for view in instances if view.state == state]
        if names:
            found.append(f"{listed(names)} {text if len(names) == 1 else plural(text)}")
    return found


def problems_of_cells(
    cells: tuple[CellView, ...], sessions_of_nobody: int, nodes_of_nobody: int
) -> list[str]:
    """Return the problems of cells: overdue timers, waiting jobs, unknown owners."""
    found = []
    late = [cell.cell for cell in cells if cell.overdue]
    if late:
        found.append(f"timers are overdue in {listed(late)}")
    for count, one in ((nodes_of_nobody, "node"), (sessions_of_nobody, "session")):
        if count:
            found.append(f"{count_of(count, one)} of unknown instances")
    waiting = sum(cell.waiting for cell in cells)
    if waiting:
        found.append(f"{count_of(waiting, 'job')} waiting for a node")
    return found


def problems_of_inboxes(instances: tuple[InstanceView, ...]) -> list[str]:
    """Return the problems of inboxes: long ones, and dead letters."""
    found = []
    full = [view.instance for view in instances if view.inbox > INBOX_LONG]
    if full:
        found.append(f"messages pile up for {listed(full)}")
    dead_letters = sum(view.dead_letters for view in instances)
    if dead_letters:
        found.append(f"{count_of(dead_letters, 'dead letter')} (`lingua dlq ls`)")
    return found


def sentence_of(problems: list[str], alive: int, owned: _Owned) -> str:
    """Return the summary."""
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
    """Return all names with commas; not shortened, because `--json` has this too."""
    return ", ".join(names)


def plural(text: str) -> str:
    """Return the text for several subjects."""
    return text.replace("is ", "are ", 1)
