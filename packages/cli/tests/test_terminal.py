"""A long-running command: signals cancel it, and output that cannot be written is one error."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest

from lingua_cli.terminal import SIGNALS, discard, output_errors, stoppable
from lingua_wire.errors import LinguaError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_the_task(number: signal.Signals) -> None:
    async def command() -> None:
        with stoppable():
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(command())


def test_a_handled_signal_does_not_cancel_the_task() -> None:
    async def command() -> str:
        handled = asyncio.Event()

        def is_handled() -> bool:
            handled.set()
            return True

        with stoppable(is_handled):
            os.kill(os.getpid(), signal.SIGTERM)
            await handled.wait()
        return "done"

    assert asyncio.run(command()) == "done"


def test_a_cancelled_command_was_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt), output_errors():
        raise asyncio.CancelledError


def test_a_file_that_cannot_be_written_is_named() -> None:
    message = r"^cannot write out\.srt: No space left on device$"
    with pytest.raises(LinguaError, match=message), output_errors():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.srt")


def test_a_closed_pipe_is_left_to_the_main_program() -> None:
    with pytest.raises(BrokenPipeError), output_errors():
        raise BrokenPipeError


def test_a_discarded_output_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    with path.open("w", encoding="utf-8") as stream:
        stream.write("text in the buffer")
        discard(stream)
    assert path.read_text(encoding="utf-8") == ""
