"""What is done about each kind of finding.

Every repair is idempotent and safe while instances serve: it runs a script that looks again before
it changes anything, or one that the product itself runs at any time. What a repair cannot do
because somebody must live for it is handed to the living, or left, and the words say which.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.between.presence import Directory
from lingua_scheduler.between.stream import InboxStream
from lingua_scheduler.care.check_jobs import check_lease
from lingua_scheduler.care.errands import Errands
from lingua_scheduler.care.finding import KINDS
from lingua_scheduler.errors import StoreRejected
from lingua_scheduler.jobs.dispatcher import Work
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.records import ForeignSlot, Lease
from lingua_scheduler.state.script import Script
from lingua_scheduler.state.scripts import check_head, expand, name_replies, slim

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.care.finding import Finding
    from lingua_scheduler.care.ground import Ground
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import Effects

    Repair = Callable[[Finding], Awaitable["Done"]]


class Done(NamedTuple):
    """What came of a repair: `repaired`, `handed_over` (to an instance that lives), `left`."""

    state: str
    what: str


@cache
def mend_script() -> Script:
    """Return the one script that is ours."""
    source = files(__package__).joinpath("mend.lua").read_text()
    check_head("mend", source)
    folder = files("lingua_scheduler.state").joinpath("lua")
    return Script.of("mend", slim(name_replies("mend", expand(folder, source, []))))


class Repairs:
    """Repairs findings of one look."""

    def __init__(self, ground: Ground, lease_ms: int) -> None:
        self._ground = ground
        # For how long a session without a timer gets one.
        self._lease_ms = lease_ms
        self._errands = Errands(ground)
        self._store = self._errands.store
        self._repairs: dict[str, Repair] = {
            "lease_stale": self._release,
            "lease_untimed": self._release_lapsed,
            "reserved_without_lease": self._release_lapsed,
            "job_without_timer": self._job_deadline,
            "job_kept": lambda finding: self._mend(finding, "job", self._ground.policy.binding_ms),
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
            "pool_broken": lambda finding: self._mend(finding, "pool"),
            "timer_of_nothing": self._timer,
            "instance_dead": self._inbox,
            "inbox_orphan": self._inbox,
            "inbox_unlisted": self._list_inbox,
            "instance_half_known": lambda finding: self._mend(finding, "instance"),
            "dead_letters_unlisted": self._list_dead_letters,
            "key_without_ttl": self._expire,
        }

    async def repair(self, finding: Finding) -> Done:
        """Do what can be done."""
        if finding.kind not in self._repairs:
            return Done("left", "for a person to judge")
        try:
            return await self._repairs[finding.kind](finding)
        except StoreRejected as error:
            # A script met damage that it cannot read: the other findings are repaired all the same.
            return Done("left", f"the store refused: {error.reply[:80]}")

    def _cell(self, finding: Finding) -> Cell:
        return self._ground.cells.named(finding.where)

    def _done(self, finding: Finding, what: str = "") -> Done:
        return Done("repaired", what or KINDS[finding.kind].remedy)

    async def _mend(self, finding: Finding, what: str, more: int | str = "") -> Done:
        await self._run(self._cell(finding), what, finding.name, more)
        return self._done(finding)

    async def _run(self, cell: Cell, what: str, name: str, more: int | str) -> None:
        await self._ground.connection.run(
            mend_script(), cell.slot, cell.keys, (0, what, name, more)
        )

    # Jobs and slots

    async def _release(self, finding: Finding) -> Done:
        """Give back a slot after one more look: attempts never come back once they are over."""
        cell, (node, member) = self._cell(finding), finding.args
        key = cell.key("leases", node)
        (score,) = await self._ground.reader.ask(cell.slot, [("ZSCORE", key, member)])
        if score is None:
            return self._done(finding, "it was given back meanwhile")
        again = await check_lease(self._ground, cell, node, member, int(float(score)))
        if not any(each.kind == finding.kind for each in again):
            return self._done(finding, "it is in order by now")
        answer = await self._store.lease_release(cell, node, Lease.read(member.encode()))
        await self._perform(answer.effects)
        return self._done(finding)

    async def _release_lapsed(self, finding: Finding) -> Done:
        cell, (node, member) = self._cell(finding), finding.args
        answer = await self._store.lease_release(
            cell, node, Lease.read(member.encode()), lapsed_only=True
        )
        await self._perform(answer.effects)
        return self._done(finding)

    async def _perform(self, effects: Effects) -> None:
        work = Work()
        work.take(effects)
        await self._errands.perform(work)

    async def _job_deadline(self, finding: Finding) -> Done:
        """Let the job's own deadline decide; one that is not due gets its timer back."""
        _, work = await self._errands.dispatcher.failover(
            self._cell(finding), finding.name, -1, reason="deadline"
        )
        await self._errands.perform(work)
        return self._done(finding)

    async def _queue(self, finding: Finding) -> Done:
        demand, job = finding.args
        await self._run(self._cell(finding), "queue", demand, job)
        return self._done(finding)

    # Sessions

    async def _renew(self, finding: Finding) -> Done:
        (owner,) = finding.args
        cell = self._cell(finding)
        lost = await self._store.session_renew(cell, owner, [finding.name], self._lease_ms)
        what = "another has it by now" if lost else ""
        return self._done(finding, what)

    async def _forget_session(self, finding: Finding) -> Done:
        return await self._mend(finding, "session", self._ground.policy.resume_ms)

    async def _relay(self, finding: Finding) -> Done:
        """Go on with what listeners here have not got; for the others this sets the timer."""
        step = await self._store.relay_run(self._cell(finding), finding.name)
        await self._perform(step.effects)
        return self._done(finding)

    # Nodes

    async def _node_lost(self, finding: Finding) -> Done:
        (instance,) = finding.args
        answer = await self._store.node_offline(
            self._cell(finding), finding.name, instance=instance
        )
        work = await self._errands.dispatcher.move_leases(finding.name, answer.lost, "node_lost")
        await self._errands.perform(work)
        return self._done(finding)

    async def _node_check(self, finding: Finding) -> Done:
        answer = await self._store.node_check(self._cell(finding), finding.name)
        work = await self._errands.dispatcher.move_leases(finding.name, answer.lost, "node_lost")
        await self._errands.perform(work)
        return self._done(finding)

    # Timers: the scripts that act on them drop those of nothing.

    async def _timer(self, finding: Finding) -> Done:
        cell, store = self._cell(finding), self._store
        kind, name, *rest = finding.name.split("|")
        if kind == "j":
            await self._run(cell, "deadline", name, "")
        elif kind == "s":
            await store.session_close(cell, name, "lapsed", lapse_only=True)
        elif kind == "g":
            await store.lane_fill(cell, name, rest[0])
        elif kind == "n":
            await store.node_check(cell, name)
        elif kind == "m":
            await store.node_mark(cell, name)
        elif kind == "x":
            await store.relay_run(cell, name)
        elif kind == "room":
            await self._run(cell, "room", name, "")
        elif kind == "l":
            lease = Lease.read("|".join(rest).encode())
            await store.lease_release(cell, name, lease, lapsed_only=True)
        else:
            node, job, attempt = rest
            await store.cell_done(cell, ForeignSlot(name, node, job, int(attempt)))
        return self._done(finding)

    # Instances

    async def _inbox(self, finding: Finding) -> Done:
        """Remove an inbox in which nothing is left to do; else somebody must live to read it."""
        ground, name = self._ground, finding.name
        stream = InboxStream(ground.connection, ground.prefix, name)
        if await stream.remove():
            await Directory(ground.connection, ground.prefix).forget(
                name, ground.rows[name].beat_at_ms if name in ground.rows else 0
            )
            return self._done(finding)
        return self._to_the_living("its letters are read")

    async def _list_inbox(self, finding: Finding) -> Done:
        await self._list("inboxes", finding.name)
        return self._to_the_living("listed; its letters are read")

    async def _list_dead_letters(self, finding: Finding) -> Done:
        await self._list("dlqs", finding.name)
        return self._done(finding)

    async def _list(self, family: str, instance: str) -> None:
        home = self._ground.cells.all[0]
        await self._ground.connection.command(home.slot, "SADD", home.key(family), instance)

    def _to_the_living(self, what: str) -> Done:
        if self._ground.alive:
            return Done("handed_over", f"{what} by an instance that lives")
        return Done("left", f"{what} by the next instance that starts")

    async def _expire(self, finding: Finding) -> Done:
        (ttl_ms,) = finding.args
        key = finding.name
        await self._ground.connection.command(key_slot(key), "PEXPIRE", key, ttl_ms, "NX")
        return self._done(finding)
