"""The history of a job, combined from its record, from the instance, and from the latest ends.

A job is found by its id, by `session:index` or by its trace. The record in the store has every
attempt, also after the end; only the instance that had the session knows the durations of the
steps. None of them holds speech or text of users.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from lingua_scheduler.edge.answers import AttemptAnswer, HistoryAnswer, JobStory
from lingua_scheduler.edge.views import tenant_of_job, times_until
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.runtime.job_log import trace_of
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.keys import IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.runtime.instance import Instance
    from lingua_scheduler.runtime.job import LiveJob
    from lingua_scheduler.runtime.job_log import EndedJob
    from lingua_scheduler.state.job_record import JobRecord
    from lingua_wire.shared import Timeline

# The most jobs of one utterance or trace that are returned.
JOBS_MAX = 64
JOB_ID = re.compile(r"job-[0-9a-f]{32}")
UTTERANCE = re.compile(r"(.+):(\d{1,15})")
# States of the store under the names of live states.
STATES = {"RUNNING": "processing"}


async def history(instance: Instance, wanted: str, seen_by: str) -> HistoryAnswer:
    """Return the history of the jobs that an id stands for."""
    ids = await _ids_of(instance, wanted)
    found = await asyncio.gather(*(find_job(instance, job, seen_by) for job in ids))
    return HistoryAnswer(instance=instance.id, jobs=tuple(one for one in found if one is not None))


async def find_job(instance: Instance, job_id: str, seen_by: str) -> JobStory | None:
    """Return the history of a job, or None if it is unknown or the caller may not see it."""
    live = instance.jobs.get(job_id)
    ends = instance.job_log.latest_ends()
    ended = next((one for one in ends if one.job == job_id), None)
    try:
        record = await _record(instance, job_id)
    except StoreUnavailable:
        if live is None and ended is None:
            raise
        record = None
    if seen_by and _tenant(instance, live, ended, record) != seen_by:
        return None
    if record is not None:
        return _from_record(instance, record, live, ended)
    if live is not None:
        return _from_live(instance, live)
    return _from_end(instance, ended) if ended is not None else None


async def _ids_of(instance: Instance, wanted: str) -> list[str]:
    if JOB_ID.fullmatch(wanted):
        return [wanted]
    ids = dict.fromkeys(_ids_here(instance, wanted))
    named = UTTERANCE.fullmatch(wanted)
    if named is not None and IDENTIFIER.fullmatch(named[1]):
        find, index = instance.store.jobs.find, int(named[2])
        rows = await asyncio.gather(*(find(cell, named[1], index) for cell in instance.cells.all))
        ids |= dict.fromkeys(job for row in rows for job in row)
    return list(ids)[:JOBS_MAX]


def _ids_here(instance: Instance, wanted: str) -> Iterator[str]:
    """Yield the jobs of an utterance or a trace that this instance has, or had lately."""
    for job in instance.jobs:
        if wanted in (job.assign.trace_id, f"{job.owner.id}:{job.spec.index}"):
            yield job.id
    for one in instance.job_log.latest_ends():
        if wanted in (one.trace, f"{one.session}:{one.utterance}") and one.job != "-":
            yield one.job


async def _record(instance: Instance, job_id: str) -> JobRecord | None:
    """Read a job's record from the cell that has it; raise if that may be an unavailable cell."""
    asked = (instance.store.jobs.show(cell, job_id) for cell in instance.cells.all)
    found = await asyncio.gather(*asked, return_exceptions=True)
    for record in found:
        if not isinstance(record, BaseException | None):
            return record
    for error in found:
        if isinstance(error, BaseException):
            raise error
    return None


def _tenant(
    instance: Instance, live: LiveJob | None, ended: EndedJob | None, record: JobRecord | None
) -> str | None:
    """Return the tenant of a job; None if it is unknown."""
    if live is not None:
        return tenant_of_job(instance, live)
    if ended is not None:
        return ended.tenant
    return record.tenant if record is not None and record.is_owned else None


def _from_record(
    instance: Instance, record: JobRecord, live: LiveJob | None, ended: EndedJob | None
) -> JobStory:
    is_over = bool(record.outcome)
    age_ms = (record.ended_at_ms if is_over else record.now_ms) - record.created_at_ms
    if live is not None:
        age_ms = round(instance.clock.now_ms() - live.times.cut)
    state = STATES.get(record.state, "assigned" if record.node else "pending")
    if live is not None and live.attempt == record.attempt:
        state = live.status  # the store does not record every state
    return JobStory(
        id=record.job,
        session=record.spec.session,
        utterance_index=record.spec.index,
        lane=record.spec.lane,
        trace=trace_of(record),
        state=record.outcome or state,
        attempt=record.attempt,
        node=record.node,
        age_ms=max(0, age_ms),
        cell=record.home,
        timeline=_timeline(instance, live, ended),
        created_at_ms=record.created_at_ms,
        deadline_at_ms=None if is_over else record.due_at_ms,
        outcome=record.outcome,
        reason=record.reason,
        ended_at_ms=record.ended_at_ms if is_over else None,
        attempts=tuple(_attempts(record)),
    )


def _attempts(record: JobRecord) -> Iterator[AttemptAnswer]:
    for past in record.past:
        yield AttemptAnswer(
            attempt=past.attempt,
            node=past.node,
            placed_at_ms=past.placed_at_ms,
            left_at_ms=past.left_at_ms,
            lasted_ms=max(0, past.left_at_ms - past.placed_at_ms),
            reason=past.reason,
        )
    if record.node:
        is_over = bool(record.outcome)
        yield AttemptAnswer(
            attempt=record.attempt,
            node=record.node,
            placed_at_ms=record.placed_at_ms,
            left_at_ms=record.ended_at_ms if is_over else None,
            lasted_ms=max(0, record.ended_at_ms - record.placed_at_ms) if is_over else None,
            reason=record.reason or record.outcome,
        )


def _from_live(instance: Instance, job: LiveJob) -> JobStory:
    """Return a job without a readable record: not yet written, deleted, or store unavailable."""
    age_ms = max(0, round(instance.clock.now_ms() - job.times.cut))
    return JobStory(
        id=job.id,
        session=job.owner.id,
        utterance_index=job.spec.index,
        lane=job.spec.lane,
        trace=job.assign.trace_id,
        state=job.status,
        attempt=job.attempt,
        node=job.node,
        age_ms=age_ms,
        cell=job.home.name,
        timeline=_timeline(instance, job, None),
        created_at_ms=instance.clock.wall_ms() - age_ms,
        deadline_at_ms=None,
        outcome="",
        reason="",
        ended_at_ms=None,
        attempts=(),
    )


def _from_end(instance: Instance, ended: EndedJob) -> JobStory:
    """Return a job of which only the end is known: its record has expired."""
    total = _timeline(instance, None, ended)
    age_ms = total.total_ms if total is not None else 0
    return JobStory(
        id=ended.job,
        session=ended.session,
        utterance_index=ended.utterance,
        lane=ended.lane,
        trace=ended.trace,
        state=ended.kind,
        attempt=ended.attempt,
        node=ended.node,
        age_ms=age_ms,
        cell="",
        timeline=total,
        created_at_ms=ended.at_ms - age_ms,
        deadline_at_ms=None,
        outcome=ended.kind,
        reason=ended.reason if ended.reason != "-" else "",
        ended_at_ms=ended.at_ms,
        attempts=(),
    )


def _timeline(instance: Instance, live: LiveJob | None, ended: EndedJob | None) -> Timeline | None:
    if live is not None:
        return timeline(times_until(live.times, instance.clock.now_ms()))
    return timeline(ended.marks) if ended is not None and ended.marks is not None else None
