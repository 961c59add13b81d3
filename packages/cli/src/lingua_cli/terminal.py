"""A long-running command and its terminal: signals, and output that cannot be written.

Used by commands that start processes and run until a signal ends them: the processes are ended in
order, also when the terminal is closed.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Ctrl-C, a request to terminate, a closed terminal.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable(is_handled: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Cancel this task on a signal, unless `is_handled` returns true."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def handle_signal() -> None:
        if not is_handled():
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, handle_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def output_errors() -> Iterator[None]:
    """Report output that cannot be written in one line, and Ctrl-C as `main` expects it."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            # A letter that the terminal cannot show must not end the command.
            output.reconfigure(errors="replace")
    try:
        yield
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None:
            discard(sys.stdout)
        place = error.filename or "standard output"
        raise LinguaError(f"cannot write {place}: {error.strerror}") from error


def discard(stream: TextIO) -> None:
    """Redirect an output to nothing, so that its buffer does not fail again when it is flushed."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)
