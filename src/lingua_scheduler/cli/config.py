"""`lingua config print | check`: what the settings are and whether they can be used.

Neither starts or contacts anything. Passwords are masked in both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.config import (
    load_settings,
    setting_variables,
    settings_file,
    ssl_context,
    to_toml,
)

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua config` and its two actions."""
    parser = subparsers.add_parser("config", help="show or check the settings")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    show = actions.add_parser("print", help="print all settings as TOML, passwords masked")
    show.add_argument("--json", action="store_true", help="print JSON rather than TOML")
    show.set_defaults(run=run_print)
    check = actions.add_parser("check", help="check the settings and say where they come from")
    check.set_defaults(run=run_check)


def run_print(args: argparse.Namespace) -> int:
    """Print the settings this process would run with."""
    settings = load_settings(args.config, os.environ)
    if args.json:
        # `str` is the masked form of a SecretUrl and the plain form of a Path.
        print(msgspec.json.format(msgspec.json.encode(settings, enc_hook=str), indent=2).decode())
    else:
        print(to_toml(settings), end="")
    return 0


def run_check(args: argparse.Namespace) -> int:
    """Print `ok` and the sources of the settings, or fail with what is wrong."""
    settings = load_settings(args.config, os.environ)
    # Reads the certificate files, which loading alone does not.
    ssl_context(settings)
    print("ok")
    print(f"file: {settings_file(args.config, os.environ) or 'none'}")
    print(f"environment: {', '.join(setting_variables(os.environ)) or 'none'}")
    return 0
