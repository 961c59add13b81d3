"""A long command and its terminal: what Ctrl-C does, and output that has no place.

Used by commands that start processes and run until they are told to end: these are ended in order,
also when the terminal goes away.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lingua_scheduler.errors import LinguaError
from lingua_scheduler.interpret.screen import discard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Ctrl-C, an end that somebody else wants, a terminal that is closed.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable(takes: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Cancel this task when it is told to end, unless somebody takes care of it."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def take_signal() -> None:
        if not takes():
            task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, take_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def output_errors() -> Iterator[None]:
    """Make one line of what ends a command whose output has no place; Ctrl-C as `main` knows it."""
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            # A terminal that lacks a letter must not end the talk.
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
