"""Worker pools of test engines: install a plugin package, run pools, wait.

The package is real: a `.dist-info` folder with entry points on the import path of the node and of
its worker processes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.plugins import GROUP, Spec

ENGINES = Path(__file__).parents[1]
BOUND_S = 30.0
# Long enough for a busy machine: only a hang takes this long.
CALL_S = 20.0


def install_plugins(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `plugin_engines.py` a package with entry points, here and in child processes."""
    info = directory / "lingua_test_engines-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lingua-test-engines\nVersion: 1.0\n"
    )
    points = [f"{name} = plugin_engines:make_{name}" for name in ("obedient", "allround", "liar")]
    broken = "absent = no_such_module_at_all:make"
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *points, broken]) + "\n")
    monkeypatch.syspath_prepend(str(directory))
    before = os.environ.get("PYTHONPATH")
    path = [str(directory), str(ENGINES), *([before] if before else [])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


@asynccontextmanager
async def pool_of(*specs: str, on_state: Any = None, **rules: Any) -> AsyncIterator[WorkerPool]:
    """Run a started pool and close it; no process or task may be left."""
    pool = WorkerPool([Spec.parse(spec) for spec in specs], WorkerPoolRules(**rules), on_state)
    await pool.start()
    pids = pool.pids
    try:
        yield pool
    finally:
        pids += pool.pids
        await pool.close()
    assert not [pid for pid in pids if exists(pid)]
    assert asyncio.all_tasks() == {asyncio.current_task()}


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario within a time limit."""

    async def bounded() -> None:
        async with asyncio.timeout(BOUND_S * 2):
            await scenario

    asyncio.run(bounded())


async def until(condition: Callable[[], object], bound_s: float = BOUND_S) -> None:
    """Wait until a condition is true."""
    ends_s = time.monotonic() + bound_s
    while not condition():
        assert time.monotonic() < ends_s, "it did not come true in time"
        await asyncio.sleep(0.01)


def exists(pid: int) -> bool:
    """Tell whether a process exists, also as a zombie of this process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Tell whether a process runs; zombies do not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def say(
    pool: WorkerPool, text: str, timeout_s: float = CALL_S, **more: Any
) -> Coroutine[Any, Any, Any]:
    """Call the first engine, a translator."""
    return pool.call(0, text, "en", "es", timeout_s=timeout_s, **more)
