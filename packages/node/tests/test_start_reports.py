"""`job_started`: for jobs that last, before all that they send themselves, never after the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from lingua_node import Job, Result
from lingua_node.job import Handler
from lingua_node.job_runner import JobRunner
from lingua_node.start_reports import STARTED_AFTER_S, TIMER_MARGIN_S
from lingua_wire.from_node import (
    FromNode,
    JobAudioPart,
    JobCancelAck,
    JobResult,
    JobStarted,
    NodeAsrPartial,
)
from lingua_wire.to_node import JobCancel
from node_peer import answer, job, run

pytestmark = pytest.mark.unit


class Stage:
    """A runner without a socket, whose clock and timers belong to the test."""

    def __init__(
        self, patch: pytest.MonkeyPatch, handler: Handler | None = None, *, acks: bool = True
    ) -> None:
        self.now = 100.0
        self.is_open = True
        self.sent: list[FromNode] = []
        self.may_end = asyncio.Event()
        # Timers that were set, and for how long.
        self._timers: list[tuple[asyncio.TimerHandle, float]] = []
        for module in ("job", "start_reports"):
            patch.setattr(f"lingua_node.{module}.perf_counter", lambda: self.now)
        patch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)
        self.runner = JobRunner(handler or self.wait, self, node_id="n1", max_jobs=9, acks=acks)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(0, callback, (), asyncio.get_running_loop())
        self._timers.append((timer, seconds))
        return timer

    async def wait(self, _: Job) -> Result:
        await self.may_end.wait()
        return Result(text_asr="hello")

    def send(self, message: FromNode) -> None:
        if self.is_open:
            self.sent.append(message)

    @property
    def timers(self) -> list[float]:
        """Return for how long the timers that run now were set."""
        return [seconds for timer, seconds in self._timers if not timer.cancelled()]

    def fire(self, after_s: float = 0.0) -> None:
        """Let the only timer fire after this time."""
        self.now += after_s
        (timer,) = [timer for timer, _ in self._timers if not timer.cancelled()]
        self._timers.clear()
        timer._run()

    def take(self) -> list[tuple[type[FromNode], str, int]]:
        """Return kind, job and attempt of what was sent since the last call."""
        sent, self.sent = self.sent, []
        assert all(
            isinstance(one, JobStarted | NodeAsrPartial | JobAudioPart | JobCancelAck | JobResult)
            for one in sent
        )
        told: list[Any] = sent
        return [(type(one), one.job_id, one.attempt_id) for one in told]

    async def end_all(self) -> None:
        """Let all handlers end."""
        self.may_end.set()
        await self.runner.wait_until(lambda: not self.runner.running_count)


def on_stage(
    patch: pytest.MonkeyPatch,
    steps: Callable[[Stage], Coroutine[Any, Any, None]],
    handler: Handler | None = None,
    *,
    acks: bool = True,
) -> None:
    async def scenario() -> None:
        await steps(Stage(patch, handler, acks=acks))

    run(scenario())


def test_a_job_that_ends_at_once_is_reported_by_its_result_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job())
        await stage.end_all()
        stage.fire(1.0)
        assert stage.take() == [(JobResult, "j1", 1)]
        assert stage.timers == []

    on_stage(monkeypatch, steps)


def test_a_job_that_lasts_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job(attempt_id=3))
        assert stage.take() == []
        stage.fire(STARTED_AFTER_S)
        (started,) = stage.sent
        assert started == JobStarted(
            job_id="j1",
            attempt_id=3,
            node_id="n1",
            session_id="s1",
            trace_id="t1",
            running_ms=round(STARTED_AFTER_S * 1000),
        )
        assert stage.timers == []
        await stage.end_all()
        assert stage.take() == [(JobStarted, "j1", 3), (JobResult, "j1", 3)]

    on_stage(monkeypatch, steps)


def test_one_timer_serves_all_jobs_and_is_set_again_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job("j1"))
        stage.runner.assign(job("j2"))
        stage.now += STARTED_AFTER_S / 2
        stage.runner.assign(job("j3"))
        assert stage.timers == [STARTED_AFTER_S + TIMER_MARGIN_S]
        stage.fire(STARTED_AFTER_S / 2)
        assert stage.take() == [(JobStarted, "j1", 1), (JobStarted, "j2", 1)]
        assert stage.timers == [pytest.approx(STARTED_AFTER_S / 2 + TIMER_MARGIN_S)]
        stage.fire(STARTED_AFTER_S)
        assert stage.take() == [(JobStarted, "j3", 1)]
        assert stage.timers == []
        # And for the next job that begins.
        stage.runner.assign(job("j4"))
        assert stage.timers == [STARTED_AFTER_S + TIMER_MARGIN_S]
        await stage.end_all()

    on_stage(monkeypatch, steps)


def test_what_a_job_sends_itself_comes_after_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(job: Job) -> Result:
        await job.audio_part(b"ab")
        await job.partial("hello")
        return await answer(job)

    async def steps(stage: Stage) -> None:
        stage.runner.assign(job("j1", tts_parts=True))
        stage.runner.assign(job("j2"))
        await stage.end_all()
        stage.fire(1.0)
        told = stage.take()
        first = [kind for kind, job_id, _ in told if job_id == "j1"]
        second = [kind for kind, job_id, _ in told if job_id == "j2"]
        assert first == [JobStarted, JobAudioPart, NodeAsrPartial, JobResult]
        assert second == [JobStarted, NodeAsrPartial, JobResult]

    on_stage(monkeypatch, steps, talk)


def test_a_job_that_is_being_cancelled_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        has_begun, is_asked = asyncio.Event(), asyncio.Event()

        async def stubborn(job: Job) -> Result:
            has_begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_asked.set()
                await stage.may_end.wait()
            return await answer(job)

        stage = Stage(monkeypatch, stubborn)
        stage.runner.assign(job())
        await has_begun.wait()
        stage.runner.cancel(JobCancel(job_id="j1", attempt_id=1))
        await is_asked.wait()
        stage.fire(1.0)
        assert stage.take() == []
        await stage.end_all()
        assert stage.take() == [(JobCancelAck, "j1", 1)]

    run(scenario())


def test_of_two_attempts_only_the_later_is_reported_in_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job(attempt_id=1))
        stage.now += STARTED_AFTER_S / 2
        stage.runner.assign(job(attempt_id=2))
        stage.fire(STARTED_AFTER_S / 2)
        assert stage.take() == []
        stage.fire(STARTED_AFTER_S)
        assert stage.take() == [(JobStarted, "j1", 2)]
        await stage.end_all()

    on_stage(monkeypatch, steps)


def test_an_attempt_is_not_reported_if_a_later_one_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job(attempt_id=1))
        stage.runner.refuse_new("the node stops")
        stage.runner.assign(job(attempt_id=2))
        stage.fire(1.0)
        assert stage.take() == [(JobResult, "j1", 2)]
        await stage.runner.stop()

    on_stage(monkeypatch, steps)


def test_an_attempt_that_is_assigned_again_is_acknowledged_at_once_and_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        for _ in range(3):
            stage.runner.assign(job())
        assert stage.take() == [(JobStarted, "j1", 1)] * 2
        stage.fire(1.0)
        assert stage.take() == []
        await stage.end_all()

    on_stage(monkeypatch, steps)


def test_a_job_that_lasts_longer_than_its_connection_is_reported_on_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        has_talked = asyncio.Event()

        async def talk(job: Job) -> Result:
            await job.partial("nobody hears this")
            has_talked.set()
            return await stage.wait(job)

        stage = Stage(monkeypatch, talk)
        stage.runner.assign(job("j1"))
        stage.is_open = False
        await has_talked.wait()
        stage.fire(STARTED_AFTER_S)
        assert stage.timers == []
        stage.is_open = True
        stage.runner.resend()
        assert stage.take() == [(JobStarted, "j1", 1)]
        await stage.end_all()

    run(scenario())


def test_a_job_that_began_before_a_reconnect_waits_for_the_rest_of_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job())
        stage.now += STARTED_AFTER_S / 2
        stage.runner.resend()
        assert stage.take() == []
        assert stage.timers == [pytest.approx(STARTED_AFTER_S / 2 + TIMER_MARGIN_S)]
        stage.fire(STARTED_AFTER_S)
        assert stage.take() == [(JobStarted, "j1", 1)]
        await stage.end_all()

    on_stage(monkeypatch, steps)


def test_a_job_that_ended_without_a_connection_is_reported_by_its_result_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job())
        stage.is_open = False
        stage.fire(1.0)
        await stage.end_all()
        stage.is_open = True
        stage.runner.resend()
        assert stage.take() == [(JobResult, "j1", 1)]
        assert stage.timers == []

    on_stage(monkeypatch, steps)


def test_a_handler_that_keeps_the_loop_busy_is_not_reported_after_its_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async def block(job: Job) -> Result:
            stage.now += 1.0
            return await answer(job)

        stage = Stage(monkeypatch, block)
        stage.runner.assign(job())
        await stage.end_all()
        stage.fire()
        assert stage.take() == [(JobResult, "j1", 1)]

    run(scenario())


def test_a_runner_that_stops_leaves_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(stage: Stage) -> None:
        stage.runner.assign(job())
        await stage.runner.stop()
        assert stage.timers == []

    on_stage(monkeypatch, steps)


def test_a_node_that_does_not_ack_reports_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def talk(job: Job) -> Result:
        await job.partial("hello")
        return await answer(job)

    async def steps(stage: Stage) -> None:
        for _ in range(2):
            stage.runner.assign(job())
        assert stage.timers == []
        await stage.end_all()
        assert stage.take() == [(NodeAsrPartial, "j1", 1), (JobResult, "j1", 1)]

    on_stage(monkeypatch, steps, talk, acks=False)
