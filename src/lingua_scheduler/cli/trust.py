"""Which certificates a command trusts: those of the system, and one that it is given (`--ca`).

A service that made its own certificate (`lingua init`) is in no system's list; whoever connects to
it has a copy of that certificate. Nothing is ever connected to unchecked.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.errors import ConfigError

if TYPE_CHECKING:
    import argparse

CA_VARIABLE: Final = "LINGUA_CA"


def add_ca(parser: argparse._ActionsContainer, default: Any = None) -> None:
    """Add the option that names a certificate."""
    parser.add_argument(
        "--ca", type=Path, default=default, metavar="FILE",
        help=f"certificate (PEM) to trust beside the system's (default: ${CA_VARIABLE})",
    )  # fmt: skip


def tls_of(ca: Path | None) -> ssl.SSLContext | None:
    """Return how TLS is checked, None for as the system does; raises `ConfigError`."""
    named = ca or os.environ.get(CA_VARIABLE)
    if not named:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=named)
    except OSError as error:  # An ssl.SSLError is one.
        option = "--ca" if ca else CA_VARIABLE
        why = error.strerror or "it is no certificate"
        raise ConfigError(option, f"cannot use {named}: {why}") from error
    return context
