"""The simulated node of the older protocol behaves exactly as such nodes do."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from lingua_node import Job, Result
from lingua_node.old_node import HEARTBEAT_S, OldNode
from lingua_node.simulate import Simulation
from lingua_wire.from_node import (
    JobCancelAck,
    JobResult,
    JobStarted,
    NodeAsrPartial,
    NodeHeartbeat,
    NodeRegister,
)
from lingua_wire.to_node import JobCancel, NodeControl, NodeErrorMessage
from node_peer import (
    ScriptedScheduler,
    as_json,
    ignored,
    job,
    run,
    scripted_scheduler,
    serving,
    until,
)

pytestmark = pytest.mark.unit

ADDITIONS = {"boot_id", "max_jobs", "sends_acks", "running", "token", "labels"}


def old_node(scheduler: ScriptedScheduler, **settings: Any) -> OldNode:
    settings.setdefault("simulation", Simulation(delay_ms=0))
    return OldNode(scheduler.url, **{"node_id": "old", "watch": ignored, **settings})


def test_it_registers_in_json_without_any_of_our_additions() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(old_node(scheduler, pairs=["en>es"])):
            connection = await scheduler.node()
        assert connection.offered == []
        said = as_json(connection.raw[0])
        assert said["node_id"] == "old"
        assert not ADDITIONS & set(said)
        assert said["language_capabilities"]["supported_language_pairs"] == [
            {"src": "en", "tgt": "es"}
        ]
        beat = as_json(connection.raw[1])
        assert "running" not in beat
        assert {"installed_services", "capability_by_type"} <= set(beat)
        assert HEARTBEAT_S == 15

    run(scenario())


def test_it_takes_the_id_it_is_given_and_keeps_it() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = old_node(scheduler, node_id=None, reconnect_s=0.01)
            async with serving(node):
                first = await scheduler.node()
                assert first.of(NodeRegister)[0].node_id is None
                first.cut()
                second = await scheduler.node()
                assert second.of(NodeRegister)[0].node_id == "given"
        assert node.stats.reconnects == 1

    run(scenario())


def test_it_heartbeats_by_its_own_interval() -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            serving(old_node(scheduler, heartbeat_s=0.02)),
        ):
            connection = await scheduler.node()
            for _ in range(3):
                await connection.expect(NodeHeartbeat)

    run(scenario())


def test_a_result_is_the_first_sign_of_life_of_a_job() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            node = old_node(scheduler, simulation=Simulation(delay_ms=0, partials=1))
            async with serving(node):
                connection = await scheduler.node()
                connection.send(job())
                result = await connection.expect(JobResult)
        assert result.success
        assert connection.of(JobStarted) == []
        assert connection.of(JobStarted) == []
        assert [partial.attempt_id for partial in connection.of(NodeAsrPartial)] == [None]

    run(scenario())


def test_it_refuses_a_job_it_has_seen_whatever_the_attempt() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(old_node(scheduler)):
            connection = await scheduler.node()
            connection.send(job("j1", 1))
            assert (await connection.expect(JobResult)).success
            connection.send(job("j1", 2))
            refused = await connection.expect(JobResult)
            assert refused.error is not None
            assert refused.error.code == "PROCESSING_ERROR"
            assert refused.error.message.startswith("DUPLICATE_JOB_ID")
            assert refused.attempt_id == 2

    run(scenario())


def test_it_refuses_a_second_job_for_the_same_utterance() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(old_node(scheduler)):
            connection = await scheduler.node()
            connection.send(job("j1", utterance_index=3))
            assert (await connection.expect(JobResult)).success
            connection.send(job("j2", utterance_index=3, tgt_lang="fr"))
            refused = await connection.expect(JobResult)
            assert refused.error is not None
            assert refused.error.code == "PROCESSING_ERROR"
            assert refused.error.message.startswith("DUPLICATE_UTTERANCE_INDEX")

    run(scenario())


def test_it_keeps_silent_on_slices_and_answers_for_all_with_the_closing_piece() -> None:
    async def scenario() -> None:
        second = bytes(32_000)
        async with scripted_scheduler() as scheduler, serving(old_node(scheduler)):
            connection = await scheduler.node()
            for index in range(2):
                connection.send(
                    job(
                        f"j{index}",
                        utterance_index=index,
                        turn_id="t",
                        audio=second,
                        is_max_duration_triggered=True,
                    )
                )
            closing = job("j2", utterance_index=2, turn_id="t", audio=second)
            connection.send(closing)
            result = await connection.expect(JobResult)
            assert (result.job_id, result.text_asr) == (
                "j2",
                "simulated speech of 3000 ms: one two three four five six seven",
            )
            connection.send(job("j3", utterance_index=3, turn_id="t", audio=second))
            later = await connection.expect(JobResult)
            assert later.text_asr is not None
            assert later.text_asr.startswith("simulated speech of 1000 ms")
        assert [result.job_id for result in connection.of(JobResult)] == ["j2", "j3"]

    run(scenario())


def test_every_failure_but_a_missing_model_is_a_processing_error() -> None:
    async def scenario() -> None:
        codes = ("INTERNAL_ERROR", "MODEL_NOT_AVAILABLE")
        simulation = Simulation(delay_ms=0, fail_percent=100, fail_codes=codes)
        async with (
            scripted_scheduler() as scheduler,
            serving(old_node(scheduler, simulation=simulation)),
        ):
            connection = await scheduler.node()
            for index, code in enumerate(("PROCESSING_ERROR", "MODEL_NOT_AVAILABLE")):
                connection.send(job(f"j{index}", utterance_index=index))
                failed = await connection.expect(JobResult)
                assert failed.error is not None
                assert failed.error.code == code

    run(scenario())


def test_a_cancelled_job_is_neither_answered_nor_acknowledged() -> None:
    async def scenario() -> None:
        simulation = Simulation(delay_ms=0, silent_percent=50, seed=0)
        async with scripted_scheduler() as scheduler:
            node = old_node(scheduler, simulation=simulation)
            async with serving(node):
                connection = await scheduler.node()
                for index in range(20):
                    connection.send(job(f"j{index}", utterance_index=index))
                for index in range(20):
                    connection.send(JobCancel(job_id=f"j{index}"))
                await until(lambda: node.stats.succeeded + node.stats.cancelled == 20)
        assert node.stats.cancelled > 0
        assert len(connection.of(JobResult)) == node.stats.succeeded
        assert connection.of(JobCancelAck) == []

    run(scenario())


def test_it_does_not_understand_errors_and_control() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, serving(old_node(scheduler)):
            connection = await scheduler.node()
            connection.send(NodeErrorMessage(code="UNAUTHORIZED", message="what?"))
            connection.send(NodeControl(command="reconnect"))
            connection.send(job())
            assert (await connection.expect(JobResult)).success

    run(scenario())


def test_a_result_without_a_connection_is_lost() -> None:
    async def scenario() -> None:
        may_end = asyncio.Event()

        async def work(job: Job) -> Result:
            await may_end.wait()
            return Result(text_asr="hello")

        async with scripted_scheduler() as scheduler:
            node = old_node(scheduler, reconnect_s=0.01)
            node._handler = work
            async with serving(node):
                connection = await scheduler.node()
                connection.send(job())
                await until(lambda: node.stats.jobs == 1)
                scheduler.http_status = 503
                connection.cut()
                await until(lambda: node._socket is None)
                may_end.set()
                await until(lambda: node.stats.lost_results == 1)
                scheduler.http_status = 0
                again = await scheduler.node()
                again.send(job("j2", utterance_index=1))
                assert (await again.expect(JobResult)).job_id == "j2"

    run(scenario())


def test_it_waits_longer_after_each_failure_to_connect() -> None:
    async def scenario() -> None:
        waits: list[float] = []
        loop = asyncio.get_running_loop()

        def watch(word: str, _: str) -> None:
            if word == "connecting":
                waits.append(loop.time())

        node = OldNode("ws://127.0.0.1:1/ws/node", reconnect_s=0.02, watch=watch)
        async with serving(node):
            await until(lambda: len(waits) == 5)
        gaps = [after - before for before, after in itertools.pairwise(waits)]
        assert all(gap >= 0.02 * 2**number for number, gap in enumerate(gaps))

    run(scenario())
