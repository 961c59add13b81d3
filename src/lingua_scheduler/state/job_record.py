"""A job's record as people ask for it: what became of it, attempt by attempt, also after its end.

Read by `job_show.lua` and typed here; nothing on the way of speech uses it. The record lives until
`jobs.binding_ms` after the job's outcome was released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.state.records import JobSpec
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.scripts import load_scripts

if TYPE_CHECKING:
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.script import Connection, Word

_read_spec = msgspec.msgpack.Decoder(JobSpec).decode


class PastAttempt(NamedTuple):
    """An attempt that was taken from its node, by the store's clock."""

    attempt: int
    node: str
    placed_at_ms: int
    left_at_ms: int
    reason: str


class JobRecord(NamedTuple):
    """What the store knows of a job; a time that is 0 is not known, or not yet."""

    job: str
    home: str
    # The store's clock when it was read.
    now_ms: int
    tenant: str
    # Whether the session is still known, and with it whose the job is.
    is_owned: bool
    state: str
    attempt: int
    # The current or last holder; empty while it waits.
    node: str
    created_at_ms: int
    placed_at_ms: int
    due_at_ms: int
    ends_at_ms: int
    outcome: str
    reason: str
    ended_at_ms: int
    past: tuple[PastAttempt, ...]
    spec: JobSpec
    body: bytes


class JobRecords:
    """Reads the records of jobs, in whichever cell."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._scripts = load_scripts()

    async def show(self, cell: Cell, job: str) -> JobRecord | None:
        """Read a job's record for people, if the cell has it."""
        raw = await self._run("job_show", cell, job)
        return read_record(job, cell.name, raw) if raw[0] == Reply.OK else None

    async def find(self, cell: Cell, session: str, index: int) -> tuple[str, ...]:
        """Return the jobs of an utterance whose outcomes are not out yet."""
        raw = await self._run("job_find", cell, session, index)
        return tuple(job.decode() for job in raw[1]) if raw[0] == Reply.OK else ()

    async def _run(self, name: str, cell: Cell, *args: Word) -> list[Any]:
        script = self._scripts[name]
        raw: list[Any] = await self._connection.run(script, cell.slot, cell.keys, (0, *args))
        return raw


def read_record(job: str, home: str, raw: list[Any]) -> JobRecord:
    """Read the answer of job_show."""
    _, now_ms, tenant, is_owned, fields = raw
    *plain, spec, body = fields
    text = [value.decode() for value in plain]
    state, attempt, node, _, created, placed, due, ends, outcome, reason, ended, past = text
    attempts = read_past(past)
    first = attempts[0].placed_at_ms if attempts else int(placed or 0)
    return JobRecord(
        job, home, now_ms, tenant.decode(), is_owned == 1, state, int(attempt), node,
        int(created or first), int(placed or 0), int(due or 0), int(ends or 0), outcome,
        reason if reason != "-" else "", int(ended or 0), attempts, _read_spec(spec), body,
    )  # fmt: skip


def read_past(text: str) -> tuple[PastAttempt, ...]:
    """Read the attempts before the current one, as job_failover writes them."""
    rows = (row.split(" ") for row in text.split(";") if row)
    return tuple(
        PastAttempt(int(attempt), node, int(placed), int(left), reason)
        for attempt, node, placed, left, reason in rows
    )
