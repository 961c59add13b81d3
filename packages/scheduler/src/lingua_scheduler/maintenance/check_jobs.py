"""Checks of jobs and of the slots held for them.

A slot in another cell passes through states that look like damage for a moment (reserved before its
job is committed, left by a job that moved on). Each of them has a timer and is not a finding.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_scheduler.maintenance.finding import Finding
from lingua_scheduler.state.packing import read_spec
from lingua_scheduler.state.records import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.maintenance.context import ScanContext
    from lingua_scheduler.state.keys import Cell
    from lingua_scheduler.state.records import JobSpec

ENDED = frozenset({"FINISHED", "RELEASED"})
MEMBER = re.compile(r"([^|]+)\|(\d{1,9})(?:\|(c\d+))?")


class JobView(NamedTuple):
    """The fields of a job's record that the checks need."""

    state: str
    attempt: int
    node: str
    cell: str
    spec: JobSpec | None
    due_at_ms: int

    @property
    def is_over(self) -> bool:
        """Tell whether the job has its outcome."""
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        """Tell whether the job waits for a node."""
        return not self.is_over and not self.node


async def read_jobs(context: ScanContext, cell: Cell, jobs: Sequence[str]) -> list[JobView | None]:
    """Read jobs; None for one that does not exist."""
    fields = ("state", "attempt", "node", "cell", "spec", "due_at")
    rows = await context.reader.ask(
        cell.slot, [("HMGET", cell.key("job", job), *fields) for job in jobs]
    )
    return [_job_view(row) for row in rows]


def _job_view(row: list[bytes | None] | None) -> JobView | None:
    if row is None or row[0] is None:
        return None
    state, attempt, node, cell = ((value or b"").decode() for value in row[:4])
    try:
        spec = read_spec(row[4] or b"")
    except msgspec.MsgspecError:
        spec = None
    due_at = (row[5] or b"0").decode()
    return JobView(
        state=state,
        attempt=int(attempt) if attempt.isdecimal() else 0,
        node=node,
        cell=cell,
        spec=spec,
        due_at_ms=int(float(due_at)) if due_at.replace(".", "").isdecimal() else 0,
    )


async def check_jobs(context: ScanContext, cell: Cell, jobs: Sequence[str]) -> list[Finding]:
    """Find jobs without a timer to end them, and records that never expire."""
    views = await read_jobs(context, cell, jobs)
    timers = await context.reader.ask(cell.slot, [("ZSCORE", cell.due, f"j|{job}") for job in jobs])
    ends = await context.reader.ask(cell.slot, [("PTTL", cell.key("job", job)) for job in jobs])
    found = []
    for job, view, timer, ttl in zip(jobs, views, timers, ends, strict=True):
        if view is None or view.spec is None:
            if ttl != -2:  # the key still exists
                found.append(Finding("key_unreadable", cell.name, job, "a job without a state"))
        elif not view.is_over and timer is None:
            found.append(_untimed(context, cell, job, view))
        elif view.is_over and ttl == -1 and not await _is_awaited(context, cell, job, view):
            found.append(Finding("job_kept", cell.name, job, f"state {view.state}"))
    return found


def _untimed(context: ScanContext, cell: Cell, job: str, view: JobView) -> Finding:
    overdue_ms = context.now_ms(cell) - view.due_at_ms
    where = f"on {view.node}, attempt {view.attempt}" if view.node else "waits for a node"
    age_ms = overdue_ms if overdue_ms > 0 else None
    return Finding("job_without_timer", cell.name, job, where, age_ms=age_ms)


async def _is_awaited(context: ScanContext, cell: Cell, job: str, view: JobView) -> bool:
    """Tell whether its outcome waits in its lane for earlier outcomes."""
    if view.state != "FINISHED" or view.spec is None:
        return False
    key, field = cell.key("session", view.spec.session), f"at:{view.spec.lane}:{view.spec.index}"
    (held,) = await context.reader.ask(cell.slot, [("HGET", key, field)])
    return held is not None and f" {job} ".encode() in held


# Slots.


async def check_leases(context: ScanContext, cell: Cell, nodes: Sequence[str]) -> list[Finding]:
    """Find slots that are held for attempts that have ended."""
    rows = await context.reader.ask(
        cell.slot,
        [("ZRANGE", cell.key("leases", node), 0, -1, "WITHSCORES") for node in nodes],
    )
    found = []
    for node, raw in zip(nodes, rows, strict=True):
        for i in range(0, len(raw or ()), 2):
            expires_at_ms = int(float(raw[i + 1]))
            found += await check_lease(context, cell, node, raw[i].decode(), expires_at_ms)
    return found


async def check_lease(
    context: ScanContext, cell: Cell, node: str, member: str, expires_at_ms: int
) -> list[Finding]:
    """Check one slot."""
    name = f"{node} {member}"
    lease = read_lease(member)
    if lease is None:
        return [Finding("key_unreadable", cell.name, name, "a lease of no job")]
    if not lease.home:
        (view,) = await read_jobs(context, cell, [lease.job])
        why = over_because(view, lease, node, cell)
    elif lease.home not in {each.name for each in context.cells.all}:
        return [
            Finding("key_of_unknown_cell", cell.name, name, f"a slot for a job of {lease.home}")
        ]
    else:
        why = await _foreign_over(context, cell, node, lease, expires_at_ms)
        timer = f"l|{node}|{member}"
        if (
            not why
            and (await context.reader.ask(cell.slot, [("ZSCORE", cell.due, timer)]))[0] is None
        ):
            return [Finding("lease_untimed", cell.name, name, timer, args=(node, member))]
    if not why:
        return []
    age_ms = context.now_ms(cell) - expires_at_ms
    is_lapsed = age_ms > 0
    return [
        Finding(
            "lease_stale",
            cell.name,
            name,
            f"{why}; the slot has lapsed" if is_lapsed else why,
            age_ms=age_ms if is_lapsed else None,
            args=(node, member),
        )
    ]


def read_lease(member: str) -> Lease | None:
    """Parse a member of a node's leases; None if it is malformed."""
    parts = MEMBER.fullmatch(member)
    return Lease(parts[1], int(parts[2]), parts[3] or "") if parts else None


def over_because(view: JobView | None, lease: Lease, node: str, cell: Cell) -> str:
    """Return why an attempt has ended, '' if it is the job's current one."""
    if view is None:
        return "the job does not exist"
    if view.is_over:
        return "the job has ended"
    if (view.attempt, view.node) == (lease.attempt, node) and view.cell == cell.name:
        return ""
    now = f"attempt {view.attempt} on {view.node}" if view.node else "it waits for a node"
    return f"the job has moved on: {now}"


async def _foreign_over(
    context: ScanContext, cell: Cell, node: str, lease: Lease, expires_at_ms: int
) -> str:
    home = context.cells.named(lease.home)
    (view,) = await read_jobs(context, home, [lease.job])
    why = over_because(view, lease, node, cell)
    if not why:
        return ""
    left_ms = expires_at_ms - context.now_ms(cell)
    if 0 < left_ms <= context.policy.reserve_ms:
        return ""  # reserved: it will be committed soon, or lapse
    reminder = f"r|{cell.name}|{node}|{lease.job}|{lease.attempt}"
    (is_known,) = await context.reader.ask(home.slot, [("ZSCORE", home.due, reminder)])
    return "" if is_known is not None else why


async def check_reserved(context: ScanContext, cell: Cell, _: Sequence[str]) -> list[Finding]:
    """Find recorded reservations whose slot is not held."""
    found = []
    async for page in context.reader.fields(cell.slot, cell.key("reserved")):
        held = await context.reader.ask(
            cell.slot, [("ZSCORE", cell.key("leases", node), member) for member, node in page]
        )
        found += [
            Finding("reserved_without_lease", cell.name, member, f"on {node}", args=(node, member))
            for (member, node), score in zip(page, held, strict=True)
            if score is None
        ]
    return found


# Audio.


async def check_audio(context: ScanContext, cell: Cell, names: Sequence[str]) -> list[Finding]:
    """Find audio that is kept for jobs that have ended."""
    rows = await context.reader.ask(
        cell.slot, [("HKEYS", cell.key("audio", name)) for name in names]
    )
    found = []
    for name, fields in zip(names, rows, strict=True):
        jobs = [field.decode() for field in fields or () if field != b"audio"]
        views = await read_jobs(context, cell, jobs)
        over = [job for job, view in zip(jobs, views, strict=True) if view is None or view.is_over]
        if over or (fields and not jobs):
            about = f"for {', '.join(over)}" if over else "for no job"
            found.append(Finding("audio_without_job", cell.name, name, about))
    return found
