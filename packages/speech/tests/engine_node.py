"""Pipelines and nodes of test engines: install the engines, create jobs, wait.

The engines (`stage_engines.py`) are a real plugin package: a `.dist-info` folder with entry points
on the import path of this process and of every worker process.
"""

from __future__ import annotations

import asyncio
import io
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import soundfile

from lingua_node import Job, Result
from lingua_speech.assembly import Assembly
from lingua_speech.engine import Hint
from lingua_speech.metrics import PREFIX
from lingua_speech.plugins import GROUP
from lingua_speech.presets import EnginePlan, WorkerSettings, plan_of
from lingua_wire.from_node import FromNode, NodeAsrPartial
from lingua_wire.shared import PipelineConfig
from lingua_wire.to_node import JobAssign

HERE = Path(__file__).parent
BOUND_S = 30.0
NAMES = ("scribe", "gate", "marker", "tones", "echo", "letters")
# A whole node: it recognises, translates and speaks English and Spanish.
WHOLE = ("asr=scribe", "vad=gate", "mt=marker", "tts=tones")


def install_engines(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `stage_engines.py` a package with entry points, here and in child processes."""
    info = directory / "lingua_stage_engines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lingua-stage-engines\nVersion: 1\n"
    )
    points = [f"{name} = stage_engines:make_{name}" for name in NAMES]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *points]) + "\n")
    monkeypatch.syspath_prepend(str(directory))
    before = os.environ.get("PYTHONPATH")
    path = [str(directory), str(HERE), *([before] if before else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setenv("STAGE_ORDERS", str(directory))


def is_met() -> bool:
    """Tell whether an engine has begun an action counted in the file `met`."""
    return (Path(os.environ["STAGE_ORDERS"]) / "met").exists()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario within a time limit."""

    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S * 2):
            await scenario

    asyncio.run(bounded())


async def until(condition: Callable[[], object], what: str = "it") -> None:
    """Wait until a condition is true."""
    ends = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < ends, f"not in time: {what}"
        await asyncio.sleep(0.01)


def spoken(text: str, duration_ms: int = 0) -> bytes:
    """Return audio that contains a text: at 16 kHz, at least this long."""
    raw = text.encode()
    size = max(len(raw) + len(raw) % 2, duration_ms * 32)
    return raw.ljust(size, b"\0")


def as_flac(pcm: bytes) -> bytes:
    """Return 16 kHz audio as a lossless file, which keeps the text in it."""
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(pcm, "<i2"), 16_000, "PCM_16", format="FLAC")
    return file.getvalue()


class JobSource:
    """Creates jobs and collects the messages they send."""

    def __init__(self) -> None:
        self.sent: list[FromNode] = []

    def job(self, text: str = "hello", **fields: Any) -> Job:
        filled: dict[str, Any] = {
            "job_id": "j1",
            "attempt_id": 1,
            "session_id": "s1",
            "utterance_index": 0,
            "src_lang": "en",
            "tgt_lang": "es",
            "pipeline": PipelineConfig(use_asr=True, use_nmt=True, use_tts=True),
            "audio": spoken(text),
            "audio_format": "pcm16",
            "sample_rate": 16_000,
            "trace_id": "t1",
            **fields,
        }
        return Job(JobAssign(**filled), "n1", self.sent.append)

    def partials(self) -> list[tuple[str, bool]]:
        return [(one.text, one.is_final) for one in self.sent if isinstance(one, NodeAsrPartial)]


@asynccontextmanager
async def assembled(*engines: str, **pool: Any) -> AsyncIterator[Assembly]:
    """Run the engines of a node; no process is left afterwards."""
    plan = plan_of(engines or WHOLE)
    async with Assembly(EnginePlan(plan.specs, WorkerSettings(**pool))) as assembly:
        yield assembly
        pids = [pid for one in assembly.pools.values() for pid in one.pids]
    assert not [pid for pid in pids if process_exists(pid)]


def process_exists(pid: int) -> bool:
    """Tell whether a process exists."""
    return Path(f"/proc/{pid}").exists()


async def done(assembly: Assembly, job: Job) -> Result:
    return await assembly.pipeline.handle(job)


def metric(assembly: Assembly, name: str, **labels: str) -> float | None:
    """Return the value of one of a node's metrics, as a scrape would show it."""
    return assembly.metrics.registry.get_sample_value(f"{PREFIX}{name}", labels)


def hints(file: Path) -> list[Hint]:
    """Return the hints that the recogniser received, call by call."""
    return [msgspec.json.decode(line, type=Hint) for line in file.read_bytes().splitlines()]
