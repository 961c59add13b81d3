"""The jobs of a node: started, reported, refused and cancelled, each attempt once."""

from __future__ import annotations

import asyncio

import pytest

from lingua_node import Job, JobFailed, Node, Result, start_reports
from lingua_node.job import Handler
from lingua_wire.from_node import (
    JobCancelAck,
    JobResult,
    JobStarted,
    NodeAsrPartial,
    NodeHeartbeat,
)
from lingua_wire.shared import ExtraResult, ServiceTimings
from lingua_wire.to_node import JobAssign, JobCancel
from node_peer import (
    Connection,
    answer,
    connected,
    job,
    node_for,
    run,
    scripted_scheduler,
    serving,
    until,
)

pytestmark = pytest.mark.unit

NEVER_S = 1_000_000.0


class Gate:
    """A handler that waits until the test lets it continue, and records how it ended."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.started: list[Job] = []
        self.cancelled: list[Job] = []

    async def handle(self, job: Job) -> Result:
        self.started.append(job)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(job)
            raise
        return Result(text_asr="hello", text_translated=f"attempt {job.attempt_id}")


async def result_of(handler: object, assigned: JobAssign | None = None) -> JobResult:
    async with connected(handler) as connection:
        connection.send(assigned or job())
        return await connection.expect(JobResult)


@pytest.fixture
def jobs_that_do_not_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every job end before its start is due, however slow the machine is."""
    monkeypatch.setattr(start_reports, "STARTED_AFTER_S", NEVER_S)


def test_a_job_is_started_reported_and_answered_in_this_order() -> None:
    async def work(job: Job) -> Result:
        await job.partial("hel")
        await job.partial("hello", is_final=True)
        return Result(
            text_asr="hello",
            text_translated="hola",
            tts_audio=b"\1\2",
            timings={"asr_ms": 3, "total_ms": 9.5},
            extra=ExtraResult(language_probability=0.5),
            quality_score=0.25,
        )

    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, work)
            async with serving(node):
                connection = await scheduler.node()
                connection.send(job(utterance_index=4, group_id="g", part_index=2))
                result = await connection.expect(JobResult)
        kinds = [type(message) for message in connection.received[2:]]
        assert kinds == [JobStarted, NodeAsrPartial, NodeAsrPartial, JobResult]
        started, first, last = connection.received[2:5]
        assert (started.job_id, started.attempt_id, started.node_id) == ("j1", 1, "n1")
        assert (started.session_id, started.trace_id) == ("s1", "t1")
        assert [(p.text, p.is_final, p.attempt_id) for p in (first, last)] == [
            ("hel", False, 1),
            ("hello", True, 1),
        ]
        assert (result.job_id, result.attempt_id, result.node_id) == ("j1", 1, "n1")
        assert (result.session_id, result.utterance_index, result.trace_id) == ("s1", 4, "t1")
        assert (result.group_id, result.part_index) == ("g", 2)
        assert (result.success, result.error) == (True, None)
        assert (result.text_asr, result.text_translated) == ("hello", "hola")
        assert (result.tts_audio, result.tts_format) == (b"\1\2", "pcm16")
        assert result.extra == ExtraResult(
            language_probability=0.5, service_timings=ServiceTimings(asr_ms=3, total_ms=9.5)
        )
        assert result.quality_score == 0.25
        assert result.processing_time_ms is not None
        assert result.node_completed_at_ms is not None
        assert (node.stats.jobs, node.stats.succeeded) == (1, 1)

    run(scenario())


def test_a_node_that_does_not_ack_says_so_and_sends_only_results() -> None:
    async def scenario() -> None:
        async with connected(acks=False) as connection:
            connection.send(job())
            await connection.expect(JobResult)
        assert connection.received[0].sends_acks is False
        assert len(connection.received) == 3

    run(scenario())


def test_a_job_that_ends_at_once_costs_one_message(jobs_that_do_not_last: None) -> None:
    async def scenario() -> None:
        async with connected() as connection:
            for job_id in ("j1", "j2"):
                connection.send(job(job_id))
                await connection.expect(JobResult)
        assert connection.received[0].sends_acks is True
        assert [type(message) for message in connection.received[2:]] == [JobResult, JobResult]

    run(scenario())


def test_an_empty_result_carries_its_reason() -> None:
    async def nothing(job: Job) -> Result:
        return Result.empty()

    async def scenario() -> None:
        result = await result_of(nothing)
        assert (result.success, result.text_asr, result.tts_format) == (True, "", None)
        assert result.extra == ExtraResult(reason="ASR_EMPTY")

    run(scenario())


def test_a_failure_keeps_its_code_message_and_details() -> None:
    async def fail(job: Job) -> Result:
        raise JobFailed("MODEL_NOT_AVAILABLE", "x" * 999, {"service_id": "nmt"})

    async def scenario() -> None:
        result = await result_of(fail)
        assert (result.success, result.text_asr) == (False, None)
        assert result.error is not None
        assert result.error.code == "MODEL_NOT_AVAILABLE"
        assert result.error.message == "x" * 256
        assert result.error.details == {"service_id": "nmt"}

    run(scenario())


async def crash(job: Job) -> Result:
    raise RuntimeError("password 12345")


async def give_nothing(job: Job) -> Result:
    return None  # type: ignore[return-value]


async def give_up(job: Job) -> Result:
    raise asyncio.CancelledError


async def unsendable(job: Job) -> Result:
    return Result(text_asr="hello", segments_meta=object())


async def broken_text(job: Job) -> Result:
    return Result(text_asr="\ud800")


async def wrong_type(job: Job) -> Result:
    return Result(text_asr=b"hello")  # type: ignore[arg-type]


async def wrong_timing(job: Job) -> Result:
    return Result(timings={"cooking_ms": 1})


async def wrong_audio(job: Job) -> Result:
    return Result(tts_audio="tone")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "handler",
    [
        crash,
        give_nothing,
        give_up,
        unsendable,
        broken_text,
        wrong_type,
        wrong_timing,
        wrong_audio,
    ],
)
def test_a_broken_handler_is_an_internal_error_without_internals_and_the_node_goes_on(
    handler: Handler,
) -> None:
    is_broken = True

    async def sometimes(job: Job) -> Result:
        return await (handler(job) if is_broken else answer(job))

    async def scenario() -> None:
        nonlocal is_broken
        async with connected(sometimes) as connection:
            connection.send(job())
            result = await connection.expect(JobResult)
            assert result.error is not None
            assert (result.success, result.error.code) == (False, "INTERNAL_ERROR")
            assert "12345" not in result.error.message
            is_broken = False
            connection.send(job("j2"))
            assert (await connection.expect(JobResult)).success

    run(scenario())


def test_a_failure_with_details_that_cannot_be_sent_is_sent_without() -> None:
    async def fail(job: Job) -> Result:
        raise JobFailed("PROCESSING_ERROR", "why", object())

    async def scenario() -> None:
        result = await result_of(fail)
        assert result.error is not None
        assert (result.error.code, result.error.message) == ("PROCESSING_ERROR", "why")
        assert result.error.details is None

    run(scenario())


def test_more_jobs_than_slots_are_refused_at_once() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, gate.handle, max_jobs=2)
            async with serving(node):
                connection = await scheduler.node()
                for job_id in ("j1", "j2", "j3"):
                    connection.send(job(job_id))
                refused = await connection.expect(JobResult)
                assert refused.job_id == "j3"
                assert refused.error is not None
                assert refused.error.code == "NODE_OVERLOADED"
                gate.open.set()
                done = {(await connection.expect(JobResult)).job_id for _ in range(2)}
                assert done == {"j1", "j2"}
                connection.send(job("j3", 2))
                assert (await connection.expect(JobResult)).success
        assert (node.stats.refused, node.stats.jobs) == (1, 3)

    run(scenario())


def test_the_same_attempt_twice_runs_once_and_is_answered_again_when_done(
    jobs_that_do_not_last: None,
) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected(gate.handle) as connection:
            connection.send(job())
            connection.send(job())
            await until(lambda: bool(gate.started))
            gate.open.set()
            first = await connection.expect(JobResult)
            connection.send(job())
            assert await connection.expect(JobResult) == first
            connection.acknowledge("j1")
            await barrier(connection)
        assert len(gate.started) == 2  # the job and the barrier
        # The second assignment is acknowledged at once, the third by the result.
        assert [started.job_id for started in connection.of(JobStarted)] == ["j1"]
        assert [result.job_id for result in connection.of(JobResult)] == ["j1", "j1", "barrier"]

    run(scenario())


def test_a_higher_attempt_replaces_the_running_one_and_a_lower_one_is_ignored() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected(gate.handle, max_jobs=1) as connection:
            connection.send(job(attempt_id=1))
            await until(lambda: len(gate.started) == 1)
            connection.send(job(attempt_id=3))
            await until(lambda: len(gate.started) == 2)
            connection.send(job(attempt_id=2))
            gate.open.set()
            result = await connection.expect(JobResult)
            assert (result.attempt_id, result.text_translated) == (3, "attempt 3")
            connection.send(job(attempt_id=2))
            await barrier(connection)
        assert [job.attempt_id for job in gate.cancelled] == [1]
        assert gate.cancelled[0].cancelled
        assert [result.attempt_id for result in connection.of(JobResult)] == [3, 1]
        assert connection.of(JobCancelAck) == []

    run(scenario())


def test_a_higher_attempt_of_a_done_job_is_done_again() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler)
            async with serving(node):
                connection = await scheduler.node()
                for attempt_id in (1, 2):
                    connection.send(job(attempt_id=attempt_id))
                    assert (await connection.expect(JobResult)).attempt_id == attempt_id
        assert node.stats.jobs == 2

    run(scenario())


def test_a_cancelled_job_stops_and_only_that_is_reported() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with scripted_scheduler() as scheduler:
            node = node_for(scheduler, gate.handle)
            async with serving(node):
                connection = await scheduler.node()
                connection.send(job(attempt_id=2))
                await until(lambda: bool(gate.started))
                connection.send(JobCancel(job_id="j1", attempt_id=2, reason="job_timeout"))
                ack = await connection.expect(JobCancelAck)
                assert (ack.job_id, ack.attempt_id, ack.stopped) == ("j1", 2, True)
                gate.open.set()
                await barrier(connection)
        assert gate.cancelled == [gate.started[0]]
        assert [result.job_id for result in connection.of(JobResult)] == ["barrier"]
        assert node.stats.cancelled == 1

    run(scenario())


def test_an_attempt_that_is_being_cancelled_is_not_promised_again() -> None:
    async def scenario() -> None:
        is_asked, may_end = asyncio.Event(), asyncio.Event()

        async def stubborn(job: Job) -> Result:
            if job.job_id == "barrier":
                return await answer(job)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_asked.set()
                await may_end.wait()
                raise
            raise AssertionError("it is cancelled")

        async with connected(stubborn) as connection:
            connection.send(job())
            await connection.expect(JobStarted)
            connection.send(JobCancel(job_id="j1"))
            await asyncio.wait_for(is_asked.wait(), 10)
            connection.send(job())
            await barrier(connection)
            started = [one for one in connection.of(JobStarted) if one.job_id == "j1"]
            assert len(started) == 1
            may_end.set()
            assert (await connection.expect(JobCancelAck)).stopped

    run(scenario())


def test_a_cancel_without_an_attempt_means_whichever_runs() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected(gate.handle) as connection:
            connection.send(job(attempt_id=2))
            connection.send(JobCancel(job_id="j1"))
            ack = await connection.expect(JobCancelAck)
            assert (ack.attempt_id, ack.stopped) == (2, True)

    run(scenario())


def test_a_cancel_of_what_does_not_run_stops_nothing() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected(gate.handle) as connection:
            connection.send(job(attempt_id=2))
            connection.send(JobCancel(job_id="j1", attempt_id=1))
            connection.send(JobCancel(job_id="unknown"))
            for attempt_id in (1, 0):
                ack = await connection.expect(JobCancelAck)
                assert (ack.attempt_id, ack.stopped) == (attempt_id, False)
            gate.open.set()
            assert (await connection.expect(JobResult)).success

    run(scenario())


def test_a_cancel_is_acknowledged_only_when_the_handler_has_ended() -> None:
    async def scenario() -> None:
        is_asked, may_end = asyncio.Event(), asyncio.Event()

        async def stubborn(job: Job) -> Result:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                is_asked.set()
                await may_end.wait()
            await job.partial("too late")
            return Result(text_asr="too late")

        async with connected(stubborn, max_jobs=1) as connection:
            connection.send(job())
            await connection.expect(JobStarted)
            connection.send(JobCancel(job_id="j1"))
            await asyncio.wait_for(is_asked.wait(), 10)
            connection.send(job("j2"))
            full = await connection.expect(JobResult)
            assert full.error is not None
            assert full.error.code == "NODE_OVERLOADED"
            assert connection.of(JobCancelAck) == []
            may_end.set()
            assert (await connection.expect(JobCancelAck)).stopped
        assert [result.job_id for result in connection.of(JobResult)] == ["j2"]
        assert connection.of(NodeAsrPartial) == []

    run(scenario())


def test_heartbeats_list_what_runs() -> None:
    async def scenario() -> None:
        gate = Gate()
        async with connected(gate.handle, heartbeat_ms=50) as connection:

            def last_beat() -> NodeHeartbeat:
                return connection.of(NodeHeartbeat)[-1]

            connection.send(job("j1", 3))
            await connection.expect(JobStarted)
            await until(lambda: last_beat().resource_usage.running_jobs == 1)
            (listed,) = last_beat().running or ()
            assert (listed.job_id, listed.attempt_id) == ("j1", 3)
            gate.open.set()
            await until(lambda: last_beat().running == ())

    run(scenario())


def test_several_nodes_live_in_one_loop() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            nodes: list[Node] = [node_for(scheduler, node_id=f"n{n}") for n in range(5)]
            async with serving(*nodes):
                for _ in nodes:
                    connection = await scheduler.node()
                    connection.send(job())
                    await connection.expect(JobResult)
        assert {connection.received[0].node_id for connection in scheduler.all} == {
            f"n{n}" for n in range(5)
        }

    run(scenario())


async def barrier(connection: Connection) -> None:
    """Wait until the node has handled all earlier messages."""
    connection.send(job("barrier"))
    while (await connection.expect(JobResult)).job_id != "barrier":
        pass
