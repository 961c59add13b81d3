"""`lingua config print | check | acl`: prints and checks the settings, and the store's ACL line.

No action starts a process. If tenants are pinned to labels of nodes, `check` reads the known nodes
from the store; an unavailable store is not an error. Passwords are always masked.
"""

from __future__ import annotations

import asyncio
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
from lingua_scheduler.errors import StoreRejected, StoreUnavailable

if TYPE_CHECKING:
    import argparse

    from lingua_scheduler.config import Settings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua config` and its actions."""
    parser = subparsers.add_parser("config", help="show or check the settings")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    show = actions.add_parser("print", help="print all settings as TOML, passwords masked")
    show.add_argument("--json", action="store_true", help="print JSON instead of TOML")
    show.set_defaults(run=run_print)
    check = actions.add_parser("check", help="check the settings and show their sources")
    check.set_defaults(run=run_check)
    acl = actions.add_parser("acl", help="print the ACL line of a store user with least privilege")
    acl.add_argument("--user", default="lingua", help="name of the user (default: lingua)")
    acl.set_defaults(run=run_acl)


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
    """Print `ok` and the sources of the settings, or fail with the error."""
    settings = load_settings(args.config, os.environ)
    # This reads the certificate files, which loading the settings does not.
    ssl_context(settings)
    if any(tenant.glossary_file for tenant in settings.tenants):
        # Imported here: checking other settings does not need the server's modules.
        from lingua_scheduler.runtime.session_profiles import glossaries_of  # noqa: PLC0415

        glossaries_of(settings)
    print("ok")
    print(f"file: {settings_file(args.config, os.environ) or 'none'}")
    print(f"environment: {', '.join(setting_variables(os.environ)) or 'none'}")
    for sentence in warnings_of(settings):
        print(f"warning: {sentence}")
    return 0


def warnings_of(settings: Settings) -> list[str]:
    """Return warnings about valid settings: tenants that no known node may serve."""
    if not any(tenant.pinned for tenant in settings.tenants):
        return []
    # Imported here: checking other settings does not need the store.
    from lingua_scheduler.commands.explain import running_store  # noqa: PLC0415
    from lingua_scheduler.jobs.fleet import FleetSnapshot  # noqa: PLC0415
    from lingua_scheduler.jobs.pinning import Pins, old_names  # noqa: PLC0415
    from lingua_scheduler.state.keys import Cells  # noqa: PLC0415
    from lingua_scheduler.state.policy import FleetPolicy  # noqa: PLC0415
    from lingua_scheduler.state.store import Store  # noqa: PLC0415

    async def unserved() -> list[str]:
        async with running_store(settings) as connection:
            cells = Cells(settings.redis.key_prefix, settings.cells)
            fleet = FleetSnapshot(Store(connection, FleetPolicy.of(settings)), cells)
            await fleet.refresh()
        return list(Pins(settings).problems(fleet.pools).values())

    try:
        return old_names(settings) + asyncio.run(unserved())
    except (StoreUnavailable, StoreRejected) as error:
        unknown = f"the labels of nodes are unknown: {error}"
        return [*old_names(settings), unknown]


def run_acl(args: argparse.Namespace) -> int:
    """Print the ACL line for the configured key prefix; the operator inserts the password."""
    # Imported here: the other actions do not need the store.
    from lingua_scheduler.state.acl import acl_line  # noqa: PLC0415

    settings = load_settings(args.config, os.environ)
    print(acl_line(settings.redis.key_prefix, args.user))
    return 0
