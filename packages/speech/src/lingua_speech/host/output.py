"""Filters the output of worker processes for the node's log.

Libraries may print the speech they process. While a process loads, it has received no speech: its
lines are logged up to the first quoted value. After that, only lines that are known to describe the
process itself (how and where it died) are logged; the others are counted.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

from lingua_cli.logs import QUOTING, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

LINE_BYTES_MAX: Final = 1000
LINES_PER_S_MAX: Final = 10

# Lines in which a process describes its own death.
ABOUT_THE_PROCESS: Final = re.compile(
    r"terminate called [a-z ]*'[\w:]+'"
    r"|terminate called without an active exception"
    r"|Fatal Python error: (Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating[ -]point exception)"
    r'|  File "[^"]+", line \d+ in \S+'
    r"|engine did not close: .*"
    r"|the node sent an invalid message: .*"
)
NO_MEMORY: Final = re.compile(rb"bad_alloc|MemoryError|[Oo]ut of memory|[Cc]annot allocate memory")

log = EventLog("speech.host")


class WorkerOutput(asyncio.Protocol):
    """Reads the output of one process and logs the lines that may be logged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The unfinished line; only the beginning of a long one.
        self._line = bytearray()
        # The current second, and the lines logged in it.
        self._second = 0
        self._logged = 0
        # The id of the process.
        self.pid = 0
        # The process may have received speech.
        self.is_private = False
        # The process printed that it ran out of memory.
        self.reported_no_memory = False
        # Number of lines that were not logged.
        self.lines_withheld = 0
        # Set when the output has ended.
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Process printed bytes."""
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._add(line)
            self._end_line()
        self._add(rest)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Process the last line, which may be unfinished."""
        if self._line:
            self._end_line()
        if self.lines_withheld:
            log.warning("engine.output_withheld", pid=self.pid, lines=self.lines_withheld)
        self.ended.set()

    def _add(self, data: bytes) -> None:
        self._line += data[: LINE_BYTES_MAX - len(self._line)]

    def _end_line(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        self.reported_no_memory |= NO_MEMORY.search(line) is not None
        words = loggable(line.decode("utf-8", "replace").rstrip(), is_private=self.is_private)
        if not words:
            self.lines_withheld += bool(line)
        elif self._is_within_rate():
            log.warning("engine.said", pid=self.pid, line=words)
        else:
            self.lines_withheld += 1

    def _is_within_rate(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._logged = second, 0
        self._logged += 1
        return self._logged <= LINES_PER_S_MAX


def loggable(line: str, *, is_private: bool) -> str:
    """Return the part of a printed line that may be logged; empty if none."""
    if ABOUT_THE_PROCESS.fullmatch(line):
        return line
    return "" if is_private else QUOTING.split(line, 1)[0].rstrip()
