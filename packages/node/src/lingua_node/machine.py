"""What a node reports of its machine: its name, its hardware, how busy it is.

Read from the system where that is possible (/proc on Linux); elsewhere usage is 0, which a
scheduler takes for idle. GPUs are not detected: the user of a GPU declares it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lingua_wire.shared import Hardware, ResourceUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_wire.shared import Gpu

STAT, MEMORY = Path("/proc/stat"), Path("/proc/meminfo")
PLATFORMS = {"win32": "windows", "darwin": "macos"}


def default_node_id() -> str:
    """Return an id that stays the same on this machine and is valid in keys."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()) or "unnamed"
    return f"node-{host}"[:128]


def platform_name() -> str:
    """Return the operating system by its name in the protocol."""
    return PLATFORMS.get(sys.platform, "linux")


def hardware(gpus: Sequence[Gpu]) -> Hardware:
    """Return the hardware of this machine."""
    total_kb, _ = _memory_kb()
    return Hardware(
        cpu_cores=os.cpu_count() or 1,
        memory_gb=round(total_kb / (1024 * 1024), 1),
        gpus=tuple(gpus) or None,
    )


class MachineUsage:
    """How busy the machine is; the CPU share is measured since the last call."""

    def __init__(self, *, is_measured: bool = True, with_cpu: bool = True) -> None:
        # A simulated node reports an idle machine.
        self._is_measured = is_measured
        self._with_cpu = with_cpu
        # Busy and total CPU time so far, in ticks.
        self._busy, self._all = _cpu_ticks()

    def now(self, running_jobs: int) -> ResourceUsage:
        """Return the usage in percent."""
        if not self._is_measured:
            return ResourceUsage(cpu_percent=0.0, mem_percent=0.0, running_jobs=running_jobs)
        busy, total = _cpu_ticks()
        passed = total - self._all
        cpu = 100 * (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._all = busy, total
        memory_kb, available_kb = _memory_kb()
        memory = 100 * (memory_kb - available_kb) / memory_kb if memory_kb else 0.0
        return ResourceUsage(
            cpu_percent=round(min(100.0, max(0.0, cpu)), 1) if self._with_cpu else 0.0,
            mem_percent=round(memory, 1),
            running_jobs=running_jobs,
        )


def _cpu_ticks() -> tuple[int, int]:
    try:
        first = STAT.read_text().partition("\n")[0]
    except OSError:
        return 0, 0
    # user nice system idle iowait irq softirq steal; user includes guests.
    ticks = [int(word) for word in first.split()[1:9]]
    return sum(ticks) - sum(ticks[3:5]), sum(ticks)


def _memory_kb() -> tuple[int, int]:
    try:
        lines = MEMORY.read_text().splitlines()
    except OSError:
        return 0, 0
    found = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines)}
    return int(found.get("MemTotal", 0)), int(found.get("MemAvailable", 0))
