"""The repair of each kind of finding.

Every repair is idempotent and safe while instances serve: it runs a script that checks again before
it changes anything, or one that instances themselves run at any time. A repair that needs a live
instance is handed over to one, or left if there is none; the result says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.jobs.dispatcher import Work
from lingua_scheduler.maintenance.check_jobs import check_lease
from lingua_scheduler.maintenance.effects import EffectRunner
from lingua_scheduler.maintenance.finding import KINDS
from lingua_scheduler.peers.presence import Directory
from lingua_scheduler.peers.stream import InboxStream
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.records import ForeignSlot, Lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.maintenance.finding import Finding
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import ScriptEffects

    Repair = Callable[[Finding], Awaitable["RepairResult"]]


class RepairResult(NamedTuple):
    """The result of a repair: `repaired`, `handed_over` (to a live instance) or `left`."""

    state: str
    what: str


class Repairs:
    """Repairs the findings of one scan."""

    def __init__(self, context: ScanContext, lease_ms: int) -> None:
        self._context = context
        # The lease of a session that gets its timer back.
        self._lease_ms = lease_ms
        self._effects = EffectRunner(context)
        self._store = self._effects.store
        self._repairs: dict[str, Repair] = {
            "lease_stale": self._release,
            "lease_untimed": self._release_lapsed,
            "reserved_without_lease": self._release_lapsed,
            "job_without_timer": self._job_deadline,
            "job_kept": lambda finding: self._mend(finding, "job", self._context.policy.binding_ms),
            "audio_without_job": lambda finding: self._mend(finding, "audio"),
            "pending_broken": self._queue,
            "queue_broken": self._queue,
            "waiting_broken": self._queue,
            "session_without_timer": self._renew,
            "session_kept": self._forget_session,
            "outbox_kept": self._forget_session,
            "relay_without_timer": self._relay,
            "room_without_timer": lambda finding: self._mend(finding, "room"),
            "node_of_dead_instance": self._node_lost,
            "node_without_timer": self._node_check,
            "node_half_known": lambda finding: self._mend(finding, "node"),
            "marks_of_no_node": lambda finding: self._mend(finding, "node"),
            "streams_of_no_node": lambda finding: self._mend(finding, "streams"),
            "streaming_broken": lambda finding: self._mend(finding, "streaming"),
            "pool_broken": lambda finding: self._mend(finding, "pool"),
            "timer_of_nothing": self._timer,
            "instance_dead": self._inbox,
            "inbox_orphan": self._inbox,
            "inbox_unlisted": self._list_inbox,
            "instance_half_known": lambda finding: self._mend(finding, "instance"),
            "dead_letters_unlisted": self._list_dead_letters,
            "key_without_ttl": self._expire,
        }

    async def repair(self, finding: Finding) -> RepairResult:
        """Repair one finding, if its kind has a remedy."""
        if finding.kind not in self._repairs:
            return RepairResult("left", "an operator must decide")
        try:
            return await self._repairs[finding.kind](finding)
        except StoreRejected as error:
            # The script cannot read the damaged data; the other findings are still repaired.
            return RepairResult("left", f"the store refused: {error.reply[:80]}")

    def _cell(self, finding: Finding) -> Cell:
        return self._context.cells.named(finding.where)

    def _done(self, finding: Finding, what: str = "") -> RepairResult:
        return RepairResult("repaired", what or KINDS[finding.kind].remedy)

    async def _mend(self, finding: Finding, what: str, more: int | str = "") -> RepairResult:
        await self._run(self._cell(finding), what, finding.name, more)
        return self._done(finding)

    async def _run(self, cell: Cell, what: str, name: str, more: int | str) -> None:
        await self._store.cells.mend(cell, what, name, more)

    # Jobs and slots

    async def _release(self, finding: Finding) -> RepairResult:
        """Give back a slot after one more check: an attempt that has ended never comes back."""
        cell, (node, member) = self._cell(finding), finding.args
        key = cell.key("leases", node)
        (score,) = await self._context.reader.ask(cell.slot, [("ZSCORE", key, member)])
        if score is None:
            return self._done(finding, "it was already given back")
        again = await check_lease(self._context, cell, node, member, int(float(score)))
        if not any(each.kind == finding.kind for each in again):
            return self._done(finding, "it is already correct")
        answer = await self._store.leases.release(cell, node, Lease.read(member.encode()))
        await self._perform(answer.effects)
        return self._done(finding)

    async def _release_lapsed(self, finding: Finding) -> RepairResult:
        cell, (node, member) = self._cell(finding), finding.args
        answer = await self._store.leases.release(
            cell, node, Lease.read(member.encode()), lapsed_only=True
        )
        await self._perform(answer.effects)
        return self._done(finding)

    async def _perform(self, effects: ScriptEffects) -> None:
        work = Work()
        work.add_effects(effects)
        await self._effects.perform(work)

    async def _job_deadline(self, finding: Finding) -> RepairResult:
        """Apply the job's own deadline; a job that is not due gets its timer back."""
        _, work = await self._effects.dispatcher.failover(
            self._cell(finding), finding.name, -1, reason="deadline"
        )
        await self._effects.perform(work)
        return self._done(finding)

    async def _queue(self, finding: Finding) -> RepairResult:
        demand, job = finding.args
        await self._run(self._cell(finding), "queue", demand, job)
        return self._done(finding)

    # Sessions

    async def _renew(self, finding: Finding) -> RepairResult:
        (owner,) = finding.args
        cell = self._cell(finding)
        lost = await self._store.sessions.renew(cell, owner, [finding.name], self._lease_ms)
        what = "another instance owns it by now" if lost else ""
        return self._done(finding, what)

    async def _forget_session(self, finding: Finding) -> RepairResult:
        return await self._mend(finding, "session", self._context.policy.resume_ms)

    async def _relay(self, finding: Finding) -> RepairResult:
        """Continue the delivery to listeners in this cell; for other cells this sets the timer."""
        step = await self._store.outbox.relay(self._cell(finding), finding.name)
        await self._perform(step.effects)
        return self._done(finding)

    # Nodes

    async def _node_lost(self, finding: Finding) -> RepairResult:
        (instance,) = finding.args
        answer = await self._store.nodes.offline(
            self._cell(finding), finding.name, instance=instance
        )
        work = await self._effects.dispatcher.move_leases(finding.name, answer.lost, "node_lost")
        await self._effects.perform(work)
        return self._done(finding)

    async def _node_check(self, finding: Finding) -> RepairResult:
        answer = await self._store.nodes.check(self._cell(finding), finding.name)
        work = await self._effects.dispatcher.move_leases(finding.name, answer.lost, "node_lost")
        await self._effects.perform(work)
        return self._done(finding)

    # Timers: the scripts that act on timers delete those without an object.

    async def _timer(self, finding: Finding) -> RepairResult:
        cell, store = self._cell(finding), self._store
        kind, name, *rest = finding.name.split("|")
        if kind == "j":
            await self._run(cell, "deadline", name, "")
        elif kind == "s":
            await store.sessions.close(cell, name, "lapsed", lapse_only=True)
        elif kind == "g":
            await store.outbox.fill_lane(cell, name, rest[0])
        elif kind == "n":
            await store.nodes.check(cell, name)
        elif kind == "m":
            await store.nodes.mark(cell, name)
        elif kind == "x":
            await store.outbox.relay(cell, name)
        elif kind == "room":
            await self._run(cell, "room", name, "")
        elif kind == "l":
            lease = Lease.read("|".join(rest).encode())
            await store.leases.release(cell, name, lease, lapsed_only=True)
        else:
            node, job, attempt = rest
            await store.cells.done(cell, ForeignSlot(name, node, job, int(attempt)))
        return self._done(finding)

    # Instances

    async def _inbox(self, finding: Finding) -> RepairResult:
        """Remove an inbox without unprocessed entries; otherwise a live instance must read it."""
        context, name = self._context, finding.name
        stream = InboxStream(context.connection, context.prefix, name)
        if await stream.remove():
            await Directory(context.connection, context.prefix).forget(
                name, context.rows[name].beat_at_ms if name in context.rows else 0
            )
            return self._done(finding)
        return self._by_instance("its messages are read")

    async def _list_inbox(self, finding: Finding) -> RepairResult:
        await self._list("inboxes", finding.name)
        return self._by_instance("listed; its messages are read")

    async def _list_dead_letters(self, finding: Finding) -> RepairResult:
        await self._list("dlqs", finding.name)
        return self._done(finding)

    async def _list(self, family: str, instance: str) -> None:
        home = self._context.cells.all[0]
        await self._context.connection.command(home.slot, "SADD", home.key(family), instance)

    def _by_instance(self, what: str) -> RepairResult:
        if self._context.alive:
            return RepairResult("handed_over", f"{what} by a live instance")
        return RepairResult("left", f"{what} by the next instance that starts")

    async def _expire(self, finding: Finding) -> RepairResult:
        (ttl_ms,) = finding.args
        key = finding.name
        await self._context.connection.command(key_slot(key), "PEXPIRE", key, ttl_ms, "NX")
        return self._done(finding)
