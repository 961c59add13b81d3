"""The memory allocator of the private server: jemalloc, if the system has it.

Valkey is made for jemalloc, but the server in the wheel is built with the allocator of the C
library, and a fifth of its time goes there. No Python package has the library (docs/performance.md
says which were examined); that of the system is loaded into the server alone, never into us.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIBRARY = "libjemalloc.so.2"
# Where the distributions of Linux put libraries. Elsewhere nothing is found, and nothing changes.
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)
PRELOAD = "LD_PRELOAD"


def find_allocator(folders: Iterable[str] = FOLDERS) -> Path | None:
    """Return the system's jemalloc, or None."""
    places = (Path(folder) / LIBRARY for folder in folders)
    return next((path for path in places if path.is_file()), None)


def with_allocator(environment: Mapping[str, str], library: Path | None) -> dict[str, str]:
    """Return the environment of the server; what somebody else preloads stays as it is.

    A library that does not fit the program is left out by the loader, with a line in the log.
    """
    if library is None or environment.get(PRELOAD):
        return dict(environment)
    return {**environment, PRELOAD: str(library)}
