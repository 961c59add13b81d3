"""The scripts about jobs: one typed method for each, without logic."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lingua_scheduler.state.answers import (
    read_all_submitted,
    read_effects,
    read_moved,
    read_settled,
    read_submitted,
)
from lingua_scheduler.state.job_record import read_record
from lingua_scheduler.state.packing import pack, read_spec
from lingua_scheduler.state.records import (
    Cancelled,
    Fetched,
    JobSpec,
    MovedJob,
    Settled,
    Submitted,
    reason_word,
)
from lingua_scheduler.state.reply import Reply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from lingua_scheduler.state.job_record import JobRecord
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.policy import FleetPolicy
    from lingua_scheduler.state.records import Lease, Reserved
    from lingua_scheduler.state.script import Word
    from lingua_scheduler.state.script_runner import ScriptRunner


class JobScripts:
    """Admits, places, moves, ends and reads jobs."""

    def __init__(self, runner: ScriptRunner, policy: FleetPolicy) -> None:
        self._runner = runner
        # Packed once, because the policy is sent with every call that needs it.
        self._policy = pack(policy.for_jobs())

    async def submit(
        self, cell: Cell, job: str, spec: JobSpec, body: bytes, *, audio: bytes = b"", park: int = 0
    ) -> Submitted:
        """Admit one job and place it, or return the reason for the refusal."""
        (answer,) = await self.submit_all(cell, ((job, spec, body, park),), audio)
        return answer

    def submit_all(
        self, cell: Cell, jobs: Sequence[tuple[str, JobSpec, bytes, int]], audio: bytes = b""
    ) -> Awaitable[list[Submitted]]:
        """Admit the jobs of one utterance in one step: id, spec, body and `park` of each."""
        words: list[Word] = [audio]
        size = len(audio)
        for job, spec, body, park in jobs:
            words += (job, pack(spec), body, park)
            size += len(body)
        read = partial(read_all_submitted, cell)
        return self._runner.ask(
            "job_submit", cell, self._policy, tuple(words), read=read, size=size
        )

    async def place(self, cell: Cell, job: str, *, park: int = 0) -> Submitted:
        """Place a waiting job in this cell; if no node is free it is queued (or stays parked)."""
        raw = await self._runner.run("job_place", cell, (self._policy, job, park))
        return read_submitted(raw, cell)

    async def commit(
        self, cell: Cell, lease: Lease, node_cell: str, slot: Reserved, *, asked: str = ""
    ) -> Submitted:
        """Give a job the holder that was reserved for it in another cell.

        `asked` lists the nodes that could not take the job, as `,cell/node,...,`; it is `*` if the
        nodes of the job's turn do not matter.
        """
        holder = (node_cell, slot.node, slot.boot, int(slot.acks), slot.instance)
        raw = await self._runner.run(
            "job_commit", cell, (self._policy, lease.job, lease.attempt, *holder, asked)
        )
        return read_submitted(raw, cell)

    async def fetch(
        self, cell: Cell, job: str, attempt: int, node: str, boot: str = "", *, audio: bool = True
    ) -> Fetched:
        """Read a job for the instance of the node process that holds it."""
        raw = await self._runner.run("job_fetch", cell, (job, attempt, node, boot, int(audio)))
        if raw[0] != Reply.OK:
            return Fetched(Reply(raw[0]))
        _, spec, body, sound, owner, left_ms = raw[:6]
        return Fetched(
            Reply.OK,
            spec=read_spec(spec),
            body=body,
            audio=sound,
            owner=owner.decode(),
            left_ms=left_ms,
        )

    async def mark(self, cell: Cell, job: str, attempt: int, node: str, state: str) -> Reply:
        """Record that a job was dispatched, accepted or started."""
        raw = await self._runner.run("job_mark", cell, (job, attempt, node, state))
        return Reply(raw[0])

    def settle(  # noqa: PLR0913 the wire's own fields
        self,
        cell: Cell,
        job: str,
        attempt: int,
        node: str,
        *,
        kind: str,
        reason: str = "-",
        payload: bytes | tuple[bytes, bytes] = b"",
    ) -> Awaitable[Settled]:
        """End a job with the report of its holder.

        For a job with listeners the payload is given twice: with and without its sound.
        """
        payload, text = payload if isinstance(payload, tuple) else (payload, b"")
        args: tuple[Word, ...] = (job, attempt, node, kind, payload)
        if text or reason != "-":  # few have one
            args = (*args, reason_word(reason) if reason != "-" else reason, text)
        read = partial(read_settled, cell, job, payload, text)
        size = len(payload) + len(text)
        return self._runner.ask("job_settle", cell, self._policy, args, read=read, size=size)

    async def failover(
        self, cell: Cell, job: str, attempt: int, *, node: str = "", reason: str, park: int = 0
    ) -> MovedJob:
        """Take a job from its holder: to another node, into the queue, or to its end."""
        raw = await self._runner.run(
            "job_failover", cell, (self._policy, job, attempt, node, reason_word(reason), park)
        )
        return read_moved(job, raw, cell)

    async def cancel(self, cell: Cell, job: str, reason: str) -> tuple[Settled, Cancelled]:
        """End an unwanted job; also returns the holder that must be told to stop."""
        raw = await self._runner.run("job_cancel", cell, (self._policy, job, reason_word(reason)))
        if raw[0] != Reply.SETTLED:
            return Settled(Reply(raw[0])), Cancelled(job, 0, "", "")
        holder = Cancelled(job, raw[7], raw[8].decode(), raw[9].decode())
        return Settled(Reply.SETTLED, read_effects(raw, cell)), holder

    async def show(self, cell: Cell, job: str) -> JobRecord | None:
        """Read a job's record for an operator, if the cell has it."""
        raw = await self._runner.run("job_show", cell, (job,))
        return read_record(job, cell.name, raw) if raw[0] == Reply.OK else None

    async def find(self, cell: Cell, session: str, index: int) -> tuple[str, ...]:
        """Return the jobs of an utterance whose outcomes were not released yet."""
        raw = await self._runner.run("job_find", cell, (session, index))
        return tuple(job.decode() for job in raw[1]) if raw[0] == Reply.OK else ()
