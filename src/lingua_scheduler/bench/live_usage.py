"""What a process has used so far, by Linux's own account: CPU time and memory in RAM.

The load process of `lingua bench live` reads it at the edges of its own window, so that what the
scheduler spent and what was sent in that time belong together.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lingua_scheduler.errors import LinguaError

PROC = Path("/proc")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


class ProcessGone(LinguaError):
    """A process of the benchmark ended, or the system does not tell of it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds since its start, and kilobytes in RAM now."""

    cpu_s: float
    rss_kb: int


def usage_of(pid: int) -> Usage:
    """Return what a process has used, all its threads together."""
    folder = PROC / str(pid)
    try:
        spent_ns = sum(_spent_ns(task) for task in (folder / "task").iterdir())
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise ProcessGone(f"process {pid}: {error.strerror} (/proc is needed)") from error
    return Usage(spent_ns / 1e9, pages * PAGE_KB)


def children_of(pid: int) -> list[int]:
    """Return the processes a process has started and that run still."""
    folders = [folder for folder in PROC.iterdir() if folder.name.isdecimal()]
    return sorted(int(folder.name) for folder in folders if _parent(folder) == pid)


def _spent_ns(task: Path) -> int:
    try:
        # To the nanosecond, where `stat` counts in hundredths of a second.
        return int((task / "schedstat").read_text(encoding="ascii").split()[0])
    except FileNotFoundError:
        return 0  # a thread that has just ended


def _parent(folder: Path) -> int:
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0  # a process that has just ended
    # The name in parentheses may hold anything.
    return int(text.rpartition(")")[2].split()[1])
