"""The CPU time and the memory of a process, as Linux counts them.

The load process of `lingua bench live` reads them at the edges of its own window, so that the usage
of the scheduler and the load that was sent belong to the same time.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Iterable

PROC = Path("/proc")
PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of `stat` after the name: the parent, and user and system time of ended children.
PARENT, CHILDREN_TICKS = 1, slice(13, 15)


class ProcessGone(LinguaError):
    """A process of the benchmark ended, or the system does not report its usage."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """CPU seconds since its start, those of its ended children, and kilobytes in RAM now."""

    cpu_s: float
    children_cpu_s: float
    rss_kb: int


def usage_of(pid: int) -> ProcessUsage:
    """Return the usage of a process, all its threads together."""
    folder = PROC / str(pid)
    try:
        spent_ns = sum(_spent_ns(task) for task in (folder / "task").iterdir())
        children_ticks = sum(map(int, _stat_fields(folder)[CHILDREN_TICKS]))
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
    except OSError as error:
        raise ProcessGone(f"process {pid}: {error.strerror} (/proc is needed)") from error
    return ProcessUsage(
        cpu_s=spent_ns / 1e9,
        children_cpu_s=children_ticks / TICKS_PER_S,
        rss_kb=pages * PAGE_KB,
    )


def usage_of_all(pids: Iterable[int]) -> ProcessUsage:
    """Return the usage of some processes together."""
    found = [usage_of(pid) for pid in pids]
    return ProcessUsage(
        cpu_s=sum(each.cpu_s for each in found),
        children_cpu_s=sum(each.children_cpu_s for each in found),
        rss_kb=sum(each.rss_kb for each in found),
    )


def children_of(pid: int) -> list[int]:
    """Return the running children of a process."""
    return sorted(child for child, parent in _parents().items() if parent == pid)


def descendants_of(pid: int) -> dict[int, str]:
    """Return all running processes below a process, each with its name."""
    parents, found, level = _parents(), dict[int, str](), {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level} - found.keys()
        found |= {child: _name(child) for child in level}
    return found


def _parents() -> dict[int, int]:
    folders = [folder for folder in PROC.iterdir() if folder.name.isdecimal()]
    return {int(folder.name): _parent(folder) for folder in folders}


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""  # a process that has just ended


def _spent_ns(task: Path) -> int:
    try:
        # To the nanosecond, where `stat` counts in hundredths of a second.
        return int((task / "schedstat").read_text(encoding="ascii").split()[0])
    except FileNotFoundError:
        return 0  # a thread that has just ended


def _parent(folder: Path) -> int:
    try:
        return int(_stat_fields(folder)[PARENT])
    except OSError:
        return 0  # a process that has just ended


def _stat_fields(folder: Path) -> list[str]:
    text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    # The name in parentheses may hold anything.
    return text.rpartition(")")[2].split()
