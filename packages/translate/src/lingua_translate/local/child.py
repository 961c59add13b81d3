"""One `lingua` command as a child process that ends with this one, however this one ends.

The child watches its standard input: when that is closed, its parent has ended, and it ends itself.
The last lines of its output are kept, to show why it failed. It is started in a session of its own,
so that Ctrl-C in the terminal is handled by the parent alone.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

TAIL_LINES: Final = 40
LINE_BYTES_MAX: Final = 1 << 16
# How long a child may take to end by itself.
END_S: Final = 10.0

# Runs the command while a thread waits for the end of the parent.
TIED_COMMAND: Final = """
import os, runpy, signal, sys, threading, time
def end_with_parent():
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(3)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=end_with_parent, daemon=True).start()
runpy.run_module("lingua_cli", run_name="__main__", alter_sys=True)
"""


class Child:
    """A running `lingua` command; created by `start`."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        # The last lines of its output, both streams in order.
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        # Receives every line of its standard output.
        self._on_line: Callable[[str], None] | None = None
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            asyncio.create_task(self._read(stream)) for stream in (process.stdout, process.stderr)
        ]

    @classmethod
    async def start(
        cls, name: str, words: Sequence[str], environ: Mapping[str, str], files: Sequence[int] = ()
    ) -> Child:
        """Start `lingua` with these arguments; the child also holds these files open."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            TIED_COMMAND,
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
            limit=LINE_BYTES_MAX,
            pass_fds=files,
        )
        return cls(name, process)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.returncode

    @property
    def tail(self) -> str:
        """Return the last lines it printed."""
        return "\n".join(self._tail)

    def watch(self, on_line: Callable[[str], None]) -> None:
        """Pass on every line of its output: earlier lines now, later lines as they come."""
        for line in self._tail:
            on_line(line)
        self._on_line = on_line

    def unwatch(self) -> None:
        """Stop passing lines on."""
        self._on_line = None

    async def wait(self) -> int:
        """Wait until it has ended, and all it printed is read."""
        code = await self._process.wait()
        await asyncio.wait(self._readers)
        return code

    async def end(self) -> None:
        """End it: in order if there is time and it ends in time, else at once."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_S):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        # A child of the child may still hold the streams: they are not waited for.
        for reader in self._readers:
            reader.cancel()
        await asyncio.wait(self._readers)

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                data = await stream.readline()
            except ValueError:  # A line longer than the read limit: the rest is skipped.
                continue
            if not data:
                return
            line = data.decode(errors="replace").rstrip()
            self._tail.append(line)
            if self._on_line is not None:
                self._on_line(line)
