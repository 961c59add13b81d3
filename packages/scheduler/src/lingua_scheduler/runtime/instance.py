"""One scheduler process: builds its parts, and ends in good order.

The parts get what they use in their constructors; nothing reaches another part through the
instance. What sockets and HTTP pages need is here by name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.clock import SystemClock
from lingua_scheduler.config import resolve_instance_id
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.dispatcher import Dispatcher
from lingua_scheduler.jobs.fleet import FleetSnapshot, read_fleet
from lingua_scheduler.jobs.pinning import Pins, old_names
from lingua_scheduler.jobs.relay import OutcomeRelay
from lingua_scheduler.jobs.sweeper import Sweeper
from lingua_scheduler.metrics import LiveMetrics, MetricHistory
from lingua_scheduler.peers.deadletters import DeadLetters
from lingua_scheduler.peers.inspection import inspect_instances
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.rooms.audience import AudienceFinder
from lingua_scheduler.rooms.cache import RoomCache
from lingua_scheduler.rooms.caption_feeds import CaptionFeeds
from lingua_scheduler.rooms.command_queue import RoomCommandQueue
from lingua_scheduler.rooms.fanout import Fanout, SharedResults
from lingua_scheduler.rooms.guesses import Guesses
from lingua_scheduler.rooms.membership import RoomMembership
from lingua_scheduler.rooms.service import RoomService
from lingua_scheduler.runtime.buffered_slices import BufferedSlices
from lingua_scheduler.runtime.delivery_report import DeliveryReport
from lingua_scheduler.runtime.detectors import check_detector
from lingua_scheduler.runtime.drain import Drain
from lingua_scheduler.runtime.effects import Effects
from lingua_scheduler.runtime.ended_session import EndedSessions
from lingua_scheduler.runtime.file_session import FileSessions
from lingua_scheduler.runtime.gauges import InstanceGauges
from lingua_scheduler.runtime.held_jobs import HeldJobs
from lingua_scheduler.runtime.job_fetcher import JobFetcher
from lingua_scheduler.runtime.job_log import JobLog
from lingua_scheduler.runtime.job_submitter import JobSubmitter
from lingua_scheduler.runtime.job_table import JobTable
from lingua_scheduler.runtime.lease_renewal import LeaseRenewal
from lingua_scheduler.runtime.lifecycle import Lifecycle
from lingua_scheduler.runtime.loops import InstanceLoops
from lingua_scheduler.runtime.move_reporter import MoveReporter
from lingua_scheduler.runtime.node_registry import NodeRegistry
from lingua_scheduler.runtime.node_reports import NodeReports
from lingua_scheduler.runtime.outcome_router import OutcomeRouter
from lingua_scheduler.runtime.pairing import Pairing
from lingua_scheduler.runtime.peer_instances import PeerInstances
from lingua_scheduler.runtime.peer_messages import PeerMessageHandler
from lingua_scheduler.runtime.peer_writer import PeerWriter
from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
from lingua_scheduler.runtime.served_languages import ServedLanguages
from lingua_scheduler.runtime.session_factory import SessionFactory
from lingua_scheduler.runtime.session_profiles import SessionProfiles
from lingua_scheduler.runtime.session_registry import SessionRegistry
from lingua_scheduler.runtime.store_watch import StoreWatch
from lingua_scheduler.runtime.stream_parts import StreamParts
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.policy import FleetPolicy, Policy
from lingua_scheduler.state.retry import StoreRetry
from lingua_scheduler.state.room_scripts import RoomScripts
from lingua_scheduler.state.store import Store
from lingua_scheduler.streams.hosted import HostedStreams
from lingua_scheduler.streams.hub import StreamHub
from lingua_scheduler.streams.partial_router import PartialRouter
from lingua_scheduler.tasks import Tasks

if TYPE_CHECKING:
    from lingua_cli.logs import EventLog
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.config import Settings
    from lingua_scheduler.peers.inspection import InboxRow
    from lingua_scheduler.runtime.drain import SiblingDrain
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.session import LiveSession
    from lingua_scheduler.state.connection import Connection


@dataclass(frozen=True, slots=True)
class RoomParts:
    """The rooms of an instance."""

    service: RoomService
    cache: RoomCache
    audience: AudienceFinder
    membership: RoomMembership
    captions: CaptionFeeds


@dataclass(frozen=True, slots=True)
class ClientParts:
    """What clients' sockets and recordings need."""

    registry: SessionRegistry
    ended: EndedSessions
    served: ServedLanguages
    files: FileSessions


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What nodes' sockets need."""

    registry: NodeRegistry
    reports: NodeReports
    held: HeldJobs
    pairing: Pairing
    streams: StreamParts


class Instance:
    """Everything one process does between its sockets and the store."""

    def __init__(
        self,
        settings: Settings,
        connection: Connection,
        log: EventLog,
        *,
        clock: Clock | None = None,
        tasks: Tasks | None = None,
        sender: PeerSender | None = None,
    ) -> None:
        check_detector(settings.segmentation.voice_detector)
        self.settings = settings
        self._connection = connection
        self.log = log
        self.id = resolve_instance_id(settings)
        self.lifecycle = Lifecycle()
        self.clock = clock or SystemClock()
        self.metrics = LiveMetrics()
        self.tasks = tasks or Tasks(self.failed)
        self.cells = Cells(settings.redis.key_prefix, settings.cells)
        self.store = Store(connection, FleetPolicy.of(settings))
        self.fleet = FleetSnapshot(self.store, self.cells)
        # Sessions whose clients are here, nodes whose sockets are here, jobs of these sessions.
        self.sessions: dict[str, LiveSession] = {}
        self.nodes: dict[str, LiveNode] = {}
        self.jobs = JobTable(self.clock)
        results = SharedResults(self.store)
        retry = StoreRetry()
        held = HeldJobs(self.nodes)
        captions = CaptionFeeds(
            settings=settings,
            tasks=self.tasks,
            rooms=lambda: self.rooms.cache,
            guesses=Guesses(self.clock),
        )
        self.effects = self._build_effects(results, retry, held, sender or self._sender(), captions)
        self.rooms = self._build_rooms(retry, captions)
        self.node_parts = self._build_nodes(retry, held)
        self.client_parts = self._build_clients(results, retry)
        self.peers, self.loops = self._build_loops()

    def _sender(self) -> PeerSender:
        prefix, maxlen = self.settings.redis.key_prefix, self.settings.instances.letters_max
        return PeerSender(self._connection, prefix, self.id, maxlen=maxlen)

    def _build_effects(
        self,
        results: SharedResults,
        retry: StoreRetry,
        held: HeldJobs,
        sender: PeerSender,
        captions: CaptionFeeds,
    ) -> Effects:
        settings, store, cells = self.settings, self.store, self.cells
        job_log = JobLog(settings.log)
        writer = PeerWriter(self.id, sender, store=store, cells=cells, tasks=self.tasks)
        counts = PlacementMetrics(self.metrics)
        return Effects(
            dispatcher=Dispatcher(store, cells, self.fleet, Policy.of(settings)),
            relay=OutcomeRelay(store, cells),
            retry=retry,
            cells=cells,
            jobs=self.jobs,
            nodes=self.nodes,
            held=held,
            fetcher=JobFetcher(store, cells, self.clock, self.nodes, writer),
            outcomes=OutcomeRouter(self.sessions, self.jobs, held, writer, job_log),
            fanout=Fanout(
                self.sessions,
                results,
                cells,
                peers=writer,
                tasks=self.tasks,
                captioned=captions.captioned,
            ),
            peers=writer,
            moves=MoveReporter(
                metrics=self.metrics,
                counts=counts,
                log=job_log,
                clock=self.clock,
                store=store,
                cells=cells,
            ),
            counts=counts,
            log=job_log,
            metrics=self.metrics,
            clock=self.clock,
            tasks=self.tasks,
        )

    def _build_rooms(self, retry: StoreRetry, captions: CaptionFeeds) -> RoomParts:
        cache = RoomCache(
            store=RoomScripts.of(self._connection, self.cells, self.settings),
            sessions=self.sessions,
            peers=self.effects.peers,
            cells=self.cells,
            clock=self.clock,
            tasks=self.tasks,
            log=self.log,
            watcher=captions,
        )
        queue = RoomCommandQueue(self.tasks, self.settings.jobs.retry_after_ms)
        return RoomParts(
            service=RoomService(cache, queue, retry),
            cache=cache,
            audience=AudienceFinder(
                cache,
                serves=self.fleet.serves,
                keeps_captions=self.settings.rooms.captions_kept > 0,
            ),
            membership=RoomMembership(cache, queue, retry),
            captions=captions,
        )

    def _build_streams(self) -> StreamParts:
        peers, metrics = self.effects.peers, self.metrics.streams
        hosted = HostedStreams(self.nodes, peers, self.clock)
        hub = StreamHub(
            settings=self.settings.streams,
            dispatcher=self.effects.dispatcher,
            nodes=self.nodes,
            peers=peers,
            hosted=hosted,
            metrics=metrics,
            clock=self.clock,
            tasks=self.tasks,
        )
        router = PartialRouter(
            self.sessions,
            self.rooms.cache.rooms,
            peers,
            # It is asked when the instance runs; then `peers` is there.
            understands=lambda instance: self.peers.know_partials(instance),  # noqa: PLW0108
            metrics=metrics,
            captions=self.rooms.captions.partial,
        )
        return StreamParts(hub, hosted, router)

    def _build_nodes(self, retry: StoreRetry, held: HeldJobs) -> NodeParts:
        effects = self.effects
        reports = NodeReports(
            store=self.store,
            cells=self.cells,
            dispatcher=effects.dispatcher,
            retry=retry,
            effects=effects,
            jobs=self.jobs,
            held=held,
            counts=effects.counts,
            metrics=self.metrics,
            log=self.job_log,
            clock=self.clock,
            tasks=self.tasks,
        )
        registry = NodeRegistry(
            settings=self.settings,
            instance=self.id,
            nodes=self.nodes,
            store=self.store,
            cells=self.cells,
            dispatcher=effects.dispatcher,
            retry=retry,
            effects=effects,
            reports=reports,
            held=held,
            log=self.log,
            clock=self.clock,
        )
        pairing = Pairing(self._connection, self.cells.all[0], self.clock)
        return NodeParts(registry, reports, held, pairing, self._build_streams())

    def _build_clients(self, results: SharedResults, retry: StoreRetry) -> ClientParts:
        registry = SessionRegistry(
            settings=self.settings,
            instance=self.id,
            sessions=self.sessions,
            factory=self._session_factory(results, retry),
            profiles=SessionProfiles(self.settings, self.cells),
            pairing=self.node_parts.pairing,
            rooms=self.rooms.service,
            membership=self.rooms.membership,
            store=self.store,
            retry=retry,
            effects=self.effects,
            tasks=self.tasks,
            metrics=self.metrics,
            log=self.log,
        )
        served = ServedLanguages(self.fleet, self.clock)
        files = FileSessions(
            settings=self.settings,
            registry=registry,
            served=served,
            nodes=self.nodes,
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
        )
        return ClientParts(registry, EndedSessions(self.store, results, self.clock), served, files)

    def _session_factory(self, results: SharedResults, retry: StoreRetry) -> SessionFactory:
        effects = self.effects
        return SessionFactory(
            settings=self.settings,
            instance=self.id,
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
            tasks=self.tasks,
            store=self.store,
            retry=retry,
            effects=effects,
            submitter=JobSubmitter(
                dispatcher=effects.dispatcher,
                retry=retry,
                effects=effects,
                jobs=self.jobs,
                held=self.node_parts.held,
                counts=effects.counts,
                log=self.job_log,
                clock=self.clock,
                tasks=self.tasks,
                is_shared=self.settings.deployment_mode != "local",
            ),
            jobs=self.jobs,
            slices=BufferedSlices(self.jobs, self.nodes, effects, self.clock),
            audience=self.rooms.audience,
            results=results,
            report=DeliveryReport(self.metrics, effects.counts, self.job_log),
            job_log=self.job_log,
            streams=self.node_parts.streams,
        )

    def _build_loops(self) -> tuple[PeerInstances, InstanceLoops]:
        effects, rooms, nodes = self.effects, self.rooms, self.node_parts
        messages = PeerMessageHandler(
            effects,
            self.sessions,
            rooms=rooms.service,
            cache=rooms.cache,
            fanout=effects.fanout,
            streams=self.node_parts.streams,
        )
        peers = PeerInstances(
            self.settings,
            self._connection,
            effects=effects,
            messages=messages,
            lifecycle=self.lifecycle,
            log=self.log,
        )
        gauges = InstanceGauges(
            metrics=self.metrics,
            sessions=self.sessions,
            nodes=self.nodes,
            held=nodes.held,
            cache=rooms.cache,
            fleet=self.fleet,
            cells=self.cells,
            peers=peers,
        )
        gauges.follow(self.settings.segmentation.pause_ms)
        leases = LeaseRenewal(self.id, self.sessions, self.store, self.cells)
        watch = StoreWatch(
            connection=self._connection,
            links=self._connection.generation,
            sessions=self.sessions,
            nodes=self.nodes,
            registry=nodes.registry,
            cache=rooms.cache,
            leases=leases,
            tasks=self.tasks,
        )
        sweeper = Sweeper(self.store, effects.dispatcher, effects.relay, rooms.cache.sweep)
        loops = InstanceLoops(
            settings=self.settings,
            sessions=self.sessions,
            effects=effects,
            sweeper=sweeper,
            leases=leases,
            watch=watch,
            reports=nodes.reports,
            fleet=self.fleet,
            pins=Pins(self.settings),
            rooms=rooms.service,
            cache=rooms.cache,
            audience=rooms.audience,
            peers=peers,
            messages=messages,
            streams=self.node_parts.streams.hub,
            clock=self.clock,
            metrics=self.metrics,
            history=MetricHistory(self.metrics),
            log=self.log,
        )
        return peers, loops

    @property
    def job_log(self) -> JobLog:
        """Return the log of jobs, with those that ended lately."""
        return self.effects.log

    @property
    def dead_letters(self) -> DeadLetters:
        """Return the dead letters of all instances."""
        return DeadLetters(self._connection, self.settings.redis.key_prefix)

    async def inspect_peers(self) -> tuple[InboxRow, ...]:
        """Return all instances and their inboxes, as they are in the store."""
        return await inspect_instances(self._connection, self.settings.redis.key_prefix)

    def failed(self, error: BaseException) -> None:
        """Count and log an unhandled error; everything else goes on."""
        if isinstance(error, StoreUnavailable):
            self.log("store.unavailable", where=error.where, why=error.why)
            return
        self.metrics.instance.internal_errors_total.inc()
        # Its type and place only: the message of an unforeseen error may quote speech.
        self.log.error("instance.error", error=error)

    async def open(self) -> None:
        """Prepare the instance for the first socket."""
        await self.store.warm()
        await self.forget_former()
        await self.peers.open()
        for sentence in old_names(self.settings):
            self.log.warning("config.old_name", what=sentence)
        with suppress(StoreUnavailable):  # the loop tries again
            await self.loops.look_at_fleet()

    async def forget_former(self) -> None:
        """Remove what a dead process left: in local mode the store is ours alone.

        Sessions whose clients may resume are kept.
        """
        if self.settings.deployment_mode != "local":
            return
        command, dispatcher = self._connection.command, self.effects.dispatcher
        for cell in self.cells.all:
            for timer in await command(cell.slot, "ZRANGE", cell.due, 0, -1):
                kind, _, name = timer.decode().partition("|")
                if kind == "s" and not await command(
                    cell.slot, "HGET", cell.key("session", name), "token"
                ):
                    await dispatcher.close_session(cell, name, "instance_restarted")
            for row in (await read_fleet(self.store, cell)).nodes.values():
                conn = await command(cell.slot, "HGET", cell.key("node", row.id), "conn")
                await self.store.nodes.offline(cell, row.id, conn.decode())

    async def run(self) -> None:
        """Run all loops until cancelled."""
        await self.loops.run()

    async def drain(self, siblings: SiblingDrain | None = None) -> bool:
        """Accept nothing new, hand over or finish what is here; tells whether all of it was."""
        drain = Drain(
            lifecycle=self.lifecycle,
            sessions=self.sessions,
            nodes=self.nodes,
            registry=self.node_parts.registry,
            cache=self.rooms.cache,
            peers=self.peers,
            tasks=self.tasks,
            limit_ms=self.settings.server.drain_ms,
            siblings=siblings,
        )
        return await drain.run()
