"""`lingua top` as a person runs it: on a terminal, once, and for programs."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lingua_process import BOUND_S, environment, run, running
from servers import free_port

pytestmark = pytest.mark.store


def test_once_as_text_and_as_json(tmp_path: Path) -> None:
    with running(["serve", "--port", "0"], tmp_path, LINGUA_INSTANCE_ID="box") as service:
        url = service.url()
        text = run(["top", "--url", url, "--once"], tmp_path)
        assert text.returncode == 0, text.stderr
        assert text.stdout.startswith("box  lingua ")
        assert "no node is registered" in text.stdout
        assert "\x1b" not in text.stdout
        state = json.loads(run(["top", "--url", url, "--once", "--json"], tmp_path).stdout)
        assert state["service"]["service"] == "box"
        assert state["verdict"]["problems"][0]["code"] == "no_nodes"


def test_no_scheduler_is_told_in_one_line(tmp_path: Path) -> None:
    done = run(["top", "--url", f"http://127.0.0.1:{free_port()}", "--once"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("lingua: no scheduler answers at ")
    assert done.stderr.count("\n") == 1


class Terminal:
    """A terminal with the command on it."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "lingua_cli", *words],
            cwd=folder, env=environment(folder, COLUMNS="80", LINES="24", TERM="xterm"),
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def until(self, wanted: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while wanted not in self.text:
            left = deadline - time.monotonic()
            assert left > 0, f"never printed {wanted!r}:\n{self.text!r}"
            if select.select([self._ours], [], [], left)[0]:
                try:
                    self.text += os.read(self._ours, 1 << 16).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
        assert wanted in self.text

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def ended(self) -> int:
        try:
            return self.process.wait(BOUND_S)
        finally:
            self.process.kill()
            os.close(self._ours)


@pytest.mark.parametrize("how", ["q", "ctrl-c"])
def test_it_follows_the_service_until_a_key_and_leaves_the_terminal_as_it_was(
    how: str, tmp_path: Path
) -> None:
    with running(["serve", "--port", "0"], tmp_path) as service:
        terminal = Terminal(["top", "--url", service.url()], tmp_path)
        terminal.until("nothing can be translated")
        assert terminal.text.startswith("\x1b[?1049h")
        # Drawn again as the stream goes on.
        terminal.text = ""
        terminal.until("nothing can be translated")
        if how == "q":
            terminal.press("q")
        else:
            terminal.process.send_signal(signal.SIGINT)
        terminal.until("\x1b[?1049l")
        assert terminal.ended() == (0 if how == "q" else 130)


def test_a_service_that_ends_is_waited_for(tmp_path: Path) -> None:
    port = str(free_port())
    with running(["serve", "--port", port], tmp_path) as service:
        terminal = Terminal(["top", "--url", service.url()], tmp_path)
        terminal.until("nothing can be translated")
    terminal.until("no scheduler answers")
    terminal.text = ""
    with running(["serve", "--port", port], tmp_path) as service:
        service.url()
        terminal.until("nothing can be translated")
        terminal.press("q")
        assert terminal.ended() == 0
