"""The `lingua` command: finds the verb, runs it, turns errors into exit codes.

Packages add verbs by entry points of the group `lingua.verbs`. Each names a module with
`add_parser(subparsers)`, whose parser sets `run`, a function from the parsed arguments to an exit
code. Only the module of the requested verb is imported, so that `lingua config` starts fast and
works even where other packages cannot be imported.

Exit codes: 0 done, 1 an error, 2 wrong usage or settings, 130 interrupted, 141 the reader closed
the output (as a shell reports SIGPIPE).
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from lingua_cli.terminal import discard
from lingua_wire import __version__
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERBS_GROUP = "lingua.verbs"
# The order of verbs in the help text; other verbs follow by name.
HELP_ORDER = (
    *("up", "serve", "node", "translate", "languages", "models", "sessions", "nodes", "jobs"),
    *("explain", "cluster", "top", "doctor", "dlq", "init", "token", "config", "bench", "demo"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = _command_in(arguments)
    try:
        parser = build_parser((name,) if name in installed_verbs() else ())
        args = parser.parse_args(arguments)
    except KeyboardInterrupt:
        return 130
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    return _run(args)


@cache
def installed_verbs() -> Mapping[str, str]:
    """Return the verbs of all installed packages and their modules, in the help's order."""
    found = {point.name: point.value for point in entry_points(group=VERBS_GROUP)}
    known = {name: found[name] for name in HELP_ORDER if name in found}
    return known | {name: found[name] for name in sorted(found)}


def build_parser(names: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the parser for these verbs (default: all), importing only their modules."""
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
    verbs = installed_verbs()
    for name in names or verbs:
        importlib.import_module(verbs[name]).add_parser(subparsers)
    _let_config_follow(subparsers)
    return parser


def _let_config_follow(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Accept `--config` after a command, too; a default would override the first one."""
    for parser in commands.choices.values():
        for action in tuple(parser._actions):  # noqa: SLF001 argparse offers no other way
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
        # Now, because at exit a closed pipe could no longer be handled.
        sys.stdout.flush()
    except LinguaError as error:
        print(f"lingua: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        discard(sys.stdout)
        return 141
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        discard(sys.stdout)
        print(f"lingua: cannot write standard output: {error.strerror}", file=sys.stderr)
        return 1
    return code
