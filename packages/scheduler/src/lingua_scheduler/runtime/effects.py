"""The way from the store's decisions to sockets.

`Dispatcher` decides with the store and returns `Work`. Here the work is done: a job is pushed to a
node of this instance directly, to one elsewhere by a message to its instance; outcomes go to the
owners of their sessions. Every path ends in `perform`, so that the cause of a placement (a submit,
a freed slot, a sweep) need not know where its node or its session is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingua_scheduler.peers.messages import PushJob, ResendAudio, StopAttempt
from lingua_scheduler.state.records import Placement

if TYPE_CHECKING:
    from lingua_scheduler.clock import Clock
    from lingua_scheduler.jobs.dispatcher import Dispatcher, Move, Work
    from lingua_scheduler.jobs.relay import OutcomeRelay
    from lingua_scheduler.metrics import LiveMetrics
    from lingua_scheduler.rooms.fanout import Fanout
    from lingua_scheduler.runtime.held_jobs import HeldJobs
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_fetcher import JobFetcher
    from lingua_scheduler.runtime.job_log import JobLog
    from lingua_scheduler.runtime.job_table import JobTable
    from lingua_scheduler.runtime.move_reporter import MoveReporter
    from lingua_scheduler.runtime.node import LiveNode
    from lingua_scheduler.runtime.outcome_router import OutcomeRouter
    from lingua_scheduler.runtime.peer_writer import PeerWriter
    from lingua_scheduler.runtime.placement_metrics import PlacementMetrics
    from lingua_scheduler.state.keys import Cells
    from lingua_scheduler.state.records import Cancelled, ScriptEffects
    from lingua_scheduler.state.retry import StoreRetry
    from lingua_scheduler.tasks import Tasks


@dataclass(slots=True, kw_only=True, eq=False)
class Effects:
    """Does what steps of the store ask for."""

    dispatcher: Dispatcher
    relay: OutcomeRelay
    retry: StoreRetry
    cells: Cells
    # What is on this instance.
    jobs: JobTable
    nodes: dict[str, LiveNode]
    held: HeldJobs
    # Where else effects go.
    fetcher: JobFetcher
    outcomes: OutcomeRouter
    fanout: Fanout
    peers: PeerWriter
    # What is counted and logged of them.
    moves: MoveReporter
    counts: PlacementMetrics
    log: JobLog
    metrics: LiveMetrics
    clock: Clock
    tasks: Tasks

    def perform(self, work: Work) -> None:
        """Do on sockets, here or elsewhere, what a step of the store asks for."""
        for move in work.moved:
            self._report_move(move)
        for placement in work.push:
            self.push(placement)
        for delivery in work.deliver:
            self.outcomes.deliver(delivery)
        for heard in work.heard:
            self.fanout.announce(heard)
        for home, session in work.relay:
            self.tasks.start(self._relay_to_cells(home, session))
        for cancelled in work.stop:
            self._stop(cancelled)
        for speech in work.spoken:
            self.counts.speech_ended(speech)

    def follow(self, effects: ScriptEffects) -> None:
        """Do on sockets what one script asks for; slots of other cells are not its concern."""
        if effects.placed:
            for placement in effects.placed:
                self.push(placement)
        if effects.released:
            self.outcomes.deliver(effects)
        if effects.heard:
            for heard in effects.heard:
                self.fanout.announce(heard)
        if effects.is_relaying:
            self.tasks.start(self._relay_to_cells(effects.home, effects.session))

    def _report_move(self, move: Move) -> None:
        self.moves.count(move)
        job = self.jobs.get(move.job) or self.held.get(move.job)
        if job is not None:
            self.moves.log(move, job)
        else:
            self.tasks.start(self.moves.log_recorded(move))

    async def _relay_to_cells(self, home: str, session: str) -> None:
        """Bring outcomes to listeners in other cells; if this fails, the timer does it."""
        self.perform(await self.relay.run(self.cells.named(home), session))

    # Jobs to nodes

    def push(self, placement: Placement, now_ms: float = 0.0) -> None:
        """Send a placed job to its node: over its socket, or by way of its instance.

        `now_ms`: the time, if the caller has just asked for it.
        """
        job = self.jobs.get(placement.job)
        # The store decides: a socket here may be one that its node has left without closing it.
        is_here = placement.instance == self.peers.instance
        if job is None:
            if self.log.logs_all:
                self.log.placed(placement, None)
            fetched = self.fetch_and_push(placement) if is_here else self._send_push(placement)
            self.tasks.start(fetched)
            return
        attempt, current = placement.attempt, job.run.current
        if attempt < current.number:
            return  # overtaken by a later attempt
        if attempt == current.number and placement.node == current.node:
            return  # pushed already
        now_ms = now_ms or self.clock.now_ms()
        times, run = job.times, job.run
        if not times.placed:
            run.placed(now_ms)
            self.metrics.jobs.queue_wait_seconds.observe((now_ms - times.cut) / 1000)
        # A placement whose answer was lost has no end time.
        ends_ms = now_ms + self.dispatcher.attempt_ms if placement.ends_at_ms else 0
        run.begin_attempt(placement, now_ms, ends_ms)
        if run.pushed(now_ms):
            self.counts.pushed(times)
        if self.log.logs_all:
            self.log.placed(placement, job)
        if not is_here:
            self.tasks.start(self._send_push(placement, job))
        elif self.held.push(job, placement, now_ms):
            job.report_dispatched()
        else:
            self.tasks.start(self.push_failed(placement, self.nodes.get(placement.node)))

    async def push_again(self, job: LiveJob, attempt: int, node: str) -> None:
        """Push what the store placed in an answer that was lost."""
        instance = await self.retry.until_stored(lambda: self.peers.host_of(node))
        self.push(self.placement_of(job.id, attempt, node, home=job.home.name, instance=instance))

    def placement_of(
        self, job: str, attempt: int, node: str, *, home: str, instance: str
    ) -> Placement:
        """Return a placement that the store made before, as far as it is known."""
        return Placement(
            job=job,
            attempt=attempt,
            node=node,
            cell=self.cells.of_node(node).name,
            instance=instance,
            context_reset=False,
            ends_at_ms=0,
            home=home,
        )

    async def receive_push(self, message: PushJob) -> None:
        """Push a job that another instance placed on a node that is, or was, here."""
        instance = self.peers.instance
        host = instance
        if message.node not in self.nodes:
            host = await self.peers.host_of(message.node)
        placement = Placement(
            job=message.job,
            attempt=message.attempt,
            node=message.node,
            cell=self.cells.of_node(message.node).name,
            instance=host,
            context_reset=message.context_reset,
            ends_at_ms=message.ends_at_ms,
            home=message.home,
        )
        if host == instance:
            await self.fetch_and_push(placement, message)
        else:
            # The node registered on another instance meanwhile; on none, if there is no host.
            self.push(placement)

    async def fetch_and_push(self, placement: Placement, message: PushJob | None = None) -> None:
        """Push a job of a session elsewhere, read from the store (or from the message)."""
        held = self.held.get(placement.job)
        if held is not None and held.run.is_placed_as(placement):
            return  # a message that came twice
        own = self.jobs.get(placement.job)
        if own is not None and not own.run.is_placed_as(placement):
            self.push(placement)
            return
        found = await self.fetcher.fetch(placement, own, message)
        if found is None:
            return
        if found.is_audio_missing:
            await self._ask_for_audio(placement, found.owner)
        elif found.job is not None:
            await self._push_fetched(found.job, placement)

    async def _push_fetched(self, job: LiveJob, placement: Placement) -> None:
        if not self.held.push(job, placement, self.clock.now_ms()):
            await self.push_failed(placement, self.nodes.get(placement.node))
            return
        buffers_slices = self.nodes[placement.node].traits.buffers_slices
        if job.spec.is_slice and buffers_slices and job.id not in self.jobs:
            job.owner.notifier.event(job, "KEPT")

    async def _ask_for_audio(self, placement: Placement, owner: str) -> None:
        """Ask the session's owner for audio that the store does not keep, if the owner lives."""
        asked = ResendAudio(
            placement.job, placement.attempt, placement.node, placement.home, self.peers.instance
        )
        is_asked = False
        if owner and owner != self.peers.instance:
            is_asked = await self.retry.until_stored(lambda: self.peers.send(owner, asked))
        if not is_asked:
            await self.audio_lost(asked)

    async def _send_push(self, placement: Placement, job: LiveJob | None = None) -> None:
        """Ask the instance of a node to push a job; an instance without an inbox is dead."""
        carries = job is not None and not job.is_audio_kept
        message = PushJob(
            job=placement.job,
            attempt=placement.attempt,
            node=placement.node,
            home=placement.home,
            context_reset=placement.context_reset,
            ends_at_ms=placement.ends_at_ms,
            body=job.body() if job is not None and carries else b"",
            audio=job.audio if job is not None and carries else b"",
        )
        host = placement.instance
        if not host:
            await self.move(placement, "push_failed")
        elif not await self.retry.until_stored(lambda: self.peers.send(host, message)):
            # The jobs of its nodes move, and these get no jobs until their next heartbeat.
            lost = await self.retry.until_stored(lambda: self.dispatcher.instance_lost(host))
            self.perform(lost)
            await self.move(placement, "push_failed")
        elif job is not None:
            job.report_dispatched()

    # Jobs that leave nodes

    async def push_failed(self, placement: Placement, node: LiveNode | None) -> None:
        """Move a job whose node's socket is closed; the node gets nothing until it is back.

        Otherwise the idle node would be chosen again and again, until no attempt is left.
        """
        if node is not None:
            await self.retry.until_stored(lambda: self.node_lost(node))
        await self.move(placement, "push_failed")

    async def node_lost(self, node: LiveNode) -> None:
        """Move the jobs of a node whose socket is closed."""
        started = self.clock.now_ms()
        _, work = await self.dispatcher.node_lost(node.id, node.conn)
        self.held.remove_all_of(node.id)
        self.perform(work)
        took_s = (self.clock.now_ms() - started) / 1000
        for move in work.moved:
            # Only jobs that another node got at once: an idle node leaves nothing to redo.
            if move.to is not None:
                self.metrics.jobs.redispatch_seconds.observe(took_s)

    async def move(self, placement: Placement, reason: str) -> None:
        """Take an attempt from its node; any other node that can do it takes it."""
        home = self.cells.named(placement.home)
        _, work = await self.retry.until_stored(
            lambda: self.dispatcher.failover(
                home, placement.job, placement.attempt, node=placement.node, reason=reason
            )
        )
        self.perform(work)

    async def audio_lost(self, asked: ResendAudio) -> None:
        """End a job whose audio no instance has any more."""
        home = self.cells.named(asked.home)
        _, work = await self.retry.until_stored(
            lambda: self.dispatcher.settle(
                home, asked.job, asked.attempt, asked.node, kind="failed", reason="audio_lost"
            )
        )
        self.perform(work)

    def _stop(self, cancelled: Cancelled) -> None:
        self.held.remove(cancelled.job, cancelled.node)
        node = self.nodes.get(cancelled.node)
        if node is not None:
            node.cancel(cancelled.job, cancelled.attempt, "cancelled")
        else:
            self.tasks.start(self._stop_elsewhere(cancelled))

    async def _stop_elsewhere(self, cancelled: Cancelled) -> None:
        host = await self.peers.host_of(cancelled.node)
        if host and host != self.peers.instance:
            message = StopAttempt(cancelled.job, cancelled.attempt, cancelled.node, "cancelled")
            self.peers.write(host, message)
