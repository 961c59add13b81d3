"""The `lingua` command as a person runs it: a process of its own, in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BOUND_S = 60
LISTENS = re.compile(r"listens on (https?://[^ ]+)")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return this process's environment without settings of ours, all data in one folder."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("LINGUA_")}
    return {**kept, "LINGUA_DATA_DIR": str(folder / "data"), **more}


def run(
    words: list[str], folder: Path, timeout_s: float = BOUND_S, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "lingua_cli", *words],
        cwd=folder, env=environment(folder, **more), capture_output=True, text=True,
        timeout=timeout_s, check=False,
    )  # fmt: skip


class Running:
    """A command that runs, and what it printed so far."""

    def __init__(
        self, words: list[str], folder: Path, *, is_ours: bool = True, **more: str
    ) -> None:
        ours = [sys.executable, "-m", "lingua_cli"]
        self.process = subprocess.Popen(
            [*ours, *words] if is_ours else words,
            cwd=folder, env=environment(folder, **more), text=True, bufsize=1,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.printed = ""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def until(self, pattern: str, bound_s: float = BOUND_S) -> re.Match[str]:
        """Wait until it has printed something."""
        deadline = time.monotonic() + bound_s
        with self._changed:
            while not (found := re.search(pattern, self.printed)):
                left = deadline - time.monotonic()
                assert left > 0, f"never printed {pattern!r}:\n{self.printed}"
                assert self._reader.is_alive(), f"ended without {pattern!r}:\n{self.printed}"
                self._changed.wait(min(left, 0.2))
        return found

    def url(self) -> str:
        """Wait until it listens; return where."""
        return self.until(LISTENS.pattern)[1]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, bound_s: float = BOUND_S) -> int:
        """Wait until it has ended; return its exit code."""
        code = self.process.wait(bound_s)
        self._reader.join(bound_s)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.printed += line
                self._changed.notify_all()


@contextmanager
def running(
    words: list[str], folder: Path, *, is_ours: bool = True, **more: str
) -> Iterator[Running]:
    """Run a command until the block is left; ends it in order."""
    command = Running(words, folder, is_ours=is_ours, **more)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.send(signal.SIGTERM)
            try:
                command.process.wait(BOUND_S)
            finally:
                command.process.kill()
        command.ended()
