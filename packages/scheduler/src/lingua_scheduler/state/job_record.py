"""A job's record for operators: its attempts and its end.

`job_show.lua` reads it; the path of speech does not use it. The record exists until
`jobs.binding_ms` after the job's outcome was released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.state.packing import read_spec

if TYPE_CHECKING:
    from lingua_scheduler.state.records import JobSpec


class PastAttempt(NamedTuple):
    """An attempt that was taken from its node, by the store's clock."""

    attempt: int
    node: str
    placed_at_ms: int
    left_at_ms: int
    reason: str


class JobRecord(NamedTuple):
    """A job in the store; a time of 0 is not known, or has not come yet."""

    job: str
    home: str
    # The store's clock when it was read.
    now_ms: int
    tenant: str
    # Whether the session is still known, and with it the tenant.
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


def read_record(job: str, home: str, raw: list[Any]) -> JobRecord:
    """Read the answer of job_show."""
    _, now_ms, tenant, is_owned, fields = raw
    *plain, spec, body = fields
    text = [value.decode() for value in plain]
    state, attempt, node, _, created, placed, due, ends, outcome, reason, ended, past = text
    attempts = read_past(past)
    first = attempts[0].placed_at_ms if attempts else int(placed or 0)
    return JobRecord(
        job=job,
        home=home,
        now_ms=now_ms,
        tenant=tenant.decode(),
        is_owned=is_owned == 1,
        state=state,
        attempt=int(attempt),
        node=node,
        created_at_ms=int(created or first),
        placed_at_ms=int(placed or 0),
        due_at_ms=int(due or 0),
        ends_at_ms=int(ends or 0),
        outcome=outcome,
        reason=reason if reason != "-" else "",
        ended_at_ms=int(ended or 0),
        past=attempts,
        spec=read_spec(spec),
        body=body,
    )


def read_past(text: str) -> tuple[PastAttempt, ...]:
    """Read the attempts before the current one, as job_failover writes them."""
    rows = (row.split(" ") for row in text.split(";") if row)
    return tuple(
        PastAttempt(int(attempt), node, int(placed), int(left), reason)
        for attempt, node, placed, left, reason in rows
    )
