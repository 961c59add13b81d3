"""The whole state at one moment: the parts of all workers, and what the store knows of the rest.

Read once a second while somebody looks. Nodes and inboxes cost calls to the store: each is read
again only after a multiple of the time that its last reading took, so that a large fleet is shown
a little late instead of loading the store. If the store does not answer, the last rows are shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from lingua_scheduler.edge.answers import NodeLanguages, OverAnswer
from lingua_scheduler.edge.console import documents as doc
from lingua_scheduler.edge.console.own_part import SHOWN_MAX, ConsolePart, own_part
from lingua_scheduler.edge.console.rates import ServiceHistory
from lingua_scheduler.edge.console.verdict import Observed, judge
from lingua_scheduler.edge.sibling_pages import decoded
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.metrics import BUCKET_MS
from lingua_scheduler.nodes.pressure import read_pressure
from lingua_scheduler.peers.inspection import state_of
from lingua_wire import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from lingua_scheduler.edge.sibling_pages import Siblings
    from lingua_scheduler.jobs.fleet import CellPool
    from lingua_scheduler.peers.deadletters import DeadLetter
    from lingua_scheduler.peers.inspection import InboxRow
    from lingua_scheduler.runtime.instance import Instance
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import NodeRow

NODES_MAX = 500
LETTERS_MAX = 20
LANGUAGES_MAX = 60
# Jobs of one demand that are counted.
QUEUED_MAX = 20
READ_S = 0.8
# A reading may take this share of the time.
SHARE = 50
INBOXES_EVERY_MS = 3000
# About what people call the same time; a heartbeat is not worth an update.
BEAT_STEP_MS = 5000

T = TypeVar("T")


class SpacedReading(Generic[T]):
    """A reading of the store that is repeated no more often than its cost allows."""

    def __init__(self, read: Callable[[], Awaitable[T]], first: T, every_ms: float = 0) -> None:
        self._read = read
        self._every_ms = every_ms
        self._due_ms = 0.0
        # The last answer, and whether the last attempt succeeded.
        self.rows = first
        self.is_up = True

    async def refresh(self, clock: Callable[[], float]) -> None:
        """Read again if it is time to; an unavailable store changes nothing."""
        began = clock()
        if began < self._due_ms:
            return
        try:
            async with asyncio.timeout(READ_S):
                self.rows = await self._read()
            self.is_up = True
        except (StoreUnavailable, StoreRejected, TimeoutError):
            self.is_up = False
        took = clock() - began
        self._due_ms = began + max(self._every_ms, SHARE * took if self.is_up else 0)


class DeploymentReader:
    """Reads the state that the console shows."""

    def __init__(self, instance: Instance, siblings: Siblings) -> None:
        self._instance = instance
        self._siblings = siblings
        self._started_at_ms = instance.clock.wall_ms()
        self._history = ServiceHistory()
        no_nodes: dict[str, doc.ConsoleNode] = {}
        no_queues: tuple[doc.ConsoleQueue, ...] = ()
        self._nodes = SpacedReading(self._read_nodes, no_nodes)
        self._queues = SpacedReading(self._read_queues, no_queues)
        no_inboxes: tuple[tuple[InboxRow, ...], tuple[DeadLetter, ...]] = ((), ())
        self._inboxes = SpacedReading(self._read_inboxes, no_inboxes, INBOXES_EVERY_MS)

    async def read(self) -> doc.ConsoleState:
        """Return the whole state."""
        clock = self._instance.clock.now_ms
        readings = (self._nodes, self._queues, self._inboxes)
        parts = asyncio.ensure_future(self._parts())
        await asyncio.gather(parts, *(reading.refresh(clock) for reading in readings))
        return self._state(parts.result(), is_up=all(reading.is_up for reading in readings))

    async def _parts(self) -> list[ConsolePart]:
        after = self._history.asked_after()
        others = await self._siblings.ask("console", after=after)
        own = own_part(self._instance, self._started_at_ms, after)
        return [own, *decoded(others, ConsolePart)]

    def _state(self, parts: list[ConsolePart], *, is_up: bool) -> doc.ConsoleState:
        for part in parts:
            self._history.add(part.instance, part.buckets)
        here = {part.instance for part in parts}
        nodes, (inboxes, letters) = self._nodes.rows, self._inboxes.rows
        instances = self._instances(inboxes, here, nodes)
        sessions = _sessions(parts)
        dead_letters = doc.ConsoleDeadLetters(
            total=sum(row.dead_letters for row in inboxes),
            newest=tuple(map(_dead_letter, letters)),
        )
        verdict = judge(
            Observed(
                store_up=is_up,
                draining=all(part.draining for part in parts),
                instances=instances,
                nodes=tuple(nodes.values()),
                queues=self._queues.rows,
                dead_letters=dead_letters.total,
                sessions=sessions.total,
                traffic=self._history.recent(),
            )
        )
        known = self._instance.fleet.counts.values()
        return doc.ConsoleState(
            at_ms=self._instance.clock.wall_ms(),
            service=self._service(parts, is_up=is_up),
            verdict=verdict,
            instances=instances,
            nodes=dict(nodes),
            nodes_total=max(len(nodes), sum(counts.nodes for counts in known)),
            pools=tuple(map(_pool, self._instance.fleet.counted_pools)),
            queues=self._queues.rows,
            sessions=sessions,
            rooms=_rooms(parts),
            dead_letters=dead_letters,
            rates=doc.ConsoleRates(
                of=self._siblings.service, bucket_ms=BUCKET_MS, rows=self._history.rows()
            ),
        )

    def _service(self, parts: list[ConsolePart], *, is_up: bool) -> doc.ServiceState:
        return doc.ServiceState(
            service=self._siblings.service,
            workers=len(parts),
            release=__version__,
            started_at_ms=min(part.started_at_ms for part in parts),
            draining=all(part.draining for part in parts),
            store_up=is_up,
            jobs=sum(part.jobs for part in parts),
        )

    # From the store

    async def _read_nodes(self) -> dict[str, doc.ConsoleNode]:
        cells = self._instance.cells.all
        pages = await asyncio.gather(
            *(self._instance.store.cells.nodes(cell, "", NODES_MAX) for cell in cells)
        )
        now_ms = self._instance.clock.wall_ms()
        known = self._nodes.rows
        found: dict[str, doc.ConsoleNode] = {}
        for cell, rows in zip(cells, pages, strict=True):
            for row in rows:
                beat_at_ms = now_ms - row.beat_age_ms
                last = known.get(row.node)
                if last is not None and abs(last.beat_at_ms - beat_at_ms) < BEAT_STEP_MS:
                    beat_at_ms = last.beat_at_ms
                found[row.node] = _node(cell, row, beat_at_ms)
        return dict(sorted(found.items())[:NODES_MAX])

    async def _read_queues(self) -> tuple[doc.ConsoleQueue, ...]:
        counts = self._instance.fleet.counts
        return tuple(
            [
                doc.ConsoleQueue(
                    cell=cell.name,
                    waiting=known.waiting,
                    nodes=known.nodes,
                    demands=await self._demands(cell) if known.waiting else (),
                )
                for cell in self._instance.cells.all
                if (known := counts.get(cell.name)) is not None
            ]
        )

    async def _demands(self, cell: Cell) -> tuple[doc.QueuedDemand, ...]:
        found: dict[str, int] = {}
        for job in await self._instance.store.cells.waiting(cell, QUEUED_MAX):
            found[job.demand] = found.get(job.demand, 0) + 1
        return tuple(
            doc.QueuedDemand(demand=demand, jobs=jobs) for demand, jobs in sorted(found.items())
        )

    async def _read_inboxes(self) -> tuple[tuple[InboxRow, ...], tuple[DeadLetter, ...]]:
        rows = await self._instance.inspect_peers()
        if not any(row.dead_letters for row in rows):
            return rows, ()
        return rows, await self._instance.dead_letters.list(LETTERS_MAX)

    def _instances(
        self, rows: Iterable[InboxRow], here: set[str], nodes: dict[str, doc.ConsoleNode]
    ) -> tuple[doc.ConsoleInstance, ...]:
        hosts = [node.instance for node in nodes.values() if node.health != "offline"]
        silence_ms = self._instance.settings.instances.silence_ms
        return tuple(_instance(row, silence_ms, here, hosts.count(row.instance)) for row in rows)


def _instance(row: InboxRow, silence_ms: int, here: set[str], nodes: int) -> doc.ConsoleInstance:
    record = row.record
    about = record.about if record is not None else None
    return doc.ConsoleInstance(
        id=row.instance,
        state=state_of(row, silence_ms),
        is_here=row.instance in here,
        started_at_ms=record.started_at_ms if record is not None else None,
        version=about.version if about is not None else "",
        host=about.host if about is not None else "",
        pid=about.pid if about is not None else 0,
        url=about.url if about is not None else "",
        inbox=row.length,
        dead_letters=row.dead_letters,
        nodes=nodes,
    )


def _node(cell: Cell, row: NodeRow, beat_at_ms: int) -> doc.ConsoleNode:
    platform, _, version = row.info.partition(" ")
    over = read_pressure(row.pressure) if row.over else ()
    return doc.ConsoleNode(
        id=row.node,
        health=health_of(row),
        status=row.status,
        draining=row.draining,
        drained_by_operator=row.held,
        over_by=tuple(
            OverAnswer(resource=one.resource, percent=one.percent, percent_max=one.percent_max)
            for one in over
        ),
        slots=row.max,
        leased=row.leased,
        extra=row.extra,
        streams=row.streams_max,
        streams_open=row.streams,
        pool=row.pool,
        cell=cell.name,
        instance=row.instance,
        beat_at_ms=beat_at_ms,
        platform=platform,
        version=version,
    )


def health_of(row: NodeRow) -> str:
    """Return one word for the health of a node, the most important one."""
    if row.status == "offline":
        return "offline"
    if row.held:
        return "drained"
    if row.draining:
        return "draining"
    if row.status != "ready":
        return row.status
    if row.leased + row.extra >= row.max:
        return "full"
    return "busy" if row.over else "ready"


def _pool(known: CellPool) -> doc.ConsolePool:
    can, row = known.view.can, known.row
    lists = (can.pairs, can.sources, can.targets, can.speech)
    pairs, sources, targets, voices = (
        some[:LANGUAGES_MAX] if some is not None else None for some in lists
    )
    return doc.ConsolePool(
        id=row.pool,
        cell=known.cell,
        languages=NodeLanguages(pairs=pairs, sources=sources, targets=targets, voices=voices),
        is_cut=any(some is not None and len(some) > LANGUAGES_MAX for some in lists),
        services=tuple(sorted(known.view.services)),
        features=can.features,
        labels=can.labels,
        private_to=can.owner,
        nodes=row.members,
        free=row.free,
        offline=row.offline,
    )


def _sessions(parts: Sequence[ConsolePart]) -> doc.ConsoleSessions:
    newest = [session for part in parts for session in part.newest_sessions]
    newest.sort(key=lambda session: (-session.opened_at_ms, session.id))
    return doc.ConsoleSessions(
        total=sum(part.sessions for part in parts), newest=tuple(newest[:SHOWN_MAX])
    )


def _rooms(parts: Sequence[ConsolePart]) -> doc.ConsoleRooms:
    """Return the rooms of all workers; one with members on two of them counts once, if shown."""
    found = {room.code: room for part in parts for room in part.newest_rooms}
    twice = sum(len(part.newest_rooms) for part in parts) - len(found)
    newest = sorted(found.values(), key=lambda room: (-room.created_at_ms, room.code))
    return doc.ConsoleRooms(
        total=sum(part.rooms for part in parts) - twice, newest=tuple(newest[:SHOWN_MAX])
    )


def _dead_letter(letter: DeadLetter) -> doc.ConsoleDeadLetter:
    return doc.ConsoleDeadLetter(
        id=letter.id,
        instance=letter.instance,
        kind=letter.kind,
        correlation=letter.correlation,
        reason=letter.reason,
        deliveries=letter.deliveries,
        moved_at_ms=letter.moved_at_ms,
    )
