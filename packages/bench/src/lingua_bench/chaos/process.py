"""A process of the harness: started repeatedly with the same command, and ended for certain.

The kernel is asked to kill it when this process dies, however that happens. Ports are taken below
the ephemeral range: in that range a client that retries a dead port can connect to itself, and a
restarted server can find its port taken by some client's socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import signal
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final

from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

END_S: Final = 10.0
READ_S: Final = 30.0
POLL_S: Final = 0.02
FIRST_PORT, LAST_PORT = 20_000, 31_000
PR_SET_PDEATHSIG: Final = 1
LAST_WORDS: Final = 400

_libc = ctypes.CDLL(None, use_errno=True)
_given_ports: set[int] = set()


class HarnessFailed(LinguaError):
    """The harness itself could not continue; this says nothing about the system under test."""


def reason_of(error: BaseException) -> str:
    """Return the kind and text of an error; of a group, those of its first one."""
    inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
    return reason_of(inner) if inner is not None else f"{type(error).__name__} {error}".strip()


class Process:
    """One program: a new process each time it is started, always with the same log."""

    def __init__(
        self, command: Sequence[str], log: Path, changes: Mapping[str, str] | None = None
    ) -> None:
        self._command = tuple(command)
        self._log = log
        self._name = log.stem
        # What differs from our own environment, which is passed without its `LINGUA_` settings.
        self.changes = dict(changes or {})
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        """Return its pid."""
        assert self._process is not None, "it was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether it has a running process."""
        return self._process is not None and self._process.returncode is None

    @property
    def returncode(self) -> int | None:
        """Return its exit code, None while it runs."""
        return None if self._process is None else self._process.returncode

    async def start(self) -> None:
        """Start it, and do not wait for it."""
        assert not self.is_running
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LINGUA_")}
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=environment | self.changes,
                preexec_fn=die_with_parent(os.getpid()),
            )

    async def read_line(self, bound_s: float = READ_S) -> str:
        """Wait for its next line."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), bound_s)
        except TimeoutError:
            raise HarnessFailed(f"{self._name} wrote nothing for {bound_s:g} s") from None
        if not line:
            raise HarnessFailed(f"{self._name} ended: {self.last_words()}")
        return line.decode().strip()

    def write_line(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """End it by kill -9, also while it is stopped, and wait for its end."""
        if self._process is not None:
            self.signal(signal.SIGKILL)
            await self.wait(END_S)

    async def stop(self, bound_s: float = END_S) -> None:
        """Ask it to end, and kill it if it does not."""
        self.signal(signal.SIGTERM)
        try:
            await self.wait(bound_s)
        except TimeoutError:
            await self.kill()

    async def wait(self, bound_s: float) -> int:
        """Wait for its end; the rest of its output is discarded."""
        assert self._process is not None
        async with asyncio.timeout(bound_s):
            assert self._process.stdout is not None
            await self._process.stdout.read()
            return await self._process.wait()

    def last_words(self) -> str:
        """Return the last line of its log."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return lines[-1][-LAST_WORDS:] if lines else "its log is empty"


def die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a new process must call so that it dies with its parent."""

    def request() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the request: nothing else would end this process

    return request


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens and that was not returned before."""
    for _ in range(500):
        port = random.randrange(FIRST_PORT, LAST_PORT)
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port
    raise HarnessFailed("no free port was found")


async def until(condition: Callable[[], Awaitable[bool]], bound_s: float, what: str) -> float:
    """Poll until something holds, and return how long that took."""
    began = monotonic()
    while not await condition():
        if monotonic() - began > bound_s:
            raise HarnessFailed(f"not within {bound_s:g} s: {what}")
        await asyncio.sleep(POLL_S)
    return monotonic() - began
