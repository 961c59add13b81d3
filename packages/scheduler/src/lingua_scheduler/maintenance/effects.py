"""Passes on the effects of a repair to the instances that have the sockets.

The repairing process has no sockets. A placed job is pushed by the host of its node, an outcome is
delivered by its session's owner; both get a message, as between instances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.jobs.dispatcher import Dispatcher, Work
from lingua_scheduler.jobs.fleet import FleetSnapshot
from lingua_scheduler.peers.messages import OutcomesReady, PushJob, StopAttempt
from lingua_scheduler.peers.sender import PeerSender
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.records import Placement

SENDER = "doctor"
# How often a job is moved because the host of its node has no inbox.
MOVES_MAX = 5


class EffectRunner:
    """A dispatcher, and the messages that its effects need."""

    def __init__(self, context: ScanContext) -> None:
        self.cells = context.cells
        self.store = Store(context.connection, context.policy)
        fleet = FleetSnapshot(self.store, self.cells)
        self.dispatcher = Dispatcher(self.store, self.cells, fleet, context.policy)
        self._sender = PeerSender(context.connection, context.prefix, SENDER)

    async def perform(self, work: Work) -> None:
        """Send the messages that this work needs; a lost message costs only time.

        Listeners read their outboxes anyway, and outcomes for other cells have a timer.
        """
        for _ in range(MOVES_MAX):
            again = Work()
            for placement in work.push:
                again.merge(await self._push(placement))
            for delivery in work.deliver:
                last = delivery.released[-1].seq
                if delivery.owner:
                    message = OutcomesReady(delivery.session, delivery.epoch, last)
                    await self._sender.send(delivery.owner, message)
            for stopped in work.stop:
                host = await self.store.nodes.host(self.cells.of_node(stopped.node), stopped.node)
                if host:
                    stop = StopAttempt(stopped.job, stopped.attempt, stopped.node, "cancelled")
                    await self._sender.send(host, stop)
            work = again

    async def _push(self, placement: Placement) -> Work:
        message = PushJob(
            job=placement.job,
            attempt=placement.attempt,
            node=placement.node,
            home=placement.home,
            context_reset=placement.context_reset,
            ends_at_ms=placement.ends_at_ms,
        )
        if await self._sender.send(placement.instance, message):
            return Work()
        _, work = await self.dispatcher.failover(
            self.cells.named(placement.home),
            placement.job,
            placement.attempt,
            node=placement.node,
            reason="push_failed",
        )
        return work
