"""The `lingua` command: finds the subcommand, runs it, turns errors into exit codes.

Each subcommand is a module of this package with `add_parser(subparsers)`, whose parser sets `run`,
a function from the parsed arguments to an exit code. Only the module that is asked for is imported,
so that `lingua config` starts fast and works even where the rest cannot.

Exit codes: 0 done, 1 an error of ours, 2 wrong usage or settings, 130 interrupted, 141 nobody reads
the output any more (as a shell reports SIGPIPE).
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lingua_scheduler import __version__
from lingua_scheduler.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Sequence

# Modules of lingua_scheduler.cli, in the order of the help text.
COMMANDS = (
    "up", "serve", "node", "translate", "languages", "models", "sessions", "nodes", "jobs",
    "explain", "cluster", "doctor", "dlq", "init", "token", "config", "bench", "demo",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = _command_in(arguments)
    try:
        parser = build_parser((name,) if name in COMMANDS else COMMANDS)
        args = parser.parse_args(arguments)
    except KeyboardInterrupt:
        return 130
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    return _run(args)


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser for these subcommands, importing their modules and no others."""
    parser = argparse.ArgumentParser(
        prog="lingua",
        description="Control plane for live speech translation.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lingua {__version__}")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="PATH",
        help="settings file (default: $LINGUA_CONFIG, else ./lingua.toml if it is there)",
    )
    subparsers = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"lingua_scheduler.cli.{name}").add_parser(subparsers)
    _let_config_follow(subparsers)
    return parser


def _let_config_follow(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Take `--config` after a command, too; without a default, which would undo the one before."""
    for parser in commands.choices.values():
        for action in tuple(parser._actions):  # noqa: SLF001 there is no other way to look
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                _let_config_follow(action)
        parser.add_argument(
            "--config", type=Path, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def _command_in(arguments: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the value of `--config`."""
    words = iter(arguments)
    for word in words:
        if word == "--config":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def _run(args: argparse.Namespace) -> int:
    try:
        code = int(args.run(args))
        # Here and not at exit, where a closed pipe could no longer be handled.
        sys.stdout.flush()
    except LinguaError as error:
        print(f"lingua: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_stdout()
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _discard_stdout()
        print(f"lingua: cannot write standard output: {error.strerror}", file=sys.stderr)
        return 1
    return code


def _discard_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not fail again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
