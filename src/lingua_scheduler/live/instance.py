"""One scheduler process: builds its parts, opens and ends sessions, and keeps the time.

The loops: timers of the cells (`sweep`), leases of sessions (`renew`), the fleet's snapshot,
jobs that last, rooms that nobody uses. Each meets a store that is away by trying again; none of
them ends before the instance does.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lingua_scheduler.config import resolve_instance_id
from lingua_scheduler.errors import InvalidMessage, StoreUnavailable
from lingua_scheduler.jobs.dispatcher import Dispatcher
from lingua_scheduler.jobs.fleet import FleetSnapshot, read_fleet
from lingua_scheduler.jobs.sweeper import Sweeper
from lingua_scheduler.live.board import JobBoard, Means
from lingua_scheduler.live.clock import SystemClock
from lingua_scheduler.live.detectors import check_detector, detector_for
from lingua_scheduler.live.hall import Hall
from lingua_scheduler.live.pairing import Pairing
from lingua_scheduler.live.profile import Profile
from lingua_scheduler.live.registry import NodeRegistry
from lingua_scheduler.live.session import LiveSession, Opened
from lingua_scheduler.live.tasks import Tasks
from lingua_scheduler.messages.codes import CloseCode
from lingua_scheduler.messages.to_client import GoAway
from lingua_scheduler.metrics import LiveMetrics
from lingua_scheduler.session.segmenter import Segmenter, SegmentRules
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.policy import FleetPolicy, Policy
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.config import Settings
    from lingua_scheduler.live.board import Report
    from lingua_scheduler.live.teller import Outlet
    from lingua_scheduler.messages.from_client import SessionInit
    from lingua_scheduler.messages.shared import Coverage
    from lingua_scheduler.session.voice import VoiceDetector
    from lingua_scheduler.state.script import Connection

FLEET_EVERY_S = 1.0
# Sessions that find nobody for their languages may look again this often, all together.
FLEET_AGAIN_MS = 100
MARK_EVERY_S = 0.25
ROOMS_EVERY_S = 5.0
LAG_EVERY_S = 0.5
# Sessions renewed by one call.
RENEWED_AT_ONCE = 500
# How much longer than a job may last a closing session waits for its outcomes.
CLOSE_GRACE_MS = 2000


class Instance:
    """Everything one process does between its sockets and the store."""

    def __init__(self, settings: Settings, connection: Connection, log: Report) -> None:
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
        dispatcher = Dispatcher(self.store, self.cells, self.fleet, Policy.of(settings))
        self.sweeper = Sweeper(self.store, dispatcher)
        means = Means(self.clock, self.metrics, self.tasks, log)
        self.board = JobBoard(self.id, self.store, dispatcher, self.cells, means)
        self.hall = Hall(self.board.sessions, settings, self.clock)
        self.registry = NodeRegistry(self.board, settings)
        self.pairing = Pairing(self.clock)
        # No new sessions and nodes; what is here is finished.
        self.draining = False
        self._tenants = {tenant.id: tenant for tenant in settings.tenants}
        self._store_seen = True
        self._fleet_seen_ms = 0.0
        self._rules = rules_of(settings)
        check_detector(settings.segmentation.voice_detector)
        self._follow()

    def _follow(self) -> None:
        metrics, board = self.metrics, self.board
        metrics.sessions.follow(lambda: len(board.sessions))
        metrics.rooms.follow(lambda: len(self.hall.rooms))
        metrics.web_task_pause_ms.set(self.settings.segmentation.pause_ms)
        metrics.sources.append(self._count_nodes)

    def _count_nodes(self) -> None:
        nodes = self.board.nodes.values()
        for status in ("registering", "ready", "degraded", "draining", "offline"):
            count = sum(1 for node in nodes if node.status == status)
            self.metrics.nodes.labels(status=status).set(count)
        slots = sum(node.max_jobs for node in nodes if node.status == "ready")
        taken = sum(1 for job in self.board.jobs.values() if job.node)
        self.metrics.slots.labels(state="taken").set(taken)
        self.metrics.slots.labels(state="free").set(max(0, slots - taken))

    def failed(self, error: BaseException) -> None:
        """An error nobody handled: counted and logged, the others go on."""
        if isinstance(error, StoreUnavailable):
            self.log("store.unavailable", where=error.where, why=error.why)
            return
        self.metrics.internal_errors_total.inc()
        # Its type and place only: the message of an unforeseen error may quote what somebody said.
        self.log.error("instance.error", error=error)

    async def forget_former(self) -> None:
        """In local mode the store is ours alone: nodes and sessions in it are a dead process's."""
        if self.settings.deployment_mode != "local":
            return
        for cell in self.cells.all:
            for timer in await self._connection.command(cell.slot, "ZRANGE", cell.due, 0, -1):
                kind, _, name = timer.decode().partition("|")
                if kind == "s":
                    await self.board.dispatcher.close_session(cell, name, "instance_restarted")
            for row in (await read_fleet(self.store, cell)).nodes.values():
                key = cell.key("node", row.id)
                conn = await self._connection.command(cell.slot, "HGET", key, "conn")
                await self.store.node_offline(cell, row.id, conn.decode())

    # Sessions

    async def open_session(self, init: SessionInit, outlet: Outlet, *, tenant: str) -> LiveSession:
        """Open a session, or raise what is wrong with its first message."""
        pinned = self._tenants.get(tenant)
        paired = self.pairing.redeem(init.pairing_code) if init.pairing_code else ""
        profile = Profile.of(
            init, tenant=tenant, pools=pinned.pools if pinned else (), paired=paired
        )
        session_id = f"s-{secrets.token_hex(16)}"
        home = self.cells.home_of(tenant or session_id, session_id, pinned.cells if pinned else 1)
        reply, epoch = await self.store.session_open(
            home, session_id, self.id, tenant=tenant, lease_ms=self.settings.sessions.lease_ms
        )
        if reply is not Reply.OPENED:
            raise InvalidMessage("the session could not be opened")
        trace = init.trace_id or secrets.token_hex(16)
        opened = Opened(session_id, home, epoch, tenant, trace)
        session = LiveSession(
            opened, profile, outlet, board=self.board, hall=self.hall, settings=self.settings,
            segmenter=Segmenter(self._rules, profile.audio, self._detector(profile)),
        )  # fmt: skip
        self.board.sessions[session_id] = session
        return session

    def _detector(self, profile: Profile) -> VoiceDetector | None:
        if profile.audio.name != "pcm16":
            return None
        return detector_for(self.settings.segmentation.voice_detector, profile.audio.sample_rate)

    async def unserved(self, profile: Profile) -> tuple[str, ...]:
        """Return the wanted languages that no known node serves, by a fresh look if need be."""
        found = self._unserved(profile)
        now = self.clock.now_ms()
        if found and now - self._fleet_seen_ms > FLEET_AGAIN_MS:
            self._fleet_seen_ms = now
            with suppress(StoreUnavailable):
                await self.fleet.refresh()
            found = self._unserved(profile)
        return found

    def _unserved(self, profile: Profile) -> tuple[str, ...]:
        serves = self.fleet.serves
        return tuple(code for code in profile.targets if not serves(profile.demand_of(code)))

    async def end_session(self, session: LiveSession, reason: str) -> Coverage:
        """Finish what was said, then close the session in the store; returns what became of it."""
        session.closing = True
        session.end_speech()
        jobs = self.settings.jobs
        longest = jobs.pending_ms + jobs.attempts_max * jobs.attempt_ms + CLOSE_GRACE_MS
        self.hall.leave(session)
        await session.until_settled(longest)
        session.lapsed = True
        while True:
            try:
                _, work = await self.board.dispatcher.close_session(
                    session.home, session.id, reason
                )
                break
            except StoreUnavailable:
                await asyncio.sleep(1)
        self.board.perform(work)
        self.board.forget(session)
        session.ledger.settle_rest("failed", "session_ended")
        if self.board.sessions.pop(session.id, None) is not None:
            self._account(session.ledger.summary())
        self.log("session.ended", session=session.id, reason=reason)
        return session.ledger.summary()

    def _account(self, coverage: Coverage) -> None:
        total = self.metrics.coverage_ms_total
        total.labels(fate="delivered").inc(coverage.delivered_ms)
        total.labels(fate="silent").inc(coverage.silent_ms)
        total.labels(fate="failed").inc(coverage.failed_ms)
        total.labels(fate="skipped").inc(coverage.skipped_ms)

    def session_lost(self, session: LiveSession) -> None:
        """A client's socket is gone: it leaves its room, what it said is still finished."""
        session.detach()
        if session.closing:
            return
        session.closing = True
        session.end_speech()
        self.hall.leave(session)
        self.tasks.start(self.end_session(session, "disconnected"))

    # Loops

    async def run(self) -> None:
        """Keep the time until cancelled."""
        sweep_s = self.settings.jobs.sweep_interval_ms / 1000
        renew_s = self.settings.sessions.lease_ms / 3000
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(sweep_s, self._sweep))
            group.create_task(self._every(renew_s, self._renew))
            group.create_task(self._every(FLEET_EVERY_S, self._look_at_fleet))
            group.create_task(self._every(MARK_EVERY_S, self._mark))
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

    async def _sweep(self) -> None:
        for cell in self.cells.all:
            self.board.perform(await self.sweeper.sweep(cell))
        # Said here and not by every loop: not all of them asked the store.
        self._store_is(seen=True)

    async def _renew(self) -> None:
        lease_ms = self.settings.sessions.lease_ms
        homes: dict[str, list[str]] = {}
        for session in self.board.sessions.values():
            homes.setdefault(session.home.name, []).append(session.id)
        for name, ids in homes.items():
            for at in range(0, len(ids), RENEWED_AT_ONCE):
                some = ids[at : at + RENEWED_AT_ONCE]
                await self.store.session_renew(self.cells.named(name), self.id, some, lease_ms)

    async def _look_at_fleet(self) -> None:
        await self.fleet.refresh()
        self.metrics.queue_depth.set(self.fleet.waiting)

    async def _mark(self) -> None:
        await self.board.mark_lasting()
        now = self.clock.now_ms()
        for session in list(self.board.sessions.values()):
            if session.deliverer.is_overdue(now):
                await session.recover()

    async def _expire_rooms(self) -> None:
        self.hall.expire()

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.metrics.loop_lag_seconds.observe(max(0.0, loop.time() - due))

    # The end

    async def drain(self) -> bool:
        """Take nothing new, finish what is here; tells whether all of it was finished."""
        self.draining = True
        limit_ms = self.settings.server.drain_ms
        sessions = list(self.board.sessions.values())
        for session in sessions:
            session.teller.addition(
                GoAway(reason="shutdown", reconnect_after_ms=0, closes_in_ms=limit_ms)
            )
            session.end_speech()
        self.board.draining = True
        done = await asyncio.gather(*(self._finish(session, limit_ms) for session in sessions))
        for session in sessions:
            self._close_outlet(session)
        for node in list(self.board.nodes.values()):
            node.outlet.close(CloseCode.GOING_AWAY, "the instance stops")
        return all(done)

    async def _finish(self, session: LiveSession, limit_ms: int) -> bool:
        """Let a client go when it has heard everything; in a room it may still hear others."""
        is_done = await session.until_settled(limit_ms)
        if self.hall.rooms.room_of(session.id) is None:
            self._close_outlet(session)
        return is_done

    def _close_outlet(self, session: LiveSession) -> None:
        if session.outlet is not None:
            session.outlet.close(CloseCode.GOING_AWAY, "the instance stops")


def rules_of(settings: Settings) -> SegmentRules:
    """Return the segmenter's rules from the settings."""
    cuts = settings.segmentation
    return SegmentRules(
        pause_ms=cuts.pause_ms,
        max_duration_ms=cuts.max_duration_ms,
        max_bytes=cuts.max_bytes,
        hangover_auto_ms=cuts.hangover_auto_ms,
        hangover_manual_ms=cuts.hangover_manual_ms,
        short_merge_ms=cuts.short_merge_ms,
        silence_ms=cuts.silence_ms,
    )
