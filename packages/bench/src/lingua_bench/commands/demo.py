"""`lingua demo`: shows the product on a temporary private server.

Without a name: a real recording, translated live by real engines; `--room`: to two listeners. Both
fetch their models first. `live` shows a room whose node is killed, with simulated nodes;
`placement` is the core alone. Takes no settings and touches no deployment. This module is only the
terminal: colours (not with NO_COLOR), pauses for the reader and tables; the stories are in `demo/`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lingua_bench.demo.live import tell_live_story
from lingua_bench.demo.placement import tell_story
from lingua_bench.demo.speech import GROUP, tell_room_story, tell_speech_story
from lingua_cli.command_name import command_name
from lingua_cli.table import render_table
from lingua_cli.terminal import output_errors, stoppable
from lingua_scheduler.config import ServerSettings
from lingua_speech import presets
from lingua_speech.commands.models import installed_line, progress_on
from lingua_speech.commands.voice import add_voice, voice_words
from lingua_speech.models import default_store
from lingua_translate import screen as captions
from lingua_wire.captions import columns, filled

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from lingua_translate import InterpretationReport

PAUSE_S = 0.9
COLOURS = {"title": "1", "good": "32", "wait": "33", "bad": "31", "note": "2"}
INDENT = "  "


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua demo`; without a name it translates real speech."""
    parser = subparsers.add_parser("demo", help="show what it does, on a private server")
    parser.set_defaults(run=run_speech)
    parser.add_argument(
        "--room", action="store_true", help="a speaker and two listeners in two languages"
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="leave the service running afterwards, to speak in a browser, until Ctrl-C",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("lingua-demo"),
        metavar="DIR",
        help="where the translated speech is written (default: lingua-demo)",
    )
    add_voice(parser)
    demos = parser.add_subparsers(title="demos", metavar="NAME")
    live = demos.add_parser("live", help="a room of three, two simulated nodes, one of them killed")
    live.set_defaults(run=run_live)
    placement = demos.add_parser("placement", help="placement, waiting, failover and order")
    placement.set_defaults(run=run_placement)


def run_speech(args: argparse.Namespace) -> int:
    """Translate real speech; exit code 1 if anything it claims did not hold."""
    terminal = Terminal(sys.stdout, os.environ)
    with output_errors():
        if not args.room:
            # A place that cannot be written is reported before anything is started.
            args.out.mkdir(parents=True, exist_ok=True)
        install_models(terminal, args.voice)
        problems = asyncio.run(tell(TerminalDisplay(terminal), args))
        if not problems and not args.open:
            invite(terminal)
    return report(problems)


async def tell(showing: TerminalDisplay, args: argparse.Namespace) -> list[str]:
    """Tell the story that was asked for, until Ctrl-C."""
    with stoppable():
        try:
            if args.room:
                return await tell_room_story(showing, voice_words(args.voice))
            return await tell_speech_story(
                showing, args.out, voice_words(args.voice), stays=args.open
            )
        finally:
            showing.captions.finish(None)


def install_models(terminal: Terminal, voice: presets.Voice | None = None) -> None:
    """Fetch the missing models, and print which they are."""
    plan = presets.default_plan(voice)
    presets.check_libraries(plan)
    store = default_store()
    needed = store.catalogue.expand([GROUP, *plan.groups])
    missing = [model for model in needed if not store.has(model.name)]
    if not missing:
        return
    terminal.title(f"Models and a recording, once, into {store.root}")
    for model in missing:
        with progress_on(sys.stdout) as progress:
            done = store.install(model.name, progress)[-1]
        terminal.say(installed_line(done), "note")


def invite(terminal: Terminal) -> None:
    """Print what to try next."""
    lingua, server = command_name(), ServerSettings()
    page = f"http://{server.host}:{server.port}"
    terminal.title("Your turn")
    for words, what in (
        ("up", f"in a browser: start this, open {page} and press the button"),
        ("translate talk.wav --from en --to es --play", "a recording of yours"),
        ("translate mic --from en --to es --to fr", "your microphone, into two languages"),
        ("translate mic --two-way en es", "two people, each in their own language"),
        ("demo --room", "one speaks, two listen in two languages"),
        ("init", "what a service for other machines needs"),
    ):
        terminal.say(f"{what}:", "note")
        terminal.say(f"  {lingua} {words}")


class TerminalDisplay:
    """A story on a terminal: its lines, and live captions below them."""

    def __init__(self, terminal: Terminal) -> None:
        self.screen = terminal
        self.captions = captions.Screen(sys.stdout, os.environ, shows_times=True)

    def closing(self, report: InterpretationReport) -> None:
        """Show the account of the speech, and how long things took."""
        self.captions.finish(report)


def run_live(_: argparse.Namespace) -> int:
    """Tell the story of the live path; exit code 1 if anything it claims did not hold."""
    return report(asyncio.run(tell_live_story(Terminal(sys.stdout, os.environ))))


def run_placement(_: argparse.Namespace) -> int:
    """Tell the story of placement; exit code 1 if anything it claims did not hold."""
    return report(asyncio.run(tell_story(Terminal(sys.stdout, os.environ))))


def report(problems: list[str]) -> int:
    """Print the claims that did not hold and return the exit code."""
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
        """Print one line; on a terminal several, if it is too long."""
        lines = [text]
        if self._is_terminal and (width := self._columns() - len(INDENT) - 1) < columns(text):
            lines = filled(text, width)
        for line in lines:
            self._print(INDENT + self._coloured(line, tone))

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

    def _columns(self) -> int:
        return max(20, shutil.get_terminal_size().columns)

    def _coloured(self, text: str, tone: str) -> str:
        if not self._has_colours or tone not in COLOURS:
            return text
        return f"\x1b[{COLOURS[tone]}m{text}\x1b[0m"

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
