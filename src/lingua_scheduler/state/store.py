"""One typed method per script; no logic.

A method packs its arguments, runs one script on the cell's slot and reads the answer. `now_ms` is
0 in production, so that the server is asked; tests pass what it would say. Either way the cell's
own time (`lua/includes/clock.lua`) decides.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_scheduler.state.answers import (
    Given,
    read_ahead,
    read_effects,
    read_heard,
    read_leases,
    read_moved,
    read_node_row,
    read_placements,
    read_released,
    read_settled,
    read_submitted,
)
from lingua_scheduler.state.job_record import JobRecords
from lingua_scheduler.state.records import (
    REFUSED,
    Answer,
    Cancelled,
    Closed,
    Effects,
    Fetched,
    Found,
    JobSpec,
    Lease,
    Moved,
    NodeReply,
    NodeRow,
    Opening,
    OutboxPage,
    PoolRow,
    Relayed,
    Reserved,
    Resumed,
    Settled,
    Speech,
    Submitted,
    Unsettled,
    WaitingJob,
    reason_word,
)
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import Ahead, Beat, Claim, ForeignSlot, NodeAbout
    from lingua_scheduler.state.script import Connection, Word

pack = msgspec.msgpack.Encoder().encode
NEW_SESSION = Opening()
# Of one answer: translated speech is large.
PAGE_BYTES = 1 << 20
# Whoever said where a request's job is to be submits it at once; if it is not there by then, it
# died in between.
BIND_PATIENCE_MS = 5_000
read_spec = msgspec.msgpack.Decoder(JobSpec).decode


class Store:
    """The scripts of one deployment, over one connection."""

    def __init__(self, connection: Connection, policy: FleetPolicy) -> None:
        self._connection = connection
        self._scripts = load_scripts()
        # Packed once: the policy travels with every call that needs it.
        self._jobs_policy = pack(policy.for_jobs())
        self._fleet_policy = pack(policy)
        self._claim_ms = policy.claim_ms
        self._binding_ms = policy.binding_ms
        # How long a request's cell may be without its job, and how long it is remembered.
        self._bind_patience_ms = BIND_PATIENCE_MS
        longest_ms = policy.pending_ms + policy.attempts_max * policy.attempt_ms + policy.gap_ms
        self._bind_ms = 2 * (longest_ms + policy.binding_ms)
        # The server's time; 0 asks it, only tests set it.
        self.now_ms = 0
        self.records = JobRecords(connection)

    async def warm(self) -> None:
        """Have all scripts compiled before the first utterance waits for each of them."""
        load, scripts = self._connection.every_master, self._scripts.values()
        await asyncio.gather(*(load("SCRIPT", "LOAD", script.source) for script in scripts))

    def _run(self, name: str, cell: Cell, *args: Word) -> Awaitable[list[Any]]:
        script = self._scripts[name]
        return self._connection.run(script, cell.slot, cell.keys, (self.now_ms, *args))

    # Jobs

    async def job_submit(
        self, cell: Cell, job: str, spec: JobSpec, body: bytes, *, audio: bytes = b"", park: int = 0
    ) -> Submitted:
        """Admit one job and place it, or say why not."""
        (answer,) = await self.jobs_submit(cell, ((job, spec, body, park),), audio)
        return answer

    async def jobs_submit(
        self, cell: Cell, jobs: Sequence[tuple[str, JobSpec, bytes, int]], audio: bytes = b""
    ) -> list[Submitted]:
        """Admit the jobs of one utterance in one step: id, spec, body and `park` of each."""
        words: list[Word] = []
        for job, spec, body, park in jobs:
            words += (job, pack(spec), body, park)
        raw = await self._run("job_submit", cell, self._jobs_policy, audio, *words)
        return [read_submitted(answer, cell) for answer in raw]

    async def job_place(self, cell: Cell, job: str, *, park: int = 0) -> Submitted:
        """Place a job that waits: here, else in the queue (or left parked)."""
        return read_submitted(
            await self._run("job_place", cell, self._jobs_policy, job, park), cell
        )

    async def job_commit(
        self, cell: Cell, lease: Lease, node_cell: str, slot: Reserved, *, asked: str = ""
    ) -> Submitted:
        """Give a job the holder that was reserved for it in another cell.

        `asked`: `,cell/node,...,` that could not take it; `*` if its turn's nodes do not matter.
        """
        raw = await self._run(
            "job_commit", cell, self._jobs_policy, lease.job, lease.attempt,
            node_cell, slot.node, slot.boot, int(slot.acks), slot.instance, asked,
        )  # fmt: skip
        return read_submitted(raw, cell)

    async def job_fetch(
        self, cell: Cell, job: str, attempt: int, node: str, boot: str = "", *, audio: bool = True
    ) -> Fetched:
        """Read a job for the instance of the node, and of that process of it, that holds it."""
        raw = await self._run("job_fetch", cell, job, attempt, node, boot, int(audio))
        if raw[0] != Reply.OK:
            return Fetched(Reply(raw[0]))
        return Fetched(Reply.OK, read_spec(raw[1]), raw[2], raw[3], raw[4].decode(), raw[5])

    async def job_mark(self, cell: Cell, job: str, attempt: int, node: str, state: str) -> Reply:
        """Record that a job was dispatched, accepted or is running."""
        raw = await self._run("job_mark", cell, job, attempt, node, state)
        return Reply(raw[0])

    async def job_settle(  # noqa: PLR0913 the wire's own fields
        self,
        cell: Cell,
        job: str,
        attempt: int,
        node: str,
        *,
        kind: str,
        reason: str = "-",
        payload: bytes | tuple[bytes, bytes] = b"",
    ) -> Settled:
        """End a job with what its holder reports.

        Where others than the speaker hear it, the payload comes with and without its sound.
        """
        payload, text = payload if isinstance(payload, tuple) else (payload, b"")
        raw = await self._run(
            "job_settle",
            cell,
            self._jobs_policy,
            job,
            attempt,
            node,
            kind,
            reason_word(reason),
            payload,
            self._binding_ms,
            text,
        )
        return read_settled(raw, cell, Given(job, payload, text))

    async def job_failover(
        self, cell: Cell, job: str, attempt: int, *, node: str = "", reason: str, park: int = 0
    ) -> Moved:
        """Take a job from its holder: elsewhere, into the queue, or to its end."""
        raw = await self._run(
            "job_failover", cell, self._jobs_policy, job, attempt, node, reason_word(reason), park
        )
        return read_moved(job, raw, cell)

    async def job_cancel(self, cell: Cell, job: str, reason: str) -> tuple[Settled, Cancelled]:
        """End a job nobody wants any more; also says who must be told to stop."""
        raw = await self._run("job_cancel", cell, self._jobs_policy, job, reason_word(reason))
        if raw[0] != Reply.SETTLED:
            return Settled(Reply(raw[0])), Cancelled(job, 0, "", "")
        told = Cancelled(job, raw[7], raw[8].decode(), raw[9].decode())
        return Settled(Reply.SETTLED, read_effects(raw, cell)), told

    # Requests that their clients named

    async def request_find(self, cell: Cell, job: str, session: str) -> Found:
        """Look for the job of a request, for its answer, and whether a session has had it."""
        raw = await self._run("request_find", cell, job, session)
        told = tuple(map(int, raw[1].split()))
        if raw[0] != Reply.OK:
            return Found(Reply(raw[0]), told=told)
        _, _, state, outcome, attempt, seq, reason, spec, answer = raw
        return Found(
            Reply.OK, state.decode(), outcome.decode(), attempt, seq, reason.decode(),
            read_spec(spec), answer, job, told,
        )  # fmt: skip

    async def request_bind(
        self, cell: Cell, job: str, home: str = "", *, instead_of: str = ""
    ) -> tuple[str, int]:
        """Say where a request's job is to be, or only ask; returns where it is and since when.

        `instead_of` is a cell that was asked and has no such job.
        """
        raw = await self._run(
            "request_bind", cell, job, home, instead_of, self._bind_patience_ms, self._bind_ms
        )
        return (raw[1].decode(), raw[2]) if raw[0] == Reply.OK else ("", 0)

    # Order

    async def lane_fill(  # noqa: PLR0913 where, why and who
        self,
        cell: Cell,
        session: str,
        lane: str,
        *,
        index: int = -1,
        unwanted_from: int = -1,
        answer: Answer = REFUSED,
        fence: int = 0,
    ) -> Settled:
        """Put an explicit outcome at one index, or into every hole that is due."""
        reason = answer.reason if index >= 0 else "gap_timeout"
        raw = await self._run(
            "lane_fill", cell, self._jobs_policy, session, lane, index, unwanted_from,
            reason_word(reason), fence, answer.ms, answer.lanes, answer.kind, answer.job,
            answer.attempt, answer.payload, answer.others, answer.stream,
        )  # fmt: skip
        if raw[0] != Reply.SETTLED:
            return Settled(Reply(raw[0]))
        return Settled(Reply.SETTLED, read_effects([*raw, [], []], cell))

    async def outbox_read(
        self, cell: Cell, session: str, *, epoch: str = "", after_seq: int = 0, limit: int = 256
    ) -> OutboxPage:
        """Read outcomes after a position."""
        raw = await self._run("outbox_read", cell, session, epoch, after_seq, limit, PAGE_BYTES)
        if raw[0] != Reply.OK:
            epoch = raw[1].decode() if raw[0] == Reply.EPOCH_CHANGED else ""
            is_outside = raw[0] == Reply.TRIMMED
            return OutboxPage(
                Reply(raw[0]), epoch, raw[2] if is_outside else 0,
                trimmed=raw[1] if is_outside else 0,
            )  # fmt: skip
        return OutboxPage(Reply.OK, raw[1].decode(), raw[2], read_released(raw[3]))

    async def outbox_ack(
        self, cell: Cell, session: str, epoch: str, seq: int, *, fence: int = 0
    ) -> Reply:
        """Forget outcomes up to a position."""
        return Reply((await self._run("outbox_ack", cell, session, epoch, seq, fence))[0])

    # Listeners

    async def relay_run(self, cell: Cell, session: str, done: Sequence[str] = ()) -> Relayed:
        """Go on with what a speaker's listeners have not got."""
        raw = await self._run("relay_run", cell, self._jobs_policy, session, *done)
        effects = read_effects([*raw[:5], [], []], cell)
        return Relayed(effects, read_ahead(raw[5]), bool(raw[6]))

    async def outbox_put(
        self, cell: Cell, item: Ahead, listeners: Sequence[str]
    ) -> tuple[Effects, tuple[str, ...]]:
        """Bring an outcome to listeners of this cell; returns those whose session is not there."""
        raw = await self._run(
            "outbox_put", cell, self._jobs_policy, item.id, item.kind, item.head, item.payload,
            item.text, *listeners,
        )  # fmt: skip
        effects = Effects(heard=read_heard(raw[1][1], cell))
        return effects, tuple(name.decode() for name in raw[2])

    async def heard(self, cell: Cell, heard_id: str) -> bytes:
        """Read what somebody said; without its sound if only the text is kept, b'' if nothing."""
        key = cell.key("heard", heard_id)
        payload, text = await self._connection.command(cell.slot, "HMGET", key, "p", "t")
        return payload or text or b""

    # Sessions

    async def session_open(
        self,
        cell: Cell,
        session: str,
        owner: str,
        *,
        tenant: str = "",
        lease_ms: int = 60_000,
        opening: Opening = NEW_SESSION,
    ) -> tuple[Reply, str, int]:
        """Open a session, or open it again as its owner; returns its epoch and its fence."""
        fence, restart, fields, ended = opening
        raw = await self._run(
            "session_open", cell, session, owner, tenant, lease_ms, fence, int(restart), ended,
            *fields,
        )  # fmt: skip
        return Reply(raw[0]), raw[1].decode(), raw[2] if len(raw) > 2 else 0

    async def session_resume(
        self, cell: Cell, session: str, owner: str, *, tenant: str, lease_ms: int, claim: Claim
    ) -> Resumed:
        """Take a session over for a client that came back."""
        raw = await self._run(
            "session_resume", cell, session, owner, tenant, claim.token, lease_ms, claim.epoch,
            claim.last_seq,
        )  # fmt: skip
        if raw[0] != Reply.RESUMED:
            return Resumed(Reply(raw[0]))
        _, epoch, fence, previous, about, heard, heard_ms, top, seq, lanes, opened, turns = raw[:12]
        return Resumed(
            Reply.RESUMED, epoch.decode(), fence, previous.decode(), about, heard, heard_ms, top,
            seq, tuple((lanes[i].decode(), lanes[i + 1]) for i in range(0, len(lanes), 2)),
            tuple(opened),
            tuple(turn.decode() for turn in turns),
            Speech.read(raw[12]),
            tuple(Unsettled._make((*row[:4], (*row[4].decode().split(),))) for row in raw[13]),
        )  # fmt: skip

    async def session_speech(self, cell: Cell, session: str) -> Speech | None:
        """Return what became of a session's speech, while the store knows of it."""
        raw = await self._run("session_speech", cell, session)
        return Speech.read(raw[1]) if raw[0] == Reply.OK else None

    async def session_note(
        self,
        cell: Cell,
        session: str,
        fence: int,
        fields: Mapping[str, Word],
        *,
        heard_after: int = -1,
    ) -> Reply:
        """Note what a later owner needs; not before the stream is taken up to `heard_after`."""
        words = [word for pair in fields.items() for word in pair]
        raw = await self._run("session_note", cell, session, fence, heard_after, *words)
        return Reply(raw[0])

    async def session_renew(
        self, cell: Cell, owner: str, sessions: Sequence[str], lease_ms: int
    ) -> tuple[str, ...]:
        """Keep sessions alive; returns those that are not the owner's any more."""
        raw = await self._run("session_renew", cell, lease_ms, owner, *sessions)
        return tuple(name.decode() for name in raw[1])

    async def session_close(
        self,
        cell: Cell,
        session: str,
        reason: str,
        *,
        lapse_only: bool = False,
        fence: int = 0,
        fields: Mapping[str, Word] | None = None,
    ) -> Closed:
        """Close a session; its live jobs end as cancelled."""
        words = [word for pair in (fields or {}).items() for word in pair]
        raw = await self._run(
            "session_close", cell, self._fleet_policy, session, reason, int(lapse_only), fence,
            *words,
        )  # fmt: skip
        if raw[0] != Reply.SETTLED:
            return Closed(Settled(Reply(raw[0])))
        told = tuple(Cancelled(j.decode(), a, c.decode(), n.decode()) for j, a, c, n in raw[7])
        return Closed(Settled(Reply.SETTLED, read_effects(raw, cell)), told, Speech.read(raw[8]))

    async def turn_end(self, cell: Cell, session: str, turn: str, *, fence: int = 0) -> Settled:
        """End a turn that has no closing piece."""
        raw = await self._run("turn_end", cell, self._jobs_policy, session, turn, fence)
        if raw[0] != Reply.SETTLED:
            return Settled(Reply(raw[0]))
        return Settled(Reply.SETTLED, read_effects([*raw, []], cell))

    # Leases for jobs of other cells

    async def lease_reserve(
        self,
        cell: Cell,
        lease: Lease,
        demand: str,
        *,
        only: str = "",
        tried: str = "",
        avoid: str = "",
    ) -> Reserved:
        """Hold a slot here for a job that lives elsewhere."""
        raw = await self._run(
            "lease_reserve", cell, self._jobs_policy, lease.job, lease.attempt, lease.home,
            demand, only, tried, avoid,
        )  # fmt: skip
        if raw[0] != Reply.RESERVED:
            return Reserved(Reply(raw[0]), label=raw[1].decode())
        _, node, boot, acks, instance, expires_at = raw
        return Reserved(
            Reply.RESERVED,
            node.decode(),
            boot.decode(),
            acks == b"1",
            instance.decode(),
            expires_at,
        )

    async def lease_confirm(self, cell: Cell, node: str, lease: Lease, hold_ms: int) -> Reply:
        """Hold the reserved slot for the whole attempt."""
        return Reply((await self._run("lease_confirm", cell, node, lease.member, hold_ms))[0])

    async def lease_release(
        self, cell: Cell, node: str, lease: Lease, *, lapsed_only: bool = False
    ) -> Settled:
        """Give a slot back."""
        raw = await self._run(
            "lease_release", cell, self._jobs_policy, node, lease.member, int(lapsed_only)
        )
        if raw[0] != Reply.OK:
            return Settled(Reply(raw[0]))
        return Settled(Reply.OK, Effects(placed=read_placements(raw[1], cell)))

    # Nodes

    async def node_register(
        self, cell: Cell, node: str, boot: str, *, conn: str, can: bytes, about: NodeAbout
    ) -> NodeReply:
        """A node appears, or comes back."""
        raw = await self._run(
            "node_register", cell, self._fleet_policy, node, boot, conn, can, pack(about)
        )
        if raw[0] == Reply.FENCED:
            return NodeReply(Reply.FENCED)
        _, status, pool, lost, placed, *held = raw
        return NodeReply(
            Reply(raw[0]), status.decode(), pool.decode(), read_leases(lost),
            placed=read_placements(placed, cell), held=read_leases(held[0] if held else []),
        )  # fmt: skip

    async def node_beat(
        self, cell: Cell, node: str, boot: str, beat: Beat, can: bytes = b"", *, conn: str = ""
    ) -> NodeReply:
        """A node is alive, and this is how it is; `can` only when its abilities changed."""
        raw = await self._run(
            "node_beat", cell, self._fleet_policy, node, boot, pack(beat), can, conn
        )
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0]))
        _, status, pool, lost, unknown, placed, drains = raw
        return NodeReply(
            Reply.OK, status.decode(), pool.decode(), read_leases(lost),
            tuple(name.decode() for name in unknown), read_placements(placed, cell),
            draining=drains == 1,
        )  # fmt: skip

    async def node_drain(
        self, cell: Cell, node: str, *, drain: bool, operator: bool = False
    ) -> tuple[NodeReply, int]:
        """Stop or resume new work for a node; also returns how many leases it still has.

        What an operator stopped only an operator lets flow again, whatever process the node is.
        """
        raw = await self._run(
            "node_drain", cell, self._fleet_policy, node, int(drain), int(operator)
        )
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0])), 0
        return NodeReply(Reply.OK, placed=read_placements(raw[2], cell)), raw[1]

    async def node_offline(
        self, cell: Cell, node: str, conn: str = "", *, instance: str = "", keep_ms: int = 0
    ) -> NodeReply:
        """The socket that registered the node is gone, or the instance that had it.

        With `keep_ms` the node was asked to go elsewhere: its jobs stay its own for so long.
        """
        raw = await self._run("node_offline", cell, self._claim_ms, node, conn, instance, keep_ms)
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0]))
        return NodeReply(Reply.OK, "offline", lost=read_leases(raw[1]))

    async def node_host(self, cell: Cell, node: str) -> str:
        """Return the instance that has the node's socket, '' if none has."""
        key = cell.key("node", node)
        status, host = await self._connection.command(cell.slot, "HMGET", key, "status", "instance")
        return host.decode() if host and status != b"offline" else ""

    async def node_drains(self, cell: Cell, node: str) -> bool:
        """Tell whether somebody has stopped new work for a node."""
        key = cell.key("node", node)
        return bool(await self._connection.command(cell.slot, "HGET", key, "drain") == b"1")

    async def node_check(self, cell: Cell, node: str) -> NodeReply:
        """A node's timer rang."""
        raw = await self._run("node_check", cell, self._fleet_policy, node)
        if raw[0] != Reply.OK:
            return NodeReply(Reply(raw[0]))
        return NodeReply(Reply.OK, raw[1].decode(), lost=read_leases(raw[2]))

    async def node_mark(self, cell: Cell, node: str, service: str = "") -> NodeReply:
        """A service of a node is unavailable for a while; without one, marks that ended go."""
        raw = await self._run("node_mark", cell, self._fleet_policy, node, service)
        reply = Reply(raw[0])
        if reply not in (Reply.OK, Reply.RESTORED):
            return NodeReply(reply)
        return NodeReply(reply, pool=raw[1].decode(), placed=read_placements(raw[-1], cell))

    # Cells

    async def cell_time(self, cell: Cell) -> int:
        """Return the cell's own time, in ms: the server's without its steps."""
        return int((await self._run("cell_time", cell))[1])

    async def cell_due(self, cell: Cell, limit: int = 256) -> tuple[str, ...]:
        """Claim the timers that have rung."""
        raw = await self._run("cell_due", cell, limit, self._claim_ms)
        return tuple(timer.decode() for timer in raw[1])

    async def cell_done(self, cell: Cell, slot: ForeignSlot) -> None:
        """Drop the reminder of a foreign slot that was given back."""
        timer = f"r|{slot.cell}|{slot.node}|{slot.job}|{slot.attempt}"
        await self._run("cell_done", cell, timer)

    async def cell_waiting(self, cell: Cell, limit: int) -> tuple[WaitingJob, ...]:
        """Return the jobs that wait, a few of each demand, earliest deadline first."""
        raw = await self._run("cell_waiting", cell, limit)
        return tuple(
            WaitingJob(job.decode(), attempt, *(text.decode() for text in rest))
            for job, attempt, *rest in raw[1]
        )

    async def cell_pools(self, cell: Cell) -> tuple[tuple[PoolRow, ...], int, int]:
        """Return the cell's pools, how many jobs wait and how many nodes are known."""
        _, _, rows, waiting, nodes = await self._run("cell_pools", cell)
        pools = tuple(
            PoolRow(rows[i].decode(), *rows[i + 1 : i + 5]) for i in range(0, len(rows), 5)
        )
        return pools, waiting, nodes

    async def cell_nodes(
        self, cell: Cell, after: str = "", limit: int = 500
    ) -> tuple[NodeRow, ...]:
        """Return one page of the cell's nodes, by id."""
        raw = await self._run("cell_nodes", cell, after, limit)
        return tuple(read_node_row(row, raw[1]) for row in raw[2])
