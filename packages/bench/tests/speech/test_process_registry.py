"""Processes that are left over are counted and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from lingua_bench.speech.process_registry import ProcessRegistry

pytestmark = pytest.mark.unit

TWO_CHILDREN = """
import subprocess, sys
for _ in range(2):
    print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid, flush=True)
input()
"""


def test_a_process_that_is_left_is_counted_and_ended_and_one_that_ended_is_not() -> None:
    command = [sys.executable, "-c", TWO_CHILDREN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        dead, left = (int(starter.stdout.readline()) for _ in range(2))
        registry = ProcessRegistry(starter.pid)
        registry.note()
        assert set(registry.left()) == {dead, left}
        # Ended and not reaped: its parent does not wait for it.
        os.kill(dead, signal.SIGKILL)
        assert asyncio.run(registry.end(within_s=0.5)) == 1
        assert asyncio.run(registry.end(within_s=5.0)) == 0
        starter.kill()
