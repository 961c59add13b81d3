"""The reduced pass of the chaos harness: small runs, checked as the long ones are.

`make chaos` and `make chaos-long` play more; see `chaos/scenarios.py`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from lingua_bench.chaos.report import notes
from lingua_bench.chaos.run import play
from lingua_bench.chaos.scenarios import CI, Size
from lingua_bench.chaos.store import running_store
from servers import wait_until

pytestmark = pytest.mark.stress

HARNESS = """
import asyncio, pathlib, sys
from lingua_bench.chaos.store import running_store

async def main():
    async with running_store(pathlib.Path(sys.argv[1])) as store:
        print(store.server.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


# Has a limit on how long a job may take after a kill.
MEASURING = "redispatch"


@pytest.mark.parametrize(
    ("name", "size"),
    [
        pytest.param(name, size, marks=[pytest.mark.alone] if name == MEASURING else [])
        for name, size in CI
    ],
)
def test_nothing_is_lost_repeated_or_reordered_and_the_run_was_dangerous(
    name: str, size: Size, tmp_path: Path
) -> None:
    run = uvloop.run(play(name, size, lambda *_: None, keep=tmp_path))
    print("\n".join(notes(run)))
    assert run.problems == []


def test_a_store_that_is_killed_has_kept_what_its_file_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_store(tmp_path) as store:
            await store.server.ask("SET", "a", "1")
            await store.server.ask("WAITAOF", 1, 0, 2000)
            await store.server.kill()
            await store.server.start()
            assert await store.server.ask("GET", "a") == b"1"
            await store.empty()
            assert await store.server.ask("GET", "a") is None

    asyncio.run(scenario())


def test_everything_dies_with_the_harness_even_by_kill_9(tmp_path: Path) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    store = int(harness.stdout.readline())
    assert Path(f"/proc/{store}").exists()
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    harness.stdout.close()
    wait_until(lambda: not Path(f"/proc/{store}").exists(), 10, "the store is gone")
