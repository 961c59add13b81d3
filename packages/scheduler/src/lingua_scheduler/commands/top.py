"""`lingua top`: the console on a terminal, drawn again every second.

It reads the stream of `/api/v1/events`, as the page `/console` does. `q` or Ctrl-C ends it. If the
connection is lost it says so, keeps the last state and tries again.
"""

from __future__ import annotations

import os
import queue
import select
import shutil
import sys
import termios
import threading
import time
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_scheduler.commands.scheduler_client import (
    NoScheduler,
    SchedulerRefused,
    add_options,
    scheduler_of,
)
from lingua_scheduler.commands.top_screen import screen
from lingua_scheduler.edge.console.documents import ConsoleState, updated
from lingua_scheduler.metrics import BUCKETS_MAX

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from lingua_scheduler.commands.scheduler_client import SchedulerClient

PATH: Final = "/api/v1/events"
RETRY_S: Final = 1.0
KEYS_S: Final = 0.2
# The window of a terminal that does not say how large it is.
SIZE: Final = (80, 24)
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua top`."""
    parser = subparsers.add_parser("top", help="watch a running scheduler: the console as text")
    add_options(parser)
    parser.add_argument("--once", action="store_true", help="print the state once and end")
    parser.set_defaults(run=run_top)


def run_top(args: argparse.Namespace) -> int:
    """Show the state once, or until a person ends it."""
    client = scheduler_of(args)
    if args.once or args.json or not sys.stdout.isatty():
        for state in states_of(client.lines(PATH)):
            print(_printed(state, as_json=args.json), flush=True)
            if args.once or not args.json:
                return 0
        raise NoScheduler(client.url, "the stream ended")
    TopWatch(client).run()
    return 0


def _printed(state: ConsoleState, *, as_json: bool) -> str:
    if as_json:
        return msgspec.json.encode(state).decode()
    columns = shutil.get_terminal_size(SIZE).columns
    return "\n".join(screen(state, columns, 1000, has_colours=False))


def states_of(lines: Iterable[bytes]) -> Iterator[ConsoleState]:
    """Yield the state after each event of a stream."""
    state: ConsoleState | None = None
    name = b""
    for line in lines:
        word, _, rest = line.rstrip(b"\r\n").partition(b": ")
        if word == b"event":
            name = rest
        elif word == b"data" and name in (b"snapshot", b"update"):
            told = msgspec.json.decode(rest, type=ConsoleState)
            if name == b"update" and state is None:
                continue
            state = told if state is None or name == b"snapshot" else _after(state, told)
            yield state


def _after(state: ConsoleState, update: ConsoleState) -> ConsoleState:
    return updated(state, update, BUCKETS_MAX)


class TopWatch:
    """The screen of a terminal that follows a stream."""

    def __init__(self, client: SchedulerClient) -> None:
        self._client = client
        # States, and sentences about why there is none.
        self._news: queue.SimpleQueue[ConsoleState | str | SchedulerRefused] = queue.SimpleQueue()
        self._state: ConsoleState | None = None
        self._trouble = "connecting"

    def run(self) -> None:
        """Draw until a person presses `q` or Ctrl-C."""
        threading.Thread(target=self._follow, daemon=True).start()
        with _own_screen():
            size = shutil.get_terminal_size(SIZE)
            while not _is_quit(KEYS_S):
                has_news = self._take_news()
                now = shutil.get_terminal_size(SIZE)
                if has_news or now != size:
                    size = now
                    self._draw(*now)

    def _follow(self) -> None:
        while True:
            try:
                for state in states_of(self._client.lines(PATH)):
                    self._news.put(state)
                self._news.put("the stream ended")
            except SchedulerRefused as refused:
                self._news.put(refused)
                if refused.status in (401, 403, 404):
                    return
            except NoScheduler as error:
                self._news.put(str(error))
            time.sleep(RETRY_S)

    def _take_news(self) -> bool:
        has_news = False
        while not self._news.empty():
            news = self._news.get()
            has_news = True
            if isinstance(news, SchedulerRefused) and self._state is None:
                raise news
            if isinstance(news, ConsoleState):
                self._state, self._trouble = news, ""
            else:
                self._trouble = str(news)
        return has_news

    def _draw(self, columns: int, rows: int) -> None:
        lines = [] if not self._trouble else [self._trouble[: columns - 1]]
        if self._state is not None:
            has_colours = not os.environ.get("NO_COLOR")
            room = rows - 1 - len(lines)
            lines += screen(self._state, columns, room, has_colours=has_colours)
        text = "".join(f"{line}{CLEAR_LINE}\r\n" for line in lines[: rows - 1])
        sys.stdout.write(f"{HOME}{text}q ends{CLEAR_LINE}{CLEAR_BELOW}")
        sys.stdout.flush()


@contextmanager
def _own_screen() -> Iterator[None]:
    """Use the other screen of the terminal, and read keys without Enter."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else -1
    before = termios.tcgetattr(keys) if keys >= 0 else None
    if before is not None:
        tty.setcbreak(keys)
    sys.stdout.write(ENTER)
    try:
        yield
    finally:
        sys.stdout.write(LEAVE)
        sys.stdout.flush()
        if before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _is_quit(wait_s: float) -> bool:
    """Wait for a key for a moment; tell whether it ends the command."""
    if not sys.stdin.isatty():
        time.sleep(wait_s)
        return False
    readable, _, _ = select.select([sys.stdin], [], [], wait_s)
    return bool(readable) and os.read(sys.stdin.fileno(), 64)[:1] in (b"q", b"Q", b"\x04", b"")
