"""What became of a job: put together from its record, from the instance, and from the latest ends.

A job is asked for by its id, by `session:index` or by its trace. The record is read from the store
and tells of every attempt, also after the end; where the time went only the instance knows that had
the session. Nothing that was said is in any of them.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from lingua_scheduler.edge.answers import AttemptAnswer, HistoryAnswer, JobStory
from lingua_scheduler.edge.views import marks_until
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.live.journal import trace_of
from lingua_scheduler.session.timeline import timeline
from lingua_scheduler.state.keys import IDENTIFIER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.live.instance import Instance
    from lingua_scheduler.live.job import LiveJob
    from lingua_scheduler.live.journal import Ended
    from lingua_scheduler.messages.shared import Timeline
    from lingua_scheduler.state.job_record import JobRecord

# One utterance into so many languages; a trace may have more jobs than anyone reads.
JOBS_MAX = 64
JOB_ID = re.compile(r"job-[0-9a-f]{32}")
UTTERANCE = re.compile(r"(.+):(\d{1,15})")
# States of the store in the words of the live ones.
STATES = {"RUNNING": "processing"}


async def history(instance: Instance, wanted: str, seen_by: str) -> HistoryAnswer:
    """Return everything known of the jobs that an id stands for."""
    ids = await _ids_of(instance, wanted)
    found = await asyncio.gather(*(story(instance, job, seen_by) for job in ids))
    return HistoryAnswer(instance=instance.id, jobs=tuple(one for one in found if one is not None))


async def story(instance: Instance, job_id: str, seen_by: str) -> JobStory | None:
    """Return what became of a job, or None if nothing is known that the caller may see."""
    live = instance.board.jobs.get(job_id)
    ends = instance.board.journal.latest_ends()
    ended = next((one for one in ends if one.job == job_id), None)
    try:
        record = await _record(instance, job_id)
    except StoreUnavailable:
        if live is None and ended is None:
            raise
        record = None
    if seen_by and _tenant(live, ended, record) != seen_by:
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
        find, index = instance.store.records.find, int(named[2])
        rows = await asyncio.gather(*(find(cell, named[1], index) for cell in instance.cells.all))
        ids |= dict.fromkeys(job for row in rows for job in row)
    return list(ids)[:JOBS_MAX]


def _ids_here(instance: Instance, wanted: str) -> Iterator[str]:
    """Give the jobs of an utterance or a trace that this instance has, or had lately."""
    for job in instance.board.jobs.values():
        if wanted in (job.assign.trace_id, f"{job.session.id}:{job.spec.index}"):
            yield job.id
    for one in instance.board.journal.latest_ends():
        if wanted in (one.trace, f"{one.session}:{one.utterance}") and one.job != "-":
            yield one.job


async def _record(instance: Instance, job_id: str) -> JobRecord | None:
    """Read a job's record from whichever cell has it; one that is away may be that cell."""
    asked = (instance.store.records.show(cell, job_id) for cell in instance.cells.all)
    found = await asyncio.gather(*asked, return_exceptions=True)
    for record in found:
        if not isinstance(record, BaseException | None):
            return record
    for error in found:
        if isinstance(error, BaseException):
            raise error
    return None


def _tenant(live: LiveJob | None, ended: Ended | None, record: JobRecord | None) -> str | None:
    """Return whose job it is; None if nobody can tell any more."""
    if live is not None:
        return live.session.tenant
    if ended is not None:
        return ended.tenant
    return record.tenant if record is not None and record.is_owned else None


def _from_record(
    instance: Instance, record: JobRecord, live: LiveJob | None, ended: Ended | None
) -> JobStory:
    is_over = bool(record.outcome)
    age_ms = (record.ended_at_ms if is_over else record.now_ms) - record.created_at_ms
    if live is not None:
        age_ms = round(instance.clock.now_ms() - live.marks.cut)
    state = STATES.get(record.state, "assigned" if record.node else "pending")
    if live is not None and live.attempt == record.attempt:
        state = live.state  # the store is told only of what lasts
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
    """Return a job that the store does not show: not yet, not any more, or not now."""
    age_ms = max(0, round(instance.clock.now_ms() - job.marks.cut))
    return JobStory(
        id=job.id,
        session=job.session.id,
        utterance_index=job.spec.index,
        lane=job.spec.lane,
        trace=job.assign.trace_id,
        state=job.state,
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


def _from_end(instance: Instance, ended: Ended) -> JobStory:
    """Return a job of which only its end is still known: its record is gone."""
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


def _timeline(instance: Instance, live: LiveJob | None, ended: Ended | None) -> Timeline | None:
    if live is not None:
        return timeline(marks_until(live.marks, instance.clock.now_ms()))
    return timeline(ended.marks) if ended is not None and ended.marks is not None else None
