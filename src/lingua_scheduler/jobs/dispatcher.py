"""A job's way through the cells: submit, place, settle, move, end.

With one cell every step is one script. With several, a job whose home cell cannot serve it takes
three: reserve a slot in another cell (short), commit the job to it at home, confirm the slot for
the attempt. A crash between any two leaves only a slot that expires and a timer that another
instance acts on.

What must happen on sockets comes back as `Work`: push these, deliver these, tell these to stop.
The caller does that; nothing here knows a socket.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.state.records import Cancelled, Effects, Lease, Submitted, WaitingJob
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.policy import Policy
    from lingua_scheduler.state.records import (
        ForeignSlot,
        JobSpec,
        Moved,
        NodeReply,
        Placement,
        Released,
        Settled,
    )
    from lingua_scheduler.state.store import Store

# Answers to a failover that mean that the job has left its node.
LEFT = frozenset({Reply.PLACED, Reply.QUEUED, Reply.PARKED, Reply.SETTLED})
# How many waiting jobs of each demand one look offers to other cells.
OFFER_MAX = 8


@dataclass(slots=True)
class Delivery:
    """Outcomes of one session that its owner must send."""

    owner: str
    session: str
    epoch: str
    outcomes: tuple[Released, ...]


@dataclass(slots=True)
class Work:
    """What must happen on sockets after a step."""

    push: list[Placement] = field(default_factory=list)
    deliver: list[Delivery] = field(default_factory=list)
    # Attempts whose node must be told to stop.
    stop: list[Cancelled] = field(default_factory=list)
    # Why jobs were taken from their nodes, to be counted.
    moved: list[str] = field(default_factory=list)

    def take(self, effects: Effects) -> None:
        """Add what a script's answer asks for."""
        self.push.extend(effects.placed)
        if effects.released:
            self.deliver.append(
                Delivery(effects.owner, effects.session, effects.epoch, effects.released)
            )

    def merge(self, other: Work) -> None:
        """Add another step's work."""
        self.push.extend(other.push)
        self.deliver.extend(other.deliver)
        self.stop.extend(other.stop)
        self.moved.extend(other.moved)


async def gather_work(steps: Iterable[Awaitable[Work]]) -> Work:
    """Do independent steps at once; one that meets an unreachable cell takes nothing from others.

    Each such step has a timer that brings it back.
    """
    total = Work()
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, Work):
            total.merge(result)
        elif not isinstance(result, StoreUnavailable):
            raise result
    return total


class Dispatcher:
    """Moves jobs through the store on behalf of one instance."""

    def __init__(self, store: Store, cells: Cells, fleet: FleetSnapshot, policy: Policy) -> None:
        self._store = store
        self._cells = cells
        self._fleet = fleet
        self._policy = policy

    async def submit(
        self, home: Cell, job: str, spec: JobSpec, body: bytes, audio: bytes = b""
    ) -> tuple[Submitted, Work]:
        """Admit a job: placed, waiting, refused, or the duplicate of one that is there."""
        named = self._preferred(home, spec.preferred)
        others = self._fleet.elsewhere(home, spec.demand)
        park = 2 if named else 1 if others else 0
        answer = await self._store.job_submit(home, job, spec, body, audio=audio, park=park)
        work = Work()
        if answer.reply is Reply.PARKED:
            waiting = WaitingJob(job, 0, spec.demand, spec.preferred, "", answer.affinity)
            answer = await self._place_parked(home, waiting, answer.label, work)
        if answer.placement is not None:
            work.push.append(answer.placement)
        work.take(answer.effects)
        return answer, work

    async def settle(  # noqa: PLR0913 the wire's own fields
        self,
        home: Cell,
        job: str,
        attempt: int,
        node: str,
        *,
        kind: str,
        reason: str = "-",
        payload: bytes = b"",
    ) -> tuple[Settled, Work]:
        """End a job with its holder's report."""
        answer = await self._store.job_settle(
            home, job, attempt, node, kind=kind, reason=reason, payload=payload
        )
        return answer, await self._follow(home, answer.effects)

    async def cancel(self, home: Cell, job: str, reason: str) -> tuple[Settled, Work]:
        """End a job nobody wants any more."""
        answer, told = await self._store.job_cancel(home, job, reason)
        work = await self._follow(home, answer.effects)
        if told.node:
            work.stop.append(told)
        return answer, work

    async def close_session(
        self, home: Cell, session: str, reason: str, *, lapse_only: bool = False, fence: int = 0
    ) -> tuple[Settled, Work]:
        """Close a session and end what it left."""
        answer, told = await self._store.session_close(
            home, session, reason, lapse_only=lapse_only, fence=fence
        )
        work = await self._follow(home, answer.effects)
        work.stop.extend(entry for entry in told if entry.node)
        return answer, work

    async def end_turn(
        self, home: Cell, session: str, turn: str, *, fence: int = 0
    ) -> tuple[Settled, Work]:
        """End a turn that has no closing piece."""
        answer = await self._store.turn_end(home, session, turn, fence=fence)
        return answer, await self._follow(home, answer.effects)

    async def fill(self, home: Cell, session: str, lane: str, **where: int) -> tuple[Settled, Work]:
        """Give an explicit outcome to an index (or to the holes that are due)."""
        reason = "refused" if where.get("index", -1) >= 0 else "gap_timeout"
        answer = await self._store.lane_fill(home, session, lane, reason=reason, **where)
        return answer, await self._follow(home, answer.effects)

    async def failover(
        self, home: Cell, job: str, attempt: int, *, node: str = "", reason: str
    ) -> tuple[Moved, Work]:
        """Take a job from its holder: to another node, into the queue, or to its end."""
        park = 1 if len(self._cells.all) > 1 else 0
        moved = await self._store.job_failover(
            home, job, attempt, node=node, reason=reason, park=park
        )
        work = await self._follow(home, moved.effects)
        if moved.reply in LEFT:
            work.moved.append(moved.reason)
        if moved.left_node and not node and moved.reply is not Reply.DEFERRED:
            work.stop.append(self._left(job, attempt, moved))
        if moved.placement is not None:
            work.push.append(moved.placement)
        if moved.reply is Reply.PARKED and moved.waiting is not None:
            answer = await self._place_parked(home, moved.waiting, moved.label, work)
            if answer.placement is not None:
                work.push.append(answer.placement)
        if moved.reply is Reply.DEFERRED and moved.cell != home.name:
            lease = Lease(job, moved.attempt, home.name)
            if not await self._confirm(moved.cell, moved.left_node, lease, moved.ends_at_ms):
                return await self.failover(home, job, moved.attempt, reason="lease_lapsed")
        return moved, work

    def _left(self, job: str, attempt: int, moved: Moved) -> Cancelled:
        """Who must be told to stop, where nobody but a deadline took the job away."""
        if attempt < 0 and moved.placement is not None:
            attempt = moved.placement.attempt - 1
        elif attempt < 0:
            waiting = moved.waiting
            attempt = waiting.attempt if waiting is not None else moved.attempt
        return Cancelled(job, attempt, self._cells.of_node(moved.left_node).name, moved.left_node)

    async def node_lost(self, node: str, conn: str) -> tuple[NodeReply, Work]:
        """A node's socket is gone: its leases move on."""
        cell = self._cells.of_node(node)
        answer = await self._store.node_offline(cell, node, conn)
        return answer, await self.move_leases(node, answer.lost, "node_lost")

    async def instance_lost(self, instance: str, *, keep_ms: int = 0) -> Work:
        """An instance is gone: the leases of its nodes that are nowhere else move on.

        With `keep_ms` they have so long to come back with their jobs.
        """
        return await gather_work(
            self._instance_lost_in(cell, instance, keep_ms) for cell in self._cells.all
        )

    async def _instance_lost_in(self, cell: Cell, instance: str, keep_ms: int) -> Work:
        work, after = Work(), ""
        while rows := await self._store.cell_nodes(cell, after):
            for row in rows:
                if row.instance == instance and row.status != "offline":
                    answer = await self._store.node_offline(
                        cell, row.node, instance=instance, keep_ms=keep_ms
                    )
                    work.merge(await self.move_leases(row.node, answer.lost, "node_lost"))
            after = rows[-1].node
        return work

    async def move_leases(self, node: str, leases: Sequence[Lease], reason: str) -> Work:
        """Fail over every lease of a node; a lease whose job has gone on is only given back."""
        return await gather_work(self._move_lease(node, lease, reason) for lease in leases)

    async def release_foreign(self, home: Cell, slot: ForeignSlot) -> Work:
        """Give back a slot in another cell and drop the reminder at home."""
        lease = Lease(slot.job, slot.attempt, home.name)
        answer = await self._store.lease_release(self._cells.named(slot.cell), slot.node, lease)
        await self._store.cell_done(home, slot)
        work = Work()
        work.take(answer.effects)
        return work

    async def offer_waiting(self, home: Cell) -> Work:
        """Offer the jobs that wait in a cell to the other cells, earliest deadline first."""
        work = Work()
        if len(self._cells.all) == 1:
            return work
        for waiting in await self._store.cell_waiting(home, OFFER_MAX):
            placed = await self._place_named(home, waiting, work)
            placed = placed or await self._place_elsewhere(home, waiting, work)
            if placed is not None:
                work.push.append(placed)
        return work

    async def _move_lease(self, node: str, lease: Lease, reason: str) -> Work:
        cell = self._cells.of_node(node)
        home = self._cells.named(lease.home) if lease.home else cell
        moved, work = await self.failover(home, lease.job, lease.attempt, node=node, reason=reason)
        if moved.reply in (Reply.NO_JOB, Reply.JOB_ENDED, Reply.STALE_ATTEMPT, Reply.NODE_MISMATCH):
            answer = await self._store.lease_release(cell, node, lease)
            work.take(answer.effects)
        return work

    async def _follow(self, home: Cell, effects: Effects) -> Work:
        work = Work()
        work.take(effects)
        if not effects.freed:
            return work
        # The step itself is done and must be told; a slot that cannot be given back now is
        # remembered at home and tried again by any sweep.
        with suppress(StoreUnavailable):
            for slot in effects.freed:
                work.merge(await self.release_foreign(home, slot))
            # A slot became free in another cell: who waits here may take it.
            work.merge(await self.offer_waiting(home))
        return work

    # Placement over several cells

    def _preferred(self, home: Cell, node: str) -> str:
        """Return `cell/node` of a preferred node that lives in another cell."""
        if not node or self._cells.of_node(node) is home:
            return ""
        return f"{self._cells.of_node(node).name}/{node}"

    async def _place_parked(
        self, home: Cell, waiting: WaitingJob, label: str, work: Work
    ) -> Submitted:
        placement = await self._place_named(home, waiting, work)
        if placement is None and label == "affinity_elsewhere":
            here = await self._store.job_place(home, waiting.job, park=1)
            if here.reply is not Reply.PARKED:
                return here
        placement = placement or await self._place_elsewhere(home, waiting, work)
        if placement is not None:
            return Submitted(Reply.PLACED, placement)
        served = self._fleet.elsewhere(home, waiting.demand)
        answer = await self._store.job_place(home, waiting.job, park=2 if served else 0)
        work.take(answer.effects)
        if answer.reply is Reply.JOB_ENDED:
            return Submitted(Reply.SETTLED)  # admitted, and ended meanwhile by who tells of it
        return answer._replace(effects=Effects())

    async def _place_named(self, home: Cell, waiting: WaitingJob, work: Work) -> Placement | None:
        """Try the turn's node, then the preferred one, where these are in other cells."""
        for named in (waiting.affinity, self._preferred(home, waiting.preferred)):
            name, _, node = named.partition("/")
            if not node or name == home.name:
                continue
            cell = self._cells.named(name)
            placement = await self._reserve_and_commit(home, cell, waiting, work, only=node)
            if placement is not None:
                return placement
        return None

    async def _place_elsewhere(
        self, home: Cell, waiting: WaitingJob, work: Work
    ) -> Placement | None:
        for cell in self._fleet.elsewhere(home, waiting.demand):
            placement = await self._reserve_and_commit(home, cell, waiting, work)
            if placement is not None:
                return placement
        return None

    async def _reserve_and_commit(
        self, home: Cell, cell: Cell, waiting: WaitingJob, work: Work, *, only: str = ""
    ) -> Placement | None:
        lease = Lease(waiting.job, waiting.attempt + 1, home.name)
        try:
            slot = await self._store.lease_reserve(
                cell, lease, waiting.demand, only=only, tried=waiting.tried
            )
        except StoreUnavailable:
            return None  # a slot that was taken after all lapses by itself
        if slot.reply is not Reply.RESERVED:
            return None
        answer = await self._store.job_commit(home, lease.job, lease.attempt, cell.name, slot)
        if answer.placement is None:
            with suppress(StoreUnavailable):
                given_back = await self._store.lease_release(cell, slot.node, lease)
                work.take(given_back.effects)
            return None
        placement = answer.placement
        if await self._confirm(cell.name, slot.node, lease, placement.ends_at_ms):
            return placement
        _, more = await self.failover(home, lease.job, lease.attempt, reason="lease_lapsed")
        work.merge(more)
        return None

    async def _confirm(self, cell: str, node: str, lease: Lease, ends_at_ms: int) -> bool:
        """Hold the slot for the attempt; tells whether the job may stay there."""
        expires_at_ms = ends_at_ms + self._policy.lease_grace_ms
        try:
            reply = await self._store.lease_confirm(
                self._cells.named(cell), node, lease, expires_at_ms
            )
        except StoreUnavailable:
            return True  # the job has its holder; the node's beats make up for a lapsed lease
        return reply is Reply.OK
