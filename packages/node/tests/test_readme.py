"""The example of README.md, run as a program that does the jobs of a real scheduler."""

from __future__ import annotations

import asyncio
import sys

import pytest

from client_peer import next_of
from edge.live_server import Stage, play, until
from lingua_client import Outcome
from readme_example import python_example
from real_session import SPEECH, session_of
from workspace import PACKAGES

pytestmark = pytest.mark.store

README = PACKAGES["lingua_node"] / "README.md"
URL = "ws://127.0.0.1:5010/ws/node"
LIMIT_S = 60


def test_the_example_translates_and_ends_on_a_signal() -> None:
    program = python_example(README)
    assert URL in program

    async def scenario(stage: Stage) -> None:
        url = f"{stage.server.url}/ws/node".replace("http", "ws", 1)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program.replace(URL, url), stderr=asyncio.subprocess.PIPE
        )
        try:
            nodes = stage.server.instance.nodes
            await until(lambda: "gpu-1" in nodes and nodes["gpu-1"].status == "ready")
            async with session_of(stage, "es", source="en") as session:
                await session.send(SPEECH * 10)
                await session.cut()
                outcome = await next_of(session, Outcome)
            assert (outcome.text_asr, outcome.text) == ("1.0 s of speech", "1.0 s de voz")
            process.terminate()
            _, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
            assert (process.returncode, errors) == (0, b"")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    # The example reports the real usage: a busy machine must get the job, too.
    play(scenario, nodes__resource_percent_max=100)
