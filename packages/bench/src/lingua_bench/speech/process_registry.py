"""The processes that a run started, directly or indirectly: none of them may be left afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from lingua_bench.chaos.process import HarnessFailed, until
from lingua_bench.speech.run import family

LOOK_S: Final = 0.2
LEFT_S: Final = 5.0


def read_proc(pid: int, name: str) -> str:
    """Return a file of a process under /proc; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def process_state(pid: int) -> tuple[str, int]:
    """Return the state of a process and when it began; empty and 0 if there is no such process."""
    fields = read_proc(pid, "stat").rpartition(")")[2].split()
    return (fields[0], int(fields[19])) if fields else ("", 0)


class ProcessRegistry:
    """All descendants of a process: none of them may be left afterwards."""

    def __init__(self, starter: int) -> None:
        self._starter = starter
        # Pid -> when the process began: pids are reused.
        self._seen: dict[int, int] = {}

    def note(self) -> None:
        """Note the descendants that run now."""
        for pid in family(self._starter)[1:]:
            self._seen[pid] = process_state(pid)[1]

    async def watch(self) -> None:
        """Note them again and again."""
        while True:
            self.note()
            await asyncio.sleep(LOOK_S)

    def left(self) -> list[int]:
        """Return the processes that are left; zombies do not count."""
        now = {pid: process_state(pid) for pid in self._seen}
        return [
            pid
            for pid, (state, began) in now.items()
            if began == self._seen[pid] and state not in {"", "Z", "X"}
        ]

    async def end(self, within_s: float = LEFT_S) -> int:
        """Give them a moment, kill those that are left, and return their number."""

        async def are_gone() -> bool:
            return not self.left()

        with contextlib.suppress(HarnessFailed):  # these are counted
            await until(are_gone, within_s, "all processes have ended")
        left = self.left()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        return len(left)
