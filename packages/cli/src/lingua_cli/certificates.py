"""The certificates that a command trusts: those of the system, and one that `--ca` names.

No system knows a certificate that a service made for itself (`lingua init`); its clients need a
copy of it. Certificates are always checked.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    import argparse

CA_VARIABLE: Final = "LINGUA_CA"


def add_ca(parser: argparse._ActionsContainer, default: Any = None) -> None:
    """Add the option `--ca`."""
    parser.add_argument(
        "--ca",
        type=Path,
        default=default,
        metavar="FILE",
        help=f"certificate (PEM) to trust beside the system's (default: ${CA_VARIABLE})",
    )


def tls_of(ca: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context, None for the system's default; raises `ConfigError`."""
    named = ca or os.environ.get(CA_VARIABLE)
    if not named:
        return None
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(cafile=named)
    except OSError as error:  # An ssl.SSLError is one.
        option = "--ca" if ca else CA_VARIABLE
        why = error.strerror or "it is not a certificate"
        raise ConfigError(option, f"cannot use {named}: {why}") from error
    return context
