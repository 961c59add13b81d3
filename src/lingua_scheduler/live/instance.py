"""One scheduler process: builds its parts, keeps the time, and ends in good order.

The loops: timers of the cells (`sweep`), leases of sessions (`renew`), that this instance lives
(`beat`), letters of others, the fleet's snapshot, jobs that last. Each meets a store that is away
by trying again; none of them ends before the instance does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lingua_scheduler.between.post import Post
from lingua_scheduler.config import resolve_instance_id
from lingua_scheduler.errors import StoreRejected, StoreUnavailable
from lingua_scheduler.jobs.dispatcher import Dispatcher
from lingua_scheduler.jobs.fleet import FleetSnapshot, read_fleet
from lingua_scheduler.jobs.pinning import Pins, old_names
from lingua_scheduler.jobs.relay import Relay
from lingua_scheduler.jobs.sweeper import Sweeper
from lingua_scheduler.live.board import JobBoard, Means
from lingua_scheduler.live.clock import SystemClock
from lingua_scheduler.live.hall import Hall
from lingua_scheduler.live.journal import Journal
from lingua_scheduler.live.mail import Mail
from lingua_scheduler.live.neighbours import Neighbours
from lingua_scheduler.live.pairing import Pairing
from lingua_scheduler.live.reception import Reception
from lingua_scheduler.live.registry import NodeRegistry
from lingua_scheduler.live.tasks import AT_ONCE, Tasks, all_of
from lingua_scheduler.live.workshop import Workshop
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.to_client import GoAway
from lingua_scheduler.metrics import LiveMetrics
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.policy import FleetPolicy, Policy
from lingua_scheduler.state.room_store import RoomStore
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.session import LiveSession
    from lingua_scheduler.logs import EventLog
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Connection

FLEET_EVERY_S = 1.0
MARK_EVERY_S = 0.25
ROOMS_EVERY_S = 5.0
LAG_EVERY_S = 0.5
VERIFY_EVERY_S = 0.25
ACKNOWLEDGE_EVERY_S = 1.0
# How long a client that was told to go elsewhere has for it, before it is finished here.
GO_ELSEWHERE_MS = 5000
# How long the last letters and the nodes that are left may keep an instance from its end.
LAST_STEPS_S = 1.0
# Sessions renewed by one call.
RENEWED_AT_ONCE = 500


class Instance:
    """Everything one process does between its sockets and the store."""

    def __init__(self, settings: Settings, connection: Connection, log: EventLog) -> None:
        self.settings = settings
        self._connection = connection
        self.log = log
        self.id = resolve_instance_id(settings)
        self.clock = SystemClock()
        self.metrics = LiveMetrics()
        self.tasks = Tasks(self.failed)
        self.cells = Cells(settings.redis.key_prefix, settings.cells)
        self.store = Store(connection, FleetPolicy.of(settings))
        self.fleet = FleetSnapshot(self.store, self.cells)
        self._pins = Pins(settings)
        dispatcher = Dispatcher(self.store, self.cells, self.fleet, Policy.of(settings))
        relay = Relay(self.store, self.cells)
        self.sweeper = Sweeper(self.store, dispatcher, relay)
        letters_max = settings.instances.letters_max
        post = Post(connection, settings.redis.key_prefix, self.id, maxlen=letters_max)
        journal = Journal(settings.log)
        means = Means(self.clock, self.metrics, self.tasks, log, post, relay, journal)
        self.board = JobBoard(self.id, self.store, dispatcher, self.cells, means)
        self.workshop = self.board.workshop = Workshop(self.board)
        rooms = RoomStore.of(connection, self.cells, settings)
        self.hall = Hall(self.board, rooms, settings)
        self.sweeper.on_room = self.hall.sweep
        self.registry = NodeRegistry(self.board, settings)
        self.pairing = Pairing(connection, self.cells.all[0], self.clock)
        self.reception = Reception(self.board, self.hall, self.pairing, self.fleet, settings)
        mail = Mail(self.board, self.hall)
        self.board.take_letter = mail.take
        self.neighbours = Neighbours(settings, connection, self.board, mail, log)
        # No new sessions and nodes; what is here is finished.
        self.draining = False
        self._store_seen = True
        # Which links to the store are in use.
        self._generation = connection.generation
        # How often there was reason to doubt what the store has, and which of them were seen to:
        # all of it, and the nodes.
        self._doubts = self._verified = self._nodes_verified = 0
        self._follow()

    def _follow(self) -> None:
        metrics, board = self.metrics, self.board
        metrics.sessions.follow(lambda: len(board.sessions))
        metrics.rooms.follow(lambda: len(self.hall.rooms))
        metrics.web_task_pause_ms.set(self.settings.segmentation.pause_ms)
        metrics.sources += [self._count_nodes, self._count_cells]

    def _count_nodes(self) -> None:
        """Count nodes and slots by the sockets here; a node that drains is not ready."""
        nodes, metrics = self.board.nodes.values(), self.metrics
        found = Counter("draining" if node.draining else node.status for node in nodes)
        for status in ("registering", "ready", "degraded", "draining"):
            metrics.nodes.labels(status=status).set(found[status])
        held = Counter(job.node for job in self.workshop.held.values())
        free = sum(max(0, n.max_jobs - held[n.id]) for n in nodes if n.takes_work)
        metrics.slots.labels(state="taken").set(held.total())
        metrics.slots.labels(state="free").set(free)

    def _count_cells(self) -> None:
        """Tell what is counted of a whole cell for those cells that we speak for."""
        known = self.fleet.counts
        ours = [
            known[cell.name]
            for place, cell in enumerate(self.cells.all)
            if cell.name in known and self.neighbours.speaks_for(place)
        ]
        self.metrics.queue_depth.set(sum(counts.waiting for counts in ours))
        self.metrics.nodes.labels(status="offline").set(sum(counts.offline for counts in ours))

    def failed(self, error: BaseException) -> None:
        """An error nobody handled: counted and logged, the others go on."""
        if isinstance(error, StoreUnavailable):
            self.log("store.unavailable", where=error.where, why=error.why)
            return
        self.metrics.internal_errors_total.inc()
        # Its type and place only: the message of an unforeseen error may quote what somebody said.
        self.log.error("instance.error", error=error)

    async def forget_former(self) -> None:
        """In local mode the store is ours alone: nodes and sessions in it are a dead process's.

        Sessions whose clients may come back are left to them.
        """
        if self.settings.deployment_mode != "local":
            return
        for cell in self.cells.all:
            for timer in await self._connection.command(cell.slot, "ZRANGE", cell.due, 0, -1):
                kind, _, name = timer.decode().partition("|")
                if kind == "s" and not await self._connection.command(
                    cell.slot, "HGET", cell.key("session", name), "token"
                ):
                    await self.board.dispatcher.close_session(cell, name, "instance_restarted")
            for row in (await read_fleet(self.store, cell)).nodes.values():
                key = cell.key("node", row.id)
                conn = await self._connection.command(cell.slot, "HGET", key, "conn")
                await self.store.node_offline(cell, row.id, conn.decode())

    # Loops

    async def open(self) -> None:
        """Be ready for the first socket."""
        try:
            await self.store.warm()
        except StoreRejected as error:
            # A user made by an older ACL line: each script is loaded when it is first needed.
            self.log.warning("store.cold", error=error)
        await self.forget_former()
        await self.neighbours.open()
        for sentence in old_names(self.settings):
            self.log.warning("config.old_name", what=sentence)
        with suppress(StoreUnavailable):  # the loop looks again
            await self._look_at_fleet()

    async def run(self) -> None:
        """Keep the time until cancelled."""
        sweep_s = self.settings.jobs.sweep_interval_ms / 1000
        renew_s = self.settings.sessions.lease_ms / 3000
        async with asyncio.TaskGroup() as group:
            group.create_task(self.neighbours.inbox.run())
            group.create_task(self._every(self.neighbours.beat_s, self._beat))
            group.create_task(self._every(VERIFY_EVERY_S, self._verify))
            group.create_task(self._every(sweep_s, self._sweep))
            group.create_task(self._every(renew_s, self._renew))
            group.create_task(self._every(FLEET_EVERY_S, self._look_at_fleet))
            group.create_task(self._every(MARK_EVERY_S, self.workshop.mark_lasting))
            group.create_task(self._every(MARK_EVERY_S, self._look_for_outcomes))
            group.create_task(self._every(ACKNOWLEDGE_EVERY_S, self._acknowledge))
            group.create_task(self._every(ROOMS_EVERY_S, self._expire_rooms))
            group.create_task(self._watch_lag())

    async def _every(self, seconds: float, step: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await step()
            except StoreUnavailable as error:
                self._store_is(seen=False, why=str(error))
            await asyncio.sleep(seconds)

    def _store_is(self, *, seen: bool, why: str = "") -> None:
        if seen != self._store_seen:
            self._store_seen = seen
            self.log("store.back" if seen else "store.unavailable", why=why)

    async def _beat(self) -> None:
        if not await self.neighbours.beat():
            self.log("store.emptied", instance=self.id)
            self._doubts += 1

    async def _verify(self) -> None:
        """A link to the store was lost: it may have lost what it confirmed last, or all."""
        if self._generation != self._connection.generation:
            self._generation = self._connection.generation
            self._doubts += 1
        if self._verified != self._doubts:
            doubts = self._doubts
            await self._verify_all(doubts)
            self._verified = doubts

    async def _verify_all(self, doubts: int) -> None:
        """Look at everything once; again only at what could not be reached."""
        if self._nodes_verified != doubts:
            self._nodes_verified = doubts
            for node in list(self.board.nodes.values()):
                self.tasks.start(self.registry.enter_again(node))
        sessions = self.board.sessions.values()
        doubtful = [s for s in sessions if not s.lapsed and s.verified != doubts]
        try:
            await all_of(self._verify_session(session, doubts) for session in doubtful)
        finally:
            await self.hall.verify()

    async def _verify_session(self, session: LiveSession, doubts: int) -> None:
        # First of all whose it is: its client may have gone elsewhere while we were away.
        await self._renew_some(session.home, [session.id], session.lease_ms)
        if not session.lapsed:
            await session.verify()
        session.verified = doubts

    async def _sweep(self) -> None:
        await all_of(self._sweep_cell(cell) for cell in self.cells.all)
        # Said here and not by every loop: not all of them asked the store.
        self._store_is(seen=True)

    async def _sweep_cell(self, cell: Cell) -> None:
        self.board.perform(await self.sweeper.sweep(cell))

    async def _renew(self) -> None:
        """Keep the leases of our sessions; those that are not ours any more are looked at."""
        groups: dict[tuple[str, int], list[str]] = {}
        for session in self.board.sessions.values():
            groups.setdefault((session.home.name, session.lease_ms), []).append(session.id)
        await all_of(
            self._renew_some(self.cells.named(name), ids[at : at + RENEWED_AT_ONCE], lease_ms)
            for (name, lease_ms), ids in groups.items()
            for at in range(0, len(ids), RENEWED_AT_ONCE)
        )

    async def _renew_some(self, cell: Cell, ids: list[str], lease_ms: int) -> None:
        for session_id in await self.store.session_renew(cell, self.id, ids, lease_ms):
            found = self.board.sessions.get(session_id)
            if found is not None and not found.lapsed:
                await found.admission.reopen()

    async def _look_at_fleet(self) -> None:
        await self.fleet.refresh()
        if not self._pins.are_there:
            return
        problems, served = self._pins.news(self.fleet.pools)
        for sentence in problems:
            self.log.warning("tenant.unserved", what=sentence)
        for tenant in served:
            self.log("tenant.served", tenant=tenant)

    async def _look_for_outcomes(self) -> None:
        now = self.clock.now_ms()
        overdue = [s for s in self.board.sessions.values() if s.deliverer.is_overdue(now)]
        await all_of(session.recover() for session in overdue)

    async def _acknowledge(self) -> None:
        for count, session in enumerate(list(self.board.sessions.values())):
            session.acknowledge_audio()
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)  # sessions are many, and speech does not wait

    async def _expire_rooms(self) -> None:
        await self.hall.refresh()

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))

    # The end

    async def drain(self) -> bool:
        """Take nothing new, hand over or finish what is here; tells whether all of it was."""
        self.draining = self.neighbours.presence.draining = True
        limit_ms = self.settings.server.drain_ms
        others = self.neighbours.are_there
        sessions = list(self.board.sessions.values())
        for session in sessions:
            session.teller.addition(
                GoAway(reason="shutdown", reconnect_after_ms=0, closes_in_ms=limit_ms)
            )
            session.moves = others and session.is_resumable
            if not session.moves:
                session.end_speech()
        self.board.draining = True
        moving = [self._send_nodes_away(limit_ms)] if others else []
        done = await asyncio.gather(
            *moving, *(self._finish(session, limit_ms, moves=others) for session in sessions)
        )
        for session in sessions:
            self._close_outlet(session)
        await self._let_nodes_go()
        return all(done)

    async def _let_nodes_go(self) -> None:
        """Close the nodes that are left; what they hold is with others before this ends."""
        nodes = list(self.board.nodes.values())
        for node in nodes:
            node.is_sent_away = True
            node.outlet.close(CloseCode.GOING_AWAY, "the instance stops")
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_STEPS_S):
                await asyncio.gather(*(self.registry.gone(node) for node in nodes))
        await self.tasks.rest(LAST_STEPS_S)

    async def _send_nodes_away(self, limit_ms: int) -> bool:
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await asyncio.gather(
                    *(self.registry.send_away(node) for node in list(self.board.nodes.values()))
                )
        except TimeoutError:
            return False
        return True

    async def _finish(self, session: LiveSession, limit_ms: int, *, moves: bool) -> bool:
        """Let a client go when it has heard everything, or has gone elsewhere.

        In a room it may still hear others.
        """
        if moves and session.is_resumable:
            if await session.until_elsewhere(min(limit_ms, GO_ELSEWHERE_MS)):
                return True
            session.end_speech()
        is_done = await session.until_settled(limit_ms)
        if self.hall.rooms.room_of(session.id) is None:
            self._close_outlet(session)
        return is_done

    def _close_outlet(self, session: LiveSession) -> None:
        if session.outlet is not None:
            session.outlet.close(CloseCode.GOING_AWAY, "the instance stops")
