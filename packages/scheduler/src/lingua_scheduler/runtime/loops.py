"""What an instance does periodically, until it ends.

The timers of the cells, the leases of sessions, heartbeats, messages of peers, the fleet's
snapshot, lasting jobs. Each loop meets an unavailable store by trying again; none of them ends
before the instance does.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.streams.hub import RENEW_EVERY_S
from lingua_scheduler.tasks import AT_ONCE, all_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lingua_cli.logs import EventLog
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.jobs.pinning import Pins
    from lingua_scheduler.jobs.sweeper import Sweeper
    from lingua_scheduler.metrics import LiveMetrics, MetricHistory
    from lingua_scheduler.rooms.audience import AudienceFinder
    from lingua_scheduler.rooms.cache import RoomCache
    from lingua_scheduler.rooms.service import RoomService
    from lingua_scheduler.runtime.effects import Effects
    from lingua_scheduler.runtime.lease_renewal import LeaseRenewal
    from lingua_scheduler.runtime.node_reports import NodeReports
    from lingua_scheduler.runtime.peer_instances import PeerInstances
    from lingua_scheduler.runtime.peer_messages import PeerMessageHandler
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.runtime.store_watch import StoreWatch
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.streams.hub import StreamHub

FLEET_EVERY_S = 1.0
MARK_EVERY_S = 0.25
ROOMS_EVERY_S = 5.0
LAG_EVERY_S = 0.5
VERIFY_EVERY_S = 0.25
ACKNOWLEDGE_EVERY_S = 1.0
HISTORY_EVERY_S = 1.0


@dataclass(slots=True, kw_only=True, eq=False)
class InstanceLoops:
    """The loops of one instance."""

    settings: Settings
    sessions: Mapping[str, LiveSession]
    effects: Effects
    sweeper: Sweeper
    leases: LeaseRenewal
    watch: StoreWatch
    reports: NodeReports
    fleet: FleetSnapshot
    pins: Pins
    rooms: RoomService
    cache: RoomCache
    audience: AudienceFinder
    peers: PeerInstances
    messages: PeerMessageHandler
    streams: StreamHub
    clock: Clock
    metrics: LiveMetrics
    history: MetricHistory
    log: EventLog
    is_store_seen: bool = True

    async def run(self) -> None:
        """Run all loops until cancelled."""
        sweep_s = self.settings.jobs.sweep_interval_ms / 1000
        renew_s = self.settings.sessions.lease_ms / 3000
        async with asyncio.TaskGroup() as group:
            group.create_task(self.peers.inbox.run())
            group.create_task(self.messages.run_own())
            group.create_task(self._every(self.peers.beat_s, self._beat))
            group.create_task(self._every(VERIFY_EVERY_S, self.watch.verify))
            group.create_task(self._every(sweep_s, self._sweep))
            group.create_task(self._every(renew_s, self.leases.renew_all))
            group.create_task(self._every(FLEET_EVERY_S, self.look_at_fleet))
            group.create_task(self._every(MARK_EVERY_S, self.reports.mark_lasting))
            group.create_task(self._every(MARK_EVERY_S, self._look_for_outcomes))
            group.create_task(self._every(ACKNOWLEDGE_EVERY_S, self._acknowledge))
            group.create_task(self._every(ROOMS_EVERY_S, self.refresh_rooms))
            group.create_task(self._every(RENEW_EVERY_S, self.streams.renew))
            group.create_task(self._every(HISTORY_EVERY_S, self._keep_history))
            group.create_task(self._watch_lag())

    async def _every(self, seconds: float, step: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await step()
            except StoreUnavailable as error:
                self._store_is(seen=False, why=str(error))
            await asyncio.sleep(seconds)

    def _store_is(self, *, seen: bool, why: str = "") -> None:
        if seen != self.is_store_seen:
            self.is_store_seen = seen
            self.log("store.back" if seen else "store.unavailable", why=why)

    async def _beat(self) -> None:
        if not await self.peers.beat():
            self.log("store.emptied", instance=self.effects.peers.instance)
            self.watch.doubt()

    async def _sweep(self) -> None:
        await all_of(self._sweep_cell(cell) for cell in self.effects.cells.all)
        # Here and not in every loop: not all of them call the store.
        self._store_is(seen=True)

    async def _sweep_cell(self, cell: Cell) -> None:
        self.effects.perform(await self.sweeper.sweep(cell))

    async def look_at_fleet(self) -> None:
        """Refresh the fleet's snapshot, and report tenants that no node serves."""
        await self.fleet.refresh()
        if not self.pins.exist:
            return
        problems, served = self.pins.changes(self.fleet.pools)
        for sentence in problems:
            self.log.warning("tenant.unserved", what=sentence)
        for tenant in served:
            self.log("tenant.served", tenant=tenant)

    async def _look_for_outcomes(self) -> None:
        now = self.clock.now_ms()
        overdue = [s for s in self.sessions.values() if s.deliverer.is_overdue(now)]
        await all_of(session.recover() for session in overdue)

    async def _acknowledge(self) -> None:
        for count, session in enumerate(list(self.sessions.values())):
            session.input.acknowledge()
            if count % AT_ONCE == 0:
                await asyncio.sleep(0)  # sessions are many, and speech does not wait

    async def _keep_history(self) -> None:
        self.metrics.registry.fold()
        self.history.tick(self.clock.wall_ms())

    async def refresh_rooms(self) -> None:
        """Look at all rooms again, and forget what belongs to sessions that have ended."""
        self.audience.forget_ended_rooms()
        try:
            await self.rooms.refresh()
        finally:
            await self.cache.refresh()

    async def _watch_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            self.metrics.instance.loop_lag_seconds.observe(max(0.0, loop.time() - due))
