"""Unacknowledged results: kept within bounds of number, size, age and repetition."""

from __future__ import annotations

from typing import Any

import pytest

from lingua_node import Job, Result, result_buffer
from lingua_node.job_runner import JobRunner
from lingua_wire.from_node import FromNode, JobResult
from lingua_wire.shared import ResultAck
from lingua_wire.to_node import JobResultAck, JobResultAcks
from node_peer import answer, job, run

pytestmark = pytest.mark.unit


class SentMessages:
    """A sender without a socket."""

    def __init__(self) -> None:
        self.is_open = True
        self.sent: list[FromNode] = []

    def send(self, message: FromNode) -> None:
        self.sent.append(message)


def results_in(outbox: SentMessages) -> list[str]:
    return [message.job_id for message in outbox.sent if isinstance(message, JobResult)]


async def idle_runner(outbox: SentMessages, jobs: int, handler: object = answer) -> JobRunner:
    chosen: Any = handler
    done = JobRunner(chosen, outbox, node_id="n1", max_jobs=1024, acks=False)
    for number in range(jobs):
        done.assign(job(f"j{number}"))
    await done.wait_until(lambda: not done.running_count)
    return done


def test_only_so_many_results_are_kept_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(result_buffer, "KEPT_MAX", 3)
        outbox = SentMessages()
        done = await idle_runner(outbox, 5)
        assert done.unacknowledged_count == 3
        assert done.stats.lost_results == 2
        outbox.sent.clear()
        done.resend()
        assert results_in(outbox) == ["j2", "j3", "j4"]

    run(scenario())


def test_only_so_much_audio_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def speak(job: Job) -> Result:
        return Result(text_asr="x", tts_audio=bytes(1000))

    async def scenario() -> None:
        monkeypatch.setattr(result_buffer, "KEPT_BYTES_MAX", 2500)
        outbox = SentMessages()
        done = await idle_runner(outbox, 5, speak)
        assert done.unacknowledged_count == 2
        for job_id in ("j3", "j4"):
            done.acknowledge(JobResultAck(job_id=job_id, attempt_id=1, status="accepted"))
        assert done._results._bytes == 0

    run(scenario())


def test_a_result_is_not_sent_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        outbox = SentMessages()
        done = await idle_runner(outbox, 1)
        for _ in range(10):
            done.resend()
        assert len(results_in(outbox)) == result_buffer.SENDS_MAX
        assert done.unacknowledged_count == 0
        monkeypatch.setattr(result_buffer, "KEPT_S", -1.0)
        old = await idle_runner(outbox, 1)
        old.resend()
        assert (old.unacknowledged_count, old.stats.lost_results) == (0, 1)

    run(scenario())


def test_one_message_may_acknowledge_several() -> None:
    async def scenario() -> None:
        outbox = SentMessages()
        done = await idle_runner(outbox, 4)
        acks = [("j0", 1), ("j2", 1), ("j3", 9), ("unknown", 1)]
        results = tuple(
            ResultAck(job_id=job_id, attempt_id=attempt, status="accepted")
            for job_id, attempt in acks
        )
        done.acknowledge_all(JobResultAcks(results=results))
        outbox.sent.clear()
        done.resend()
        assert results_in(outbox) == ["j1", "j3"]

    run(scenario())
