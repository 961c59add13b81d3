"""`lingua demo`: shows what it does, on a private server that goes away with it.

`live` is the whole: sockets, nodes, a room. `placement` is the core alone. Takes no settings and
touches no deployment. Here is only the terminal: colours (on a terminal, and not with NO_COLOR),
pauses for the reader (on a terminal) and tables. The stories are in `demo/`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, TextIO

from lingua_scheduler.cli.table import render_table
from lingua_scheduler.demo.live import tell_live_story
from lingua_scheduler.demo.placement import tell_story

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

PAUSE_S = 0.9
COLOURS = {"title": "1", "good": "32", "wait": "33", "bad": "31", "note": "2"}
INDENT = "  "


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua demo`; without a name it shows the live path."""
    parser = subparsers.add_parser("demo", help="show what it does, on a private server")
    parser.set_defaults(run=run_live)
    demos = parser.add_subparsers(title="demos", metavar="NAME")
    live = demos.add_parser("live", help="a room of three, two nodes, one of them killed")
    live.set_defaults(run=run_live)
    placement = demos.add_parser("placement", help="placement, waiting, failover and order")
    placement.set_defaults(run=run_placement)


def run_live(_: argparse.Namespace) -> int:
    """Tell the story of the live path; exit code 1 if anything it claims did not hold."""
    return report(asyncio.run(tell_live_story(Terminal(sys.stdout, os.environ))))


def run_placement(_: argparse.Namespace) -> int:
    """Tell the story of placement; exit code 1 if anything it claims did not hold."""
    return report(asyncio.run(tell_story(Terminal(sys.stdout, os.environ))))


def report(problems: list[str]) -> int:
    """Name what did not hold and return the exit code."""
    for problem in problems:
        print(f"lingua: {problem}", file=sys.stderr)
    return 1 if problems else 0


class Terminal:
    """Tells a story on a stream, for people on a terminal and plainly elsewhere."""

    def __init__(self, stream: TextIO, environ: Mapping[str, str]) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        is_dumb = environ.get("TERM") == "dumb" or bool(environ.get("NO_COLOR"))
        self._has_colours = self._is_terminal and not is_dumb
        # Scenes so far.
        self._scenes = 0

    def title(self, text: str) -> None:
        """Begin a scene."""
        self._scenes += 1
        self._print("")
        self._print(self._coloured(f"{self._scenes}. {text}", "title"))

    def say(self, text: str, tone: str = "plain") -> None:
        """Print one line."""
        self._print(INDENT + self._coloured(text, tone))

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None:
        """Print a table, its chosen row and its headers marked."""
        head, *lines = render_table(headers, rows).splitlines()
        self._print(INDENT + self._coloured(head, "note"))
        for row, line in zip(rows, lines, strict=True):
            self._print(INDENT + self._coloured(line, "good" if "chosen" in row else "plain"))

    async def pause(self) -> None:
        """Let a reader catch up; a program needs no time."""
        if self._is_terminal:
            await asyncio.sleep(PAUSE_S)

    def _coloured(self, text: str, tone: str) -> str:
        if not self._has_colours or tone not in COLOURS:
            return text
        return f"\x1b[{COLOURS[tone]}m{text}\x1b[0m"

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
