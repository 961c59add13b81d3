"""What worker processes print, made fit for the node's log.

Libraries print what they like, also what people say. While a process loads, nobody has said
anything to it: its lines are told, up to where they quote a value. Once it has calls, only lines
that are known to be about the process itself (how it died, where) are told; the rest is counted.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Final

from lingua_scheduler.logs import QUOTING, EventLog

if TYPE_CHECKING:
    from collections.abc import Callable

LINE_BYTES_MAX: Final = 1000
LINES_PER_S_MAX: Final = 10

# What a process says of its own death, and nothing else that it says.
OF_ITSELF: Final = re.compile(
    r"terminate called [a-z ]*'[\w:]+'"
    r"|terminate called without an active exception"
    r"|Fatal Python error: (Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating[ -]point exception)"
    r'|  File "[^"]+", line \d+ in \S+'
    r"|engine did not close: .*"
    r"|the node sent no message: .*"
)
NO_MEMORY: Final = re.compile(rb"bad_alloc|MemoryError|[Oo]ut of memory|[Cc]annot allocate memory")

log = EventLog("speech.host")


class Output(asyncio.Protocol):
    """Reads what one process prints and tells the log what may be told."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The line that has not ended yet; of a long one the beginning.
        self._line = bytearray()
        # Lines told in the current second.
        self._second = 0
        self._told = 0
        # Whose lines these are.
        self.pid = 0
        # Somebody may have said something to the process.
        self.is_private = False
        # The process said that it got no memory.
        self.said_no_memory = False
        # Lines that were not told.
        self.lines_withheld = 0
        # Nothing more will come.
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Take what was printed."""
        *whole, rest = data.split(b"\n")
        for line in whole:
            self._add(line)
            self._end_line()
        self._add(rest)

    def connection_lost(self, _exc: Exception | None) -> None:
        """Take the last line, which may have no end."""
        if self._line:
            self._end_line()
        if self.lines_withheld:
            log.warning("engine.output_withheld", pid=self.pid, lines=self.lines_withheld)
        self.ended.set()

    def _add(self, data: bytes) -> None:
        self._line += data[: LINE_BYTES_MAX - len(self._line)]

    def _end_line(self) -> None:
        line, self._line = bytes(self._line), bytearray()
        self.said_no_memory |= NO_MEMORY.search(line) is not None
        words = tellable(line.decode("utf-8", "replace").rstrip(), is_private=self.is_private)
        if not words:
            self.lines_withheld += bool(line)
        elif self._admits():
            log.warning("engine.said", pid=self.pid, line=words)
        else:
            self.lines_withheld += 1

    def _admits(self) -> bool:
        second = int(self._clock())
        if second != self._second:
            self._second, self._told = second, 0
        self._told += 1
        return self._told <= LINES_PER_S_MAX


def tellable(line: str, *, is_private: bool) -> str:
    """Return what of a printed line may be told; empty if nothing may."""
    if OF_ITSELF.fullmatch(line):
        return line
    return "" if is_private else QUOTING.split(line, 1)[0].rstrip()
