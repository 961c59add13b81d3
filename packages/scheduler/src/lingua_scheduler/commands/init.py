"""`lingua init`: makes the files of a service for other machines, and prints commands to copy.

This module has the arguments and the printed text; `init_files.py` makes the files. No process is
started and no server is contacted.
"""

from __future__ import annotations

import argparse
import re
import shlex
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lingua_cli.command_name import command_name
from lingua_scheduler.auth.tokens import IDENTIFIER, unverified_claims
from lingua_scheduler.commands.init_files import (
    ADMIN_TOKEN,
    CERTIFICATE,
    CLIENT_TOKEN,
    NODE_TOKEN,
    PRIVATE_KEY,
    SETTINGS,
    InitOptions,
    make_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = Path("lingua")
EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 with keys and TLS
NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?|::1")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua init`."""
    parser = subparsers.add_parser(
        "init", help="make keys, tokens, a certificate and settings for serving other machines"
    )
    parser.set_defaults(run=run_init)
    add = parser.add_argument
    add(
        "folder",
        nargs="?",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"folder for the files (default: ./{FOLDER})",
    )
    add(
        "--name",
        dest="names",
        action="append",
        type=host_name,
        metavar="HOST",
        help="name or address under which others reach it; repeat it for several machines "
        "(default: this machine's name)",
    )
    add(
        "--listen",
        default=EVERYWHERE,
        type=host_name,
        metavar="ADDRESS",
        help=f"address to listen on (default: {EVERYWHERE}, all)",
    )
    add("--port", type=port_number, default=5010, metavar="N", help="port (default: 5010)")
    add(
        "--node",
        dest="node_id",
        type=identifier,
        default="node-1",
        metavar="ID",
        help="the node that node.token is for (default: node-1)",
    )
    add(
        "--store",
        default="",
        metavar="redis://HOST",
        help="URL of a Valkey or Redis that all instances share; needed for several instances "
        "(default: a private one)",
    )
    add("--force", action="store_true", help="make all files again, also existing ones")


def run_init(args: argparse.Namespace) -> int:
    """Make the files and print what they are for."""
    options = InitOptions(
        folder=args.folder,
        names=tuple(args.names or [socket.gethostname()]),
        listen=args.listen,
        port=args.port,
        node_id=args.node_id,
        store=args.store,
    )
    make_files(options, force=args.force)
    print("\n".join(instructions(options)))
    return 0


def instructions(options: InitOptions) -> Iterator[str]:
    """Yield the printed lines: the files, and a command for each machine."""
    lingua, folder = command_name(), options.folder
    until = _valid_until(folder / NODE_TOKEN)
    yield f"{folder}/ has all files that a service for other machines needs:"
    yield f"  {SETTINGS}      settings and keys; with {PRIVATE_KEY} for the machines that serve"
    yield f"  {CERTIFICATE}  for every machine that connects: no other machine trusts it"
    yield f"  {ADMIN_TOKEN}, {CLIENT_TOKEN}, {NODE_TOKEN}  valid until {until}"
    yield ""
    yield "here, serve:"
    yield f"  {lingua} serve --config {_quoted(folder / SETTINGS)}"
    if options.store:
        yield "on a further machine that serves (copy the folder to the same place there):"
        yield f"  lingua serve --config {_quoted((folder / SETTINGS).absolute())}"
    yield f"on the machine of a node (copy {CERTIFICATE} and {NODE_TOKEN} there):"
    yield f"  {node_line(options)}"
    yield f"on the machine of a client (copy {CERTIFICATE} and {CLIENT_TOKEN} there):"
    yield f"  {client_line(options)}"
    yield f"to look at it (copy {CERTIFICATE} and {ADMIN_TOKEN} there):"
    yield f"  {admin_line(options)}"
    yield ""
    config = f"--config {_quoted(folder / SETTINGS)}"
    yield f"another node: {lingua} token create {config} --node NODE_ID --ttl 30d > NODE_ID.token"
    if not options.store:
        yield (
            "more than one instance: they share a store; lingua init --force --store redis://HOST"
        )


def node_line(options: InitOptions) -> str:
    """Return the command for the machine of a node."""
    urls = " ".join(f"--url {address('wss', name, options.port)}/ws/node" for name in options.names)
    return (
        f'LINGUA_NODE_TOKEN="$(cat {NODE_TOKEN})" lingua node --engines default --node-id '
        f"{options.node_id} --ca {CERTIFICATE} {urls}"
    )


def client_line(options: InitOptions) -> str:
    """Return the command for the machine of a client."""
    urls = " ".join(f"--url {address('wss', name, options.port)}" for name in options.names)
    return (
        f'LINGUA_TOKEN="$(cat {CLIENT_TOKEN})" lingua translate talk.wav --from en --to es '
        f"--ca {CERTIFICATE} {urls}"
    )


def admin_line(options: InitOptions) -> str:
    """Return the command for an operator."""
    url = address("https", options.names[0], options.port)
    return f'LINGUA_TOKEN="$(cat {ADMIN_TOKEN})" lingua nodes --ca {CERTIFICATE} --url {url}'


def address(scheme: str, name: str, port: int) -> str:
    """Return the URL of one machine."""
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}"


def host_name(text: str) -> str:
    """Parse a name or an address of a machine."""
    if not NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(f"not a name or address of a machine: {text[:60]!r}")
    return text


def port_number(text: str) -> int:
    """Parse a port number; 0 is not allowed."""
    if not text.isdecimal() or not 1 <= int(text) <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"must be from 1 to {0xFFFF}, got: {text[:20]!r}")
    return int(text)


def identifier(text: str) -> str:
    """Parse the id of a node."""
    if not IDENTIFIER.fullmatch(text):
        raise argparse.ArgumentTypeError(f"must be letters, digits and _.:-, got: {text[:60]!r}")
    return text


def _valid_until(token: Path) -> str:
    expires_at = unverified_claims(token.read_text().strip())["exp"]
    return datetime.fromtimestamp(expires_at, UTC).strftime("%Y-%m-%d")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
