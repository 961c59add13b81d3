"""The steps of a job in the cells: submit, place, settle, move, end.

With one cell every step is one script. With several, a job that its home cell cannot serve needs
three: reserve a slot in another cell for a short time, commit the job to it in the home cell,
confirm the slot for the attempt. A crash between any two leaves only a slot that expires and a
timer that another instance acts on.

The actions on sockets are returned as `Work`: jobs to push, outcomes to deliver, attempts to stop.
The caller performs them; this module has no sockets.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.jobs.search import Search, TurnsInFlight
from lingua_scheduler.jobs.streams import StreamDispatcher, heard_elsewhere
from lingua_scheduler.state.records import (
    REFUSED,
    Cancelled,
    Lease,
    ScriptEffects,
    Submitted,
    WaitingJob,
)
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from lingua_scheduler.jobs.fleet import FleetSnapshot
    from lingua_scheduler.jobs.search import TurnInFlight
    from lingua_scheduler.state.keys import Cell, Cells
    from lingua_scheduler.state.policy import Policy
    from lingua_scheduler.state.records import (
        ForeignSlot,
        JobSpec,
        LaneFill,
        ListenerOutcome,
        MovedJob,
        NodeReply,
        Placement,
        Settled,
        Speech,
    )
    from lingua_scheduler.state.script import Word
    from lingua_scheduler.state.store import Store

# Answers to a failover that mean that the job has left its node.
LEFT = frozenset({Reply.PLACED, Reply.QUEUED, Reply.PARKED, Reply.SETTLED})
# How many waiting jobs of each demand are offered to other cells at a time.
OFFER_MAX = 8


class Move(NamedTuple):
    """An attempt that was taken from its node, or an expired job; and what followed."""

    job: str
    home: str
    attempt: int
    # The former holder; '' if the job waited.
    node: str
    reason: str
    # PLACED, QUEUED or SETTLED, after all cells were asked.
    reply: Reply
    # The new placement; else the reason why no node could take it.
    to: Placement | None
    label: str


class Work(msgspec.Struct):
    """The actions on sockets after a step."""

    push: list[Placement] = []
    # Scripts that released outcomes, which the owner of their session must send.
    deliver: list[ScriptEffects] = []
    # Attempts whose node must be told to stop.
    stop: list[Cancelled] = []
    # Jobs that were taken from their nodes, to be counted and reported.
    moved: list[Move] = []
    # Outcomes in listeners' outboxes, of which the owners must be informed.
    heard: list[ListenerOutcome] = []
    # Cell and session of speakers with listeners that do not have all outcomes yet.
    relay: list[tuple[str, str]] = []
    # The accounts of ended sessions, to be counted.
    spoken: list[Speech] = []

    def add_effects(self, effects: ScriptEffects) -> None:
        """Add the effects of a script."""
        if effects.placed:
            self.push.extend(effects.placed)
        if effects.released:
            self.deliver.append(effects)
        if effects.heard:
            self.heard.extend(effects.heard)
        if effects.is_relaying:
            self.relay.append((effects.home, effects.session))

    def merge(self, other: Work) -> None:
        """Add another step's work."""
        self.push.extend(other.push)
        self.deliver.extend(other.deliver)
        self.stop.extend(other.stop)
        self.moved.extend(other.moved)
        self.heard.extend(other.heard)
        self.relay.extend(other.relay)
        self.spoken.extend(other.spoken)


async def gather_work(steps: Iterable[Awaitable[Work]]) -> Work:
    """Run independent steps concurrently; an unreachable cell fails only its own step.

    Each such step has a timer by which it is repeated.
    """
    total = Work()
    for result in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(result, Work):
            total.merge(result)
        elif not isinstance(result, StoreUnavailable):
            raise result
    return total


class Dispatcher(StreamDispatcher):
    """Moves jobs through the store on behalf of one instance."""

    def __init__(self, store: Store, cells: Cells, fleet: FleetSnapshot, policy: Policy) -> None:
        super().__init__(store, cells, fleet)
        self._policy = policy
        self._turns = TurnsInFlight()
        # How long a node has for an attempt.
        self.attempt_ms = policy.attempt_ms

    async def submit(
        self, home: Cell, job: str, spec: JobSpec, body: bytes, audio: bytes = b""
    ) -> tuple[Submitted, Work]:
        """Admit a job: placed, waiting, refused, or the duplicate of an existing job."""
        work = Work()
        (answer,) = await self.submit_all(home, ((job, spec, body, 0),), audio, work.merge)
        if answer.placement is not None:
            work.push.append(answer.placement)
        work.add_effects(answer.effects)
        return answer, work

    def submit_all(
        self,
        home: Cell,
        jobs: Sequence[tuple[str, JobSpec, bytes, int]],
        audio: bytes,
        besides: Callable[[Work], None],
    ) -> Awaitable[list[Submitted]]:
        """Admit the jobs of one utterance in one step, each as `submit` does.

        `jobs` are as `job_submit` takes them; whether they are parked is decided here. A search in
        other cells may do more than an answer says: that is given to `besides`.
        """
        if self._cells.is_one:
            return self._store.jobs.submit_all(home, jobs, audio)
        if jobs[0][1].turn:
            return self._submit_in_turn(home, jobs, audio, besides)
        return self._submit_over_cells(home, jobs, audio, besides)

    async def _submit_in_turn(
        self,
        home: Cell,
        jobs: Sequence[tuple[str, JobSpec, bytes, int]],
        audio: bytes,
        besides: Callable[[Work], None],
    ) -> list[Submitted]:
        with self._turns.entered(jobs[0][1]) as turn:
            return await self._submit_over_cells(home, jobs, audio, besides, turn=turn)

    async def _submit_over_cells(
        self,
        home: Cell,
        jobs: Sequence[tuple[str, JobSpec, bytes, int]],
        audio: bytes,
        besides: Callable[[Work], None],
        *,
        turn: TurnInFlight | None = None,
    ) -> list[Submitted]:
        parked = [
            (job, spec, body, self._park(home, spec, turn, is_first=at == 0))
            for at, (job, spec, body, _) in enumerate(jobs)
        ]
        submitting = self._store.jobs.submit_all(home, parked, audio)
        if heard_elsewhere(home, jobs[0][1]):
            answers, _ = await asyncio.gather(submitting, self._close_heard(jobs[0][1]))
        else:
            answers = await submitting
        for at, (job, spec, _, _) in enumerate(jobs):
            if answers[at].reply is Reply.PARKED:
                work = Work()
                answers[at] = await self._place_elsewhere(
                    home, job, spec=spec, parked=answers[at], turn=turn, work=work
                )
                besides(work)
        return answers

    def _park(self, home: Cell, spec: JobSpec, turn: TurnInFlight | None, *, is_first: bool) -> int:
        """Return whether a job that its home cell cannot place is parked, as `job_submit` takes it.

        A job behind others of its turn follows them.
        """
        others = self._fleet.elsewhere(home, spec.demand)
        is_behind = turn is not None and (turn.jobs > 1 or not is_first)
        preferred = self._holder_elsewhere(home, spec.preferred)
        if preferred or heard_elsewhere(home, spec) or (others and is_behind):
            return 2
        return 1 if others else 0

    async def _place_elsewhere(
        self,
        home: Cell,
        job: str,
        *,
        spec: JobSpec,
        parked: Submitted,
        turn: TurnInFlight | None,
        work: Work,
    ) -> Submitted:
        """Search other cells for a node."""
        waiting = WaitingJob(
            job,
            0,
            demand=spec.demand,
            preferred=spec.preferred,
            affinity=parked.affinity,
            avoid=parked.avoid,
            stream_node=spec.stream_node,
        )
        search = self._search(home, waiting, work, parked.label)
        return await self._place_in_turn(home, search, turn)

    async def settle(  # noqa: PLR0913 the wire's own fields
        self,
        home: Cell,
        job: str,
        attempt: int,
        node: str,
        *,
        kind: str,
        reason: str = "-",
        payload: bytes | tuple[bytes, bytes] = b"",
    ) -> tuple[Settled, Work]:
        """End a job with its holder's report; see `Store.jobs.settle`."""
        answer = await self._store.jobs.settle(
            home, job, attempt, node, kind=kind, reason=reason, payload=payload
        )
        return answer, await self.follow(home, answer.effects)

    async def cancel(self, home: Cell, job: str, reason: str) -> tuple[Settled, Work]:
        """End an unwanted job."""
        answer, told = await self._store.jobs.cancel(home, job, reason)
        work = await self.follow(home, answer.effects)
        if told.node:
            work.stop.append(told)
        return answer, work

    async def close_session(
        self,
        home: Cell,
        session: str,
        reason: str,
        *,
        lapse_only: bool = False,
        fence: int = 0,
        fields: Mapping[str, Word] | None = None,
    ) -> tuple[Settled, Work]:
        """Close a session and end its jobs; `fields`: data that only its owner has."""
        answer, told, speech = await self._store.sessions.close(
            home, session, reason, lapse_only=lapse_only, fence=fence, fields=fields
        )
        work = await self.follow(home, answer.effects)
        work.stop.extend(entry for entry in told if entry.node)
        if answer.reply is Reply.SETTLED:
            work.spoken.append(speech)
        return answer, work

    async def end_turn(
        self, home: Cell, session: str, turn: str, *, fence: int = 0
    ) -> tuple[Settled, Work]:
        """End a turn that has no closing piece."""
        answer = await self._store.sessions.end_turn(home, session, turn, fence=fence)
        return answer, await self.follow(home, answer.effects)

    async def fill(
        self, home: Cell, session: str, lane: str, *, answer: LaneFill = REFUSED, **where: int
    ) -> tuple[Settled, Work]:
        """Give an explicit outcome to an index (or to the holes that are due)."""
        filled = await self._store.outbox.fill_lane(home, session, lane, answer=answer, **where)
        return filled, await self.follow(home, filled.effects)

    async def failover(
        self, home: Cell, job: str, attempt: int, *, node: str = "", reason: str
    ) -> tuple[MovedJob, Work]:
        """Take a job from its holder: to another node, into the queue, or to its end."""
        park = 1 if len(self._cells.all) > 1 else 0
        moved = await self._store.jobs.failover(
            home, job, attempt, node=node, reason=reason, park=park
        )
        work = await self.follow(home, moved.effects)
        taken = self._taken(attempt, moved)
        answer = Submitted(moved.reply, moved.placement, label=moved.label)
        if moved.left_node and not node and moved.reply is not Reply.DEFERRED:
            cell = self._cells.of_node(moved.left_node).name
            work.stop.append(Cancelled(job, taken, cell, moved.left_node))
        if moved.reply is Reply.PARKED and moved.waiting is not None:
            search = self._search(home, moved.waiting, work, moved.label)
            answer = await self._place_parked(home, search)
        if answer.placement is not None:
            work.push.append(answer.placement)
        if moved.reply in LEFT and moved.reason:
            work.moved.append(
                Move(
                    job,
                    home.name,
                    attempt=taken,
                    node=moved.left_node,
                    reason=moved.reason,
                    reply=answer.reply,
                    to=answer.placement,
                    label=answer.label,
                )
            )
        if moved.reply is Reply.DEFERRED and moved.cell != home.name:
            lease = Lease(job, moved.attempt, home.name)
            if not await self._confirm(moved.cell, moved.left_node, lease):
                return await self.failover(home, job, moved.attempt, reason="lease_lapsed")
        return moved, work

    def _taken(self, attempt: int, moved: MovedJob) -> int:
        """Return the attempt that a job has left, also after a deadline, which names no attempt."""
        if attempt >= 0:
            return attempt
        if moved.placement is not None:
            return moved.placement.attempt - 1
        return moved.waiting.attempt if moved.waiting is not None else moved.attempt

    async def node_lost(self, node: str, conn: str) -> tuple[NodeReply, Work]:
        """Move the leases of a node that lost its socket."""
        cell = self._cells.of_node(node)
        answer = await self._store.nodes.offline(cell, node, conn)
        return answer, await self.move_leases(node, answer.lost, "node_lost")

    async def instance_lost(self, instance: str, *, keep_ms: int = 0) -> Work:
        """Move the leases of the nodes of a lost instance, unless they are connected elsewhere.

        With `keep_ms` the nodes have that long to reconnect with their jobs.
        """
        return await gather_work(
            self._instance_lost_in(cell, instance, keep_ms) for cell in self._cells.all
        )

    async def _instance_lost_in(self, cell: Cell, instance: str, keep_ms: int) -> Work:
        work, after = Work(), ""
        while rows := await self._store.cells.nodes(cell, after):
            for row in rows:
                if row.instance == instance and row.status != "offline":
                    answer = await self._store.nodes.offline(
                        cell, row.node, instance=instance, keep_ms=keep_ms
                    )
                    work.merge(await self.move_leases(row.node, answer.lost, "node_lost"))
            after = rows[-1].node
        return work

    async def move_leases(self, node: str, leases: Sequence[Lease], reason: str) -> Work:
        """Fail over every lease of a node; the lease of a moved or ended job is only given back."""
        return await gather_work(self._move_lease(node, lease, reason) for lease in leases)

    async def release_foreign(self, home: Cell, slot: ForeignSlot) -> Work:
        """Give back a slot in another cell and drop its timer in the home cell."""
        lease = Lease(slot.job, slot.attempt, home.name)
        answer = await self._store.leases.release(self._cells.named(slot.cell), slot.node, lease)
        await self._store.cells.done(home, slot)
        work = Work()
        work.add_effects(answer.effects)
        return work

    async def offer_waiting(self, home: Cell) -> Work:
        """Offer the jobs that wait in a cell to the other cells, earliest deadline first."""
        work = Work()
        if len(self._cells.all) == 1:
            return work
        for waiting in await self._store.cells.waiting(home, OFFER_MAX):
            search = self._search(home, waiting, work)
            placed = await self._ask_named(home, search)
            placed = placed or await self._ask_cells(home, search)
            if placed is None and search.answer is not None:
                placed = search.answer.placement
            if placed is not None:
                work.push.append(placed)
        return work

    async def _move_lease(self, node: str, lease: Lease, reason: str) -> Work:
        cell = self._cells.of_node(node)
        home = self._cells.named(lease.home) if lease.home else cell
        moved, work = await self.failover(home, lease.job, lease.attempt, node=node, reason=reason)
        if moved.reply in (Reply.NO_JOB, Reply.JOB_ENDED, Reply.STALE_ATTEMPT, Reply.NODE_MISMATCH):
            answer = await self._store.leases.release(cell, node, lease)
            work.add_effects(answer.effects)
        return work

    async def follow(self, home: Cell, effects: ScriptEffects) -> Work:
        """Return the work after a script, with that of giving back slots of other cells."""
        work = Work()
        work.add_effects(effects)
        if not effects.freed:
            return work
        # The step itself is done and must be reported; a slot that cannot be given back now has
        # a timer in the home cell and is tried again by any sweep.
        with suppress(StoreUnavailable):
            for slot in effects.freed:
                work.merge(await self.release_foreign(home, slot))
            # A slot became free in another cell: a job that waits here may take it.
            work.merge(await self.offer_waiting(home))
        return work

    # Placement over several cells

    def _search(self, home: Cell, waiting: WaitingJob, work: Work, label: str = "") -> Search[Work]:
        """Return the search for a job that its home cell did not place."""
        preferred = self._holder_elsewhere(home, waiting.preferred)
        named = [*waiting.affinity.split(","), waiting.stream_node, preferred]
        named, here = (
            [name for name in named if name and name.startswith(f"{home.name}/") is at_home]
            for at_home in (False, True)
        )
        return Search(
            waiting,
            work,
            named,
            here,
            avoid=waiting.avoid,
            passes_home=label == "affinity_elsewhere",
        )

    async def _place_in_turn(
        self, home: Cell, search: Search[Work], turn: TurnInFlight | None
    ) -> Submitted:
        """Place a parked job behind those of its turn that were parked before it."""
        if turn is None:
            return await self._place_parked(home, search)
        async with turn.lock:
            if turn.holder and not search.waiting.affinity:
                search.named.insert(0, turn.holder)
            answer = await self._place_parked(home, search)
            if answer.placement is not None and not turn.holder:
                turn.holder = f"{answer.placement.cell}/{answer.placement.node}"
            return answer

    async def _place_parked(self, home: Cell, search: Search[Work]) -> Submitted:
        """Find a node in any cell for a parked job, else queue it in its home cell."""
        placement = await self._ask_named(home, search)
        if placement is None and search.answer is None and search.passes_home:
            await self._ask_home(home, search)
        placement = placement or await self._ask_cells(home, search)
        if placement is None and search.answer is None and search.avoid:
            # No other node can take it: the node to avoid is better than none.
            search.avoid = ""
            await self._ask_home(home, search)
            placement = await self._ask_cells(home, search)
        if placement is not None:
            return Submitted(Reply.PLACED, placement)
        if search.answer is not None:
            return search.answer
        served = self._fleet.elsewhere(home, search.waiting.demand)
        answer = await self._store.jobs.place(home, search.waiting.job, park=2 if served else 0)
        search.work.add_effects(answer.effects)
        if answer.reply is Reply.JOB_ENDED:
            return Submitted(Reply.SETTLED)  # admitted, and ended by another call, which reports it
        return msgspec.structs.replace(answer, effects=ScriptEffects())

    async def _ask_home(self, home: Cell, search: Search[Work]) -> None:
        """Ask the home cell once more; the search goes on only if it cannot place the job."""
        here = await self._store.jobs.place(home, search.waiting.job, park=1)
        if here.reply not in (Reply.PARKED, Reply.QUEUED):
            search.answer = here

    async def _ask_named(self, home: Cell, search: Search[Work]) -> Placement | None:
        """Ask the named nodes one after the other: those of the turn, then the preferred one."""
        while search.named and search.answer is None:
            named = search.named.pop(0)
            if named in search.asked:
                continue
            search.asked.append(named)
            name, _, node = named.partition("/")
            if name == home.name:
                await self._ask_home(home, search)
                continue
            placement = await self._reserve_and_commit(
                home, self._cells.named(name), search, only=node
            )
            if placement is not None:
                return placement
        return None

    async def _ask_cells(self, home: Cell, search: Search[Work]) -> Placement | None:
        """Ask the other cells that may serve the job, each for any of its nodes."""
        for cell in self._fleet.elsewhere(home, search.waiting.demand):
            asked = -1
            # Again whenever the turn turns out to have a node that cannot take it.
            while asked < len(search.asked) and search.answer is None:
                asked = len(search.asked)
                placement = await self._reserve_and_commit(home, cell, search)
                placement = placement or await self._ask_named(home, search)
                if placement is not None:
                    return placement
        return None

    async def _reserve_and_commit(
        self, home: Cell, cell: Cell, search: Search[Work], *, only: str = ""
    ) -> Placement | None:
        waiting, work = search.waiting, search.work
        lease = Lease(waiting.job, waiting.attempt + 1, home.name)
        try:
            slot = await self._store.leases.reserve(
                cell,
                lease,
                waiting.demand,
                only=only,
                tried=waiting.tried,
                avoid="" if only else search.avoid,
            )
        except StoreUnavailable:
            return None  # a slot that was reserved nevertheless expires
        if slot.reply is not Reply.RESERVED:
            return None
        answer = await self._store.jobs.commit(
            home, lease, cell.name, slot, asked=search.asked_text()
        )
        if answer.placement is None:
            # Its turn may have got a node in the meantime, which is asked next.
            search.named += [named for named in answer.affinity.split(",") if named]
            with suppress(StoreUnavailable):
                given_back = await self._store.leases.release(cell, slot.node, lease)
                work.add_effects(given_back.effects)
            return None
        placement = answer.placement
        if await self._confirm(cell.name, slot.node, lease):
            return placement
        _, more = await self.failover(home, lease.job, lease.attempt, reason="lease_lapsed")
        work.merge(more)
        return None

    async def _confirm(self, cell: str, node: str, lease: Lease) -> bool:
        """Hold the slot for the attempt; tells whether the job may stay on the node."""
        hold_ms = self._policy.attempt_ms + self._policy.lease_grace_ms
        try:
            reply = await self._store.leases.confirm(self._cells.named(cell), node, lease, hold_ms)
        except StoreUnavailable:
            return True  # the job has its holder; the node's heartbeats replace an expired lease
        return reply is Reply.OK
