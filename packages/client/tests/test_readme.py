"""The example of README.md, run as a program against a real scheduler."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from edge.live_server import Stage, play
from edge.openai_stage import node as serving_node
from lingua_node import Job, Result
from readme_example import python_example
from real_session import SPEECH, url_of
from workspace import PACKAGES

pytestmark = pytest.mark.store

README = PACKAGES["lingua_client"] / "README.md"
URL = "ws://127.0.0.1:5010/ws/session"
LIMIT_S = 60


async def translate(job: Job) -> Result:
    return Result(text_asr="good morning", text_translated="buenos días")


def test_the_example_prints_the_coverage_and_the_translation(tmp_path: Path) -> None:
    program = python_example(README)
    assert URL in program
    (tmp_path / "speech.pcm").write_bytes(SPEECH * 10)

    async def scenario(stage: Stage) -> None:
        async with serving_node(stage, translate, pairs=["en>es"]):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-X", "utf8", "-c", program.replace(URL, url_of(stage))),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                out, errors = await asyncio.wait_for(process.communicate(), LIMIT_S)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        assert process.returncode == 0, errors.decode()
        coverage, outcome = out.decode().splitlines()
        assert "admitted_ms=1000, delivered_ms=1000" in coverage
        assert outcome == "0 buenos días"

    play(scenario)
