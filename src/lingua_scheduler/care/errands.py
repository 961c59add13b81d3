"""Work that a repair leaves for sockets, told to the instances that have them.

Whoever repairs has no sockets of its own: a job that was placed is pushed by the host of its node,
an outcome is delivered by its session's owner, each told by letter as instances tell one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.between.letters import Outcomes, Push, Stop
from lingua_scheduler.between.post import Post
from lingua_scheduler.jobs.dispatcher import Dispatcher, Work
from lingua_scheduler.jobs.fleet import FleetSnapshot
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from lingua_scheduler.care.ground import Ground
    from lingua_scheduler.state.records import Placement

SENDER = "doctor"
# A job whose node's host cannot be told moves on; so often at most.
MOVES_MAX = 5


class Errands:
    """A dispatcher, and the letters that its work asks for."""

    def __init__(self, ground: Ground) -> None:
        self.cells = ground.cells
        self.store = Store(ground.connection, ground.policy)
        fleet = FleetSnapshot(self.store, self.cells)
        self.dispatcher = Dispatcher(self.store, self.cells, fleet, ground.policy)
        self._post = Post(ground.connection, ground.prefix, SENDER)

    async def perform(self, work: Work) -> None:
        """Tell everybody what there is to do; a letter that nobody gets costs time only.

        What listeners have got they find by themselves, and what is for others has its timer.
        """
        for _ in range(MOVES_MAX):
            again = Work()
            for placement in work.push:
                again.merge(await self._push(placement))
            for delivery in work.deliver:
                last = delivery.outcomes[-1].seq
                if delivery.owner:
                    letter = Outcomes(delivery.session, delivery.epoch, last)
                    await self._post.send(delivery.owner, letter)
            for told in work.stop:
                host = await self.store.node_host(self.cells.of_node(told.node), told.node)
                if host:
                    stop = Stop(told.job, told.attempt, told.node, "cancelled")
                    await self._post.send(host, stop)
            work = again

    async def _push(self, placement: Placement) -> Work:
        letter = Push(
            placement.job, placement.attempt, placement.node, placement.home,
            placement.context_reset, placement.ends_at_ms,
        )  # fmt: skip
        if await self._post.send(placement.instance, letter):
            return Work()
        _, work = await self.dispatcher.failover(
            self.cells.named(placement.home), placement.job, placement.attempt,
            node=placement.node, reason="push_failed",
        )  # fmt: skip
        return work
