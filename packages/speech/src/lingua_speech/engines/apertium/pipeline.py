"""Programs joined by pipes that stay alive: each text gets one answer within a time limit.

The programs flush at a NUL byte (their option `-z`), so one start serves any number of texts. No
shell is involved. The processes die with this one: the kernel kills them (PR_SET_PDEATHSIG), and
the end of their input ends them. A pipeline that hung or died cannot be used again.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

END: Final = b"\0"
READ_BYTES: Final = 65_536
ANSWER_BYTES_MAX: Final = 4_000_000
CLOSE_S: Final = 1.0
PR_SET_PDEATHSIG: Final = 1

_LIBC = ctypes.CDLL(None, use_errno=True)


class PipelineLost(Exception):
    """The programs hung or died; the text has no answer."""


class ProcessPipeline:
    """A chain of running programs."""

    def __init__(
        self, steps: Sequence[Sequence[str]], environment: Mapping[str, str], timeout_s: float
    ) -> None:
        # How long an answer may take, for all programs together.
        self._timeout_s = timeout_s
        # The running programs, in the order in which they process a text.
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for step in steps:
                self._processes.append(self._start(step, environment))
        except OSError as error:
            self.close()
            raise PipelineLost(f"cannot start {step[0]}: {error}") from error

    def _start(
        self, step: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        before = _stream(self._processes[-1].stdout) if self._processes else None
        parent = os.getpid()
        process = subprocess.Popen(  # noqa: S603  (programs of the mode file, no shell)
            list(step),
            stdin=subprocess.PIPE if before is None else before,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            bufsize=0,
            preexec_fn=lambda: _die_with(parent),  # noqa: PLW1509  (one system call, no lock)
        )
        if before is not None:
            before.close()
        return process

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the processes, for measurements."""
        return tuple(process.pid for process in self._processes)

    def ask(self, text: bytes) -> bytes:
        """Return the programs' answer to a text without NUL; raises `PipelineLost`."""
        end = time.monotonic() + self._timeout_s
        self._write(text.replace(END, b" ") + END, end)
        answer = bytearray()
        output = _stream(self._processes[-1].stdout).fileno()
        while not answer.endswith(END):
            self._wait_for(output, end)
            piece = os.read(output, READ_BYTES)
            answer += piece
            if not piece or len(answer) > ANSWER_BYTES_MAX:
                raise PipelineLost("a program ended" if not piece else "the answer does not end")
        return bytes(answer[:-1])

    def _write(self, data: bytes, end: float) -> None:
        descriptor = _stream(self._processes[0].stdin).fileno()
        os.set_blocking(descriptor, False)
        left = memoryview(data)
        while left:
            ready = select.select([], [descriptor], [], max(0.0, end - time.monotonic()))[1]
            if not ready:
                raise PipelineLost("the programs accept no more text")
            try:
                left = left[os.write(descriptor, left) :]
            except BrokenPipeError as error:
                raise PipelineLost("a program ended") from error

    def _wait_for(self, descriptor: int, end: float) -> None:
        if not select.select([descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
            raise PipelineLost(f"no answer within {self._timeout_s:g} s")

    def close(self) -> None:
        """End the programs; those that do not end by themselves are killed."""
        if self._processes:
            _stream(self._processes[0].stdin).close()
            _stream(self._processes[-1].stdout).close()
        end = time.monotonic() + CLOSE_S
        for process in self._processes:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "every program was started with pipes"
    return stream


def _die_with(parent: int) -> None:
    """In the child: have the kernel kill it when the parent dies, even if it died just now."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
