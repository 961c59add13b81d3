"""`Node.run` in a process of its own: the program of docs/node-sdk.md, ended by signals."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lingua_node.settings import DEFAULT_URL
from lingua_wire.codes import CloseCode
from lingua_wire.from_node import JobResult, JobStarted, NodeAsrPartial, NodeDrain
from lingua_wire.to_node import NodeErrorMessage
from node_peer import ScriptedScheduler, job, run, scripted_scheduler
from workspace import ROOT

pytestmark = pytest.mark.unit

PAGE = ROOT / "docs" / "node-sdk.md"
ENDLESS = """
import asyncio
from lingua_node import Job, Node, Result

node = Node("ws://127.0.0.1:5010/ws/node")

@node.job
async def never(job: Job) -> Result:
    await asyncio.Event().wait()

node.run()
"""


def documented_program() -> str:
    program, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert DEFAULT_URL in program
    return str(program)


@asynccontextmanager
async def program_running(
    program: str, scheduler: ScriptedScheduler
) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program.replace(DEFAULT_URL, scheduler.url),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    _, err = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode, err.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_documented_program_does_jobs_and_drains_on_a_signal(number: signal.Signals) -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            program_running(documented_program(), scheduler) as process,
        ):
            connection = await scheduler.node()
            connection.send(job())
            assert (await connection.expect(NodeAsrPartial)).text == "hel"
            assert (await connection.expect(JobResult)).text_translated == "hola"
            connection.acknowledge("j1")
            process.send_signal(number)
            await connection.expect(NodeDrain)
            assert await ended(process) == (0, "")
            await asyncio.wait_for(connection.lost.wait(), 10)
            assert connection.close_code == CloseCode.NORMAL

    run(scenario())


def test_a_second_signal_does_not_wait_for_the_jobs() -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            program_running(ENDLESS, scheduler) as process,
        ):
            connection = await scheduler.node()
            connection.send(job())
            await connection.expect(JobStarted)
            process.terminate()
            await connection.expect(NodeDrain)
            process.terminate()
            assert await ended(process) == (0, "")
            assert connection.of(JobResult) == []

    run(scenario())


def test_a_signalled_program_refuses_new_jobs_and_ends_though_a_job_does_not() -> None:
    async def scenario() -> None:
        program = ENDLESS.replace('/ws/node")', '/ws/node", drain_s=0.5)')
        async with (
            scripted_scheduler() as scheduler,
            program_running(program, scheduler) as process,
        ):
            connection = await scheduler.node()
            connection.send(job("j1"))
            await connection.expect(JobStarted)
            process.terminate()
            await connection.expect(NodeDrain)
            connection.send(job("j2"))
            refused = await connection.expect(JobResult)
            assert refused.error is not None
            assert (refused.job_id, refused.error.code) == ("j2", "NODE_UNAVAILABLE")
            connection.acknowledge("j2")
            code, err = await ended(process)
            assert (code, err) == (0, "not everything ended within 0.5 s of draining\n")
            assert len(connection.of(JobResult)) == 1

    run(scenario())


def test_a_refused_program_ends_with_the_refusal() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = lambda _: NodeErrorMessage(code="FORBIDDEN", message="no")
            async with program_running(ENDLESS, scheduler) as process:
                code, err = await ended(process)
        assert code == 1
        assert "NodeRefused: the scheduler refused this node: FORBIDDEN: no" in err

    run(scenario())


def test_a_killed_node_is_noticed_and_comes_back_as_another_process() -> None:
    async def scenario() -> None:
        boots = set()
        async with scripted_scheduler() as scheduler:
            for _ in range(2):
                async with program_running(documented_program(), scheduler) as process:
                    connection = await scheduler.node()
                    process.kill()
                    await asyncio.wait_for(connection.lost.wait(), 10)
                    boots.add((connection.received[0].node_id, connection.received[0].boot_id))
                    await ended(process)
        assert len(boots) == 2
        assert {node_id for node_id, _ in boots} == {"gpu-1"}

    run(scenario())
