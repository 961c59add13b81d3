"""`lingua token revoke | restore | revoked`: tokens that are refused before they expire.

The list is in the store of the settings; every instance applies it within two seconds, also to open
sockets. No instance needs to run for this, except in `local` mode, where the scheduler runs the
store.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_cli.table import render_table
from lingua_scheduler.auth.tokens import IDENTIFIER, REVOKED_S, named, until_of
from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import InvalidIdentifier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lingua_scheduler.state.revocations import Revocations, Revoked


def add_actions(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], seconds: Callable[[str], int]
) -> None:
    """Add the three actions to `lingua token`; `seconds` parses a duration such as 7d."""
    revoke = actions.add_parser("revoke", help="refuse tokens from now on, also on open sockets")
    _add_which(revoke)
    revoke.add_argument(
        "--until",
        type=until_reader(seconds),
        default=None,
        metavar="TIME",
        help="end time, as 2026-12-31T18:00Z, or duration, as 12h or 90d (default: the longest "
        f"life of a token, {REVOKED_S // 86400}d)",
    )
    revoke.set_defaults(run=run_revoke)
    restore = actions.add_parser("restore", help="accept revoked tokens again")
    _add_which(restore)
    restore.set_defaults(run=run_restore)
    revoked = actions.add_parser("revoked", help="list the revoked tokens, and until when")
    revoked.add_argument("--json", action="store_true", help="print JSON instead of a table")
    revoked.set_defaults(run=run_revoked)


def until_reader(seconds: Callable[[str], int]) -> Callable[[str], float]:
    """Return a parser of a duration from now or of a time; it returns seconds since 1970."""

    def read(text: str) -> float:
        try:
            return time.time() + seconds(text)
        except argparse.ArgumentTypeError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            problem = f"neither a time such as 7d nor one such as 2026-12-31T18:00Z: {text[:40]!r}"
            raise argparse.ArgumentTypeError(problem) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    return read


def run_revoke(args: argparse.Namespace) -> int:
    """Add a token or a subject to the list."""
    one, until_ms = _which(args), until_of(args.until, time.time())
    _at_store(args, lambda known: known.revoke(one, until_ms))
    print(f"{_words(one)} is refused until {_utc(until_ms)}")
    return 0


def run_restore(args: argparse.Namespace) -> int:
    """Remove a token or a subject from the list; exit code 1 if it was not on it."""
    one = _which(args)
    was_there = _at_store(args, lambda known: known.restore(one))
    print(f"{_words(one)} {'is accepted again' if was_there else 'was not revoked'}")
    return 0 if was_there else 1


def run_revoked(args: argparse.Namespace) -> int:
    """Print the list."""
    until = _at_store(args, _read)
    rows = sorted((one.kind, one.name, one.tenant, at_ms) for one, at_ms in until.items())
    if args.json:
        names = ("kind", "name", "tenant", "until_ms")
        print(msgspec.json.encode([dict(zip(names, row, strict=True)) for row in rows]).decode())
    elif rows:
        shown = [(kind, name, tenant or "any", _utc(at_ms)) for kind, name, tenant, at_ms in rows]
        print(render_table(("what", "name", "tenant", "until"), shown))
    else:
        print("nothing is revoked")
    return 0


async def _read(known: Revocations) -> dict[Revoked, int]:
    await known.read()
    return known.until_ms


def _add_which(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--id", metavar="JTI", help="the token with this id (`jti`)")
    which.add_argument(
        "--subject", metavar="SUB", help="all tokens of this subject (`sub`); a node's is its id"
    )
    parser.add_argument("--tenant", default="", help="only this tenant's (default: of any)")


def _which(args: argparse.Namespace) -> Revoked:
    from lingua_scheduler.state.revocations import Revoked  # noqa: PLC0415 as below

    if args.tenant and not IDENTIFIER.fullmatch(args.tenant):
        raise InvalidIdentifier("tenant", args.tenant)
    if args.id is not None:
        return Revoked("id", named("the id", args.id), args.tenant)
    return Revoked("subject", named("the subject", args.subject), args.tenant)


def _at_store(args: argparse.Namespace, act: Callable[[Revocations], Awaitable[Any]]) -> Any:
    # Imported here: the other actions of `lingua token` do not need the store.
    from lingua_scheduler.commands.explain import running_store  # noqa: PLC0415
    from lingua_scheduler.state.keys import Cells  # noqa: PLC0415
    from lingua_scheduler.state.revocations import Revocations  # noqa: PLC0415

    settings = load_settings(args.config, os.environ)

    async def at_store() -> Any:
        async with running_store(settings) as connection:
            cell = Cells(settings.redis.key_prefix, settings.cells).all[0]
            return await act(Revocations(connection, cell))

    return asyncio.run(at_store())


def _words(one: Revoked) -> str:
    what = f"the token {one.name}" if one.kind == "id" else f"every token of {one.name}"
    return f"{what} of {one.tenant}" if one.tenant else what


def _utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
