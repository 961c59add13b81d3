"""What the log of jobs keeps of those that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from lingua_scheduler.runtime.job import LiveJob
from lingua_scheduler.runtime.job_log import ENDED_MAX, PACKED_TOGETHER, EndedJob, JobLog
from lingua_scheduler.runtime.job_run import JobRun, LiveAttempt
from lingua_scheduler.runtime.session_state import SessionRecord
from lingua_scheduler.session.timeline import Marks
from lingua_scheduler.state.keys import Cell
from lingua_scheduler.state.records import JobSpec, Released
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_node import JobAssign

if TYPE_CHECKING:
    from lingua_scheduler.runtime.job import JobOwner

pytestmark = pytest.mark.unit

CELL = Cell("log", 0)
SESSION = SessionRecord("s-1", CELL, tenant="acme", trace_id="of-the-session")


def outcome(number: int) -> Released:
    return Released(
        seq=number + 1,
        kind="completed",
        utterance=number,
        lane="es",
        job=f"job-{number}",
        attempt=2,
        reason="-",
        payload=b"a text",
    )


def job(number: int) -> LiveJob:
    times = Marks(speech_end=10.5, cut=11.0, push=number + 0.25, delivered=number + 99.0)
    return LiveJob(
        id=f"job-{number}",
        home=CELL,
        spec=JobSpec(session="s-1", index=number, lane="es", demand="en>es|asr|||||"),
        assign=JobAssign(
            job_id=f"job-{number}",
            attempt_id=2,
            session_id="s-1",
            utterance_index=number,
            src_lang="en",
            tgt_lang="es",
            pipeline=PipelineConfig(use_asr=True, use_nmt=True, use_tts=False),
            audio=b"",
            audio_format="pcm16",
            sample_rate=16_000,
            trace_id=f"trace-{number}",
        ),
        audio=b"",
        owner=cast("JobOwner", None),
        run=JobRun(times, LiveAttempt(2, "n1", 5)),
        times=times,
    )


@pytest.mark.parametrize("count", [1, PACKED_TOGETHER, 2 * PACKED_TOGETHER + 3])
def test_ended_jobs_are_told_whole_and_in_order_however_many_followed(count: int) -> None:
    log, jobs = JobLog(), [job(number) for number in range(count)]
    for number, each in enumerate(jobs):
        log.ended(SESSION, outcome(number), each if number % 2 else None, 1_000 + number)
    assert list(log.latest_ends()) == [
        EndedJob(
            job=f"job-{number}",
            session="s-1",
            tenant="acme",
            utterance=number,
            lane="es",
            trace=f"trace-{number}" if number % 2 else "of-the-session",
            kind="completed",
            reason="-",
            attempt=2,
            node="n1" if number % 2 else "",
            marks=each.times if number % 2 else None,
            at_ms=1_000 + number,
        )
        for number, each in enumerate(jobs)
    ]


def test_the_latest_ended_jobs_are_kept_and_no_others() -> None:
    log, count = JobLog(), ENDED_MAX + 3 * PACKED_TOGETHER - 1
    for number in range(count):
        log.ended(SESSION, outcome(number), None, number)
    kept = [ended.utterance for ended in log.latest_ends()]
    assert kept == list(range(kept[0], count))
    assert ENDED_MAX <= len(kept) < ENDED_MAX + PACKED_TOGETHER


def test_ends_are_told_while_others_come() -> None:
    log = JobLog()
    for number in range(PACKED_TOGETHER + 1):
        log.ended(SESSION, outcome(number), None, number)
    told = log.latest_ends()
    first = next(told)
    for number in range(ENDED_MAX):
        log.ended(SESSION, outcome(number), None, number)
    assert [first.utterance, *(ended.utterance for ended in told)] == [*range(PACKED_TOGETHER + 1)]
