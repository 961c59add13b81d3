"""The CPU time and the memory of a process, as Linux counts them.

The load process of `lingua bench live` reads them at the edges of its own window, so that the usage
of the scheduler and the load that was sent belong to the same time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lingua_wire.errors import LinguaError

PROC = Path("/proc")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


class ProcessGone(LinguaError):
    """A process of the benchmark ended, or the system does not report its usage."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """CPU seconds since its start, and kilobytes in RAM now."""

    cpu_s: float
    rss_kb: int


def usage_of(pid: int) -> ProcessUsage:
    """Return the usage of a process, all its threads together."""
    folder = PROC / str(pid)
    try:
        spent_ns = sum(_spent_ns(task) for task in (folder / "task").iterdir())
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise ProcessGone(f"process {pid}: {error.strerror} (/proc is needed)") from error
    return ProcessUsage(spent_ns / 1e9, pages * PAGE_KB)


def children_of(pid: int) -> list[int]:
    """Return the running children of a process."""
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
