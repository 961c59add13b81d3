"""`lingua config print | check | acl`: the settings, whether they can be used, what they need.

None of them starts anything. `check` asks the store, if tenants are pinned to labels of nodes,
which nodes it knows; a store that does not answer is no error. Passwords are masked in all.
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
    show.add_argument("--json", action="store_true", help="print JSON rather than TOML")
    show.set_defaults(run=run_print)
    check = actions.add_parser("check", help="check the settings and say where they come from")
    check.set_defaults(run=run_check)
    acl = actions.add_parser("acl", help="print what makes the store's user with least privilege")
    acl.add_argument("--user", default="lingua", help="its name (default: lingua)")
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
    """Print `ok` and the sources of the settings, or fail with what is wrong."""
    settings = load_settings(args.config, os.environ)
    # Reads the certificate files, which loading alone does not.
    ssl_context(settings)
    if any(tenant.glossary_file for tenant in settings.tenants):
        # Only here: other settings need nothing of what serves to be checked.
        from lingua_scheduler.live.reception import glossaries_of  # noqa: PLC0415

        glossaries_of(settings)
    print("ok")
    print(f"file: {settings_file(args.config, os.environ) or 'none'}")
    print(f"environment: {', '.join(setting_variables(os.environ)) or 'none'}")
    for sentence in warnings_of(settings):
        print(f"warning: {sentence}")
    return 0


def warnings_of(settings: Settings) -> list[str]:
    """Return what can be used and is likely not meant: tenants that no known node may serve."""
    if not any(tenant.pinned for tenant in settings.tenants):
        return []
    # Only here: other settings need nothing of the store to be checked.
    from lingua_scheduler.cli.explain import running_store  # noqa: PLC0415
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
        unknown = f"which labels nodes have is not known: {error}"
        return [*old_names(settings), unknown]


def run_acl(args: argparse.Namespace) -> int:
    """Print the line for the configured key prefix; the operator puts the password in."""
    # Only here: the other actions need nothing of the store.
    from lingua_scheduler.state.acl import acl_line  # noqa: PLC0415

    settings = load_settings(args.config, os.environ)
    print(acl_line(settings.redis.key_prefix, args.user))
    return 0
