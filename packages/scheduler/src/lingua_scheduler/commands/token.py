"""`lingua token`: makes, inspects and revokes the tokens of clients and nodes.

The token or key is alone on stdout, for programs; explanations are on stderr. Tokens are read from
stdin and never from an argument, where every user of the machine could see them. No server is
contacted: a token is valid wherever its key is known. Only revocation (`token_revoke.py`) needs
the store.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_cli.language_arguments import language_argument
from lingua_scheduler.auth.tokens import (
    CLIENT_TTL_S,
    DEFAULT_SCOPES,
    NODE_TTL_S,
    SCOPES,
    TOKEN_CHARS_MAX,
    InvalidToken,
    TokenKeys,
    new_key,
    unverified_claims,
)
from lingua_scheduler.commands.token_revoke import add_actions
from lingua_scheduler.config import load_settings
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from lingua_scheduler.secret import Secret

UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua token` and its actions."""
    parser = subparsers.add_parser("token", help="make and read the tokens of clients and nodes")
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    _add_create(actions)
    key = actions.add_parser("key", help="make a random key to sign tokens with")
    key.set_defaults(run=run_key)
    inspect = actions.add_parser(
        "inspect", help="read a token from stdin and check whether it is valid now"
    )
    inspect.set_defaults(run=run_inspect)
    add_actions(actions, seconds)


def run_create(args: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> int:
    """Print a new token; its owner and expiry on stderr."""
    _check_options(args, refuse)
    keys = _keys(args)
    token = _client_token(keys, args) if args.client else _node_token(keys, args)
    claims = unverified_claims(token.reveal())
    whose = "client" if args.client else f"node {args.node}"
    print(f"{whose} token, valid until {_utc(claims['exp'])}", file=sys.stderr)
    print(f"to revoke it: lingua token revoke --id {claims['jti']}", file=sys.stderr)
    print(token.reveal())
    return 0


def run_key(_: argparse.Namespace) -> int:
    """Print a new key; where to put it on stderr."""
    print(
        "put it first in auth.client_keys or auth.node_keys, one key for each kind, such as\n"
        "    LINGUA_AUTH__CLIENT_KEYS='[\"KEY\"]'",
        file=sys.stderr,
    )
    print(new_key().reveal())
    return 0


def run_inspect(args: argparse.Namespace) -> int:
    """Print the claims of a token and whether it is valid now; exit code 0 only if it is."""
    keys = TokenKeys(*_configured(args))
    # One character more than the limit, so that a longer token is refused and not cut.
    token = sys.stdin.read(TOKEN_CHARS_MAX + 1).strip()
    claims = unverified_claims(token)
    reason = _problem(keys, token, claims)
    shown = {name: _shown(name, value) for name, value in claims.items()}
    verdict = {"valid": not reason, **({"reason": reason} if reason else {}), "claims": shown}
    print(msgspec.json.format(msgspec.json.encode(verdict), indent=2).decode())
    return 1 if reason else 0


def _add_create(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    create = actions.add_parser("create", help="make a token and print it")
    whose = create.add_mutually_exclusive_group(required=True)
    whose.add_argument("--client", action="store_true", help="a token for clients")
    whose.add_argument("--node", metavar="NODE_ID", help="a token for this one node")
    create.add_argument("--tenant", default="", help="tenant of the token (default: none)")
    create.add_argument(
        "--ttl",
        type=seconds,
        metavar="TIME",
        help="how long it is valid, as 90s, 15m, 1h or 7d (default: 1h, for a node 24h)",
    )
    create.add_argument(
        "--languages", type=languages, metavar="LANG,LANG", help="clients: only these languages"
    )
    create.add_argument(
        "--scopes",
        type=scopes,
        metavar="NAME,NAME",
        help=f"clients: of {', '.join(SCOPES)} (default: speak,listen)",
    )
    create.add_argument(
        "--subject", metavar="SUB", help="clients: subject of the token, for revocation"
    )
    create.add_argument("--no-rooms", action="store_true", help="clients: no rooms")
    create.add_argument("--max-jobs", type=int, metavar="N", help="nodes: at most N jobs at once")
    create.add_argument(
        "--label",
        action="append",
        metavar="WORD",
        dest="labels",
        help="nodes: a label it has and no others (several times: several)",
    )
    create.set_defaults(run=partial(run_create, refuse=create.error))


def seconds(text: str) -> int:
    """Parse a duration such as 90s, 15m, 1h or 7d."""
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if not found:
        raise argparse.ArgumentTypeError(f"not a time such as 90s, 15m, 1h or 7d: {text[:40]!r}")
    return int(found[1]) * UNIT_S[found[2]]


def languages(text: str) -> list[str]:
    """Parse language codes separated by commas."""
    return [language_argument(code) for code in text.split(",")]


def scopes(text: str) -> list[str]:
    """Parse scopes separated by commas."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in SCOPES:
            problem = f"not a scope: {name[:40]!r} (there are {', '.join(SCOPES)})"
            raise argparse.ArgumentTypeError(problem)
    return names


def _check_options(args: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> None:
    of_clients = {
        "--languages": args.languages,
        "--scopes": args.scopes,
        "--no-rooms": args.no_rooms or None,
        "--subject": args.subject,
    }
    of_nodes = {"--max-jobs": args.max_jobs, "--label": args.labels}
    for option, value in (of_nodes if args.client else of_clients).items():
        if value is not None:
            refuse(f"{option} is for {'nodes' if args.client else 'clients'}")


def _keys(args: argparse.Namespace) -> TokenKeys:
    """Return the keys of the settings; the error tells how to make a missing one."""
    client_keys, node_keys = _configured(args)
    if not (client_keys if args.client else node_keys):
        name = "client_keys" if args.client else "node_keys"
        raise ConfigError(
            f"auth.{name}",
            "has no key to sign with; make one with `lingua token key` and put it in the settings"
            f" of every instance, such as LINGUA_AUTH__{name.upper()}='[\"KEY\"]'",
        )
    return TokenKeys(client_keys, node_keys)


def _configured(args: argparse.Namespace) -> tuple[tuple[Secret, ...], tuple[Secret, ...]]:
    auth = load_settings(args.config, os.environ).auth
    return auth.client_keys, auth.node_keys


def _client_token(keys: TokenKeys, args: argparse.Namespace) -> Secret:
    return keys.issue_client(
        tenant=args.tenant,
        subject=args.subject or "",
        languages=args.languages,
        rooms=not args.no_rooms,
        scopes=DEFAULT_SCOPES if args.scopes is None else args.scopes,
        ttl_s=CLIENT_TTL_S if args.ttl is None else args.ttl,
    )


def _node_token(keys: TokenKeys, args: argparse.Namespace) -> Secret:
    return keys.issue_node(
        args.node,
        tenant=args.tenant,
        max_jobs=args.max_jobs,
        labels=args.labels,
        ttl_s=NODE_TTL_S if args.ttl is None else args.ttl,
    )


def _problem(keys: TokenKeys, token: str, claims: dict[str, Any]) -> str:
    """Return why a token is not valid now, or ''; its claim `typ` decides the kind."""
    try:
        if claims.get("typ") == "node":
            keys.read_node(token, None)
        else:
            keys.read_client(token)
    except InvalidToken as error:
        return error.reason
    return ""


def _shown(name: str, value: Any) -> Any:
    is_time = name in {"exp", "iat", "nbf"} and isinstance(value, int | float)
    return _utc(value) if is_time else value


def _utc(at_s: float) -> str:
    try:
        return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "never"
