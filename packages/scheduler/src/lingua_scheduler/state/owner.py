"""Which process uses a data directory and where it listens, for the error of a second process.

The lock decides which process may use the directory (`state/embedded.py`); this file only explains
it. The address of a killed process is ignored, because it is stored with the process id.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from lingua_scheduler.errors import EmbeddedServerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOTE_NAME = "owner.address"
REACH_S = 0.5


class Owner(NamedTuple):
    """The process that holds a data directory, and its address if that is known."""

    pid: str
    url: str = ""

    def __str__(self) -> str:
        return f"process {self.pid}" + (f", which listens on {self.url}" if self.url else "")


class DirectoryInUse(EmbeddedServerError):
    """Another scheduler runs with the same data directory."""

    def __init__(self, directory: Path, owner: Owner) -> None:
        self.directory = directory
        self.owner = owner
        super().__init__(
            f"a scheduler runs already: {directory} is in use by {owner}\n"
            f"use that one, stop it (kill {owner.pid}), or give this one a directory and a port of "
            "its own: LINGUA_DATA_DIR=DIR lingua serve --port N"
        )


@contextmanager
def noted_address(directory: Path, url: str) -> Iterator[None]:
    """Store the address of this process for the duration of the block."""
    note = directory / NOTE_NAME
    note.write_text(f"{os.getpid()} {url}\n")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)


def owner_of(directory: Path, pid: str) -> Owner:
    """Return the owner of a directory: the process of its lock, with its stored address."""
    try:
        writer, _, url = (directory / NOTE_NAME).read_text().strip().partition(" ")
    except FileNotFoundError:
        return Owner(pid)
    return Owner(pid, url if writer == pid else "")


async def serves(owner: Owner) -> bool:
    """Tell whether an owner accepts connections, so that it is not about to exit."""
    parts = urlsplit(owner.url)
    if not owner.url or not _is_alive(owner.pid):
        return False
    try:
        async with asyncio.timeout(REACH_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except OSError:
        return False
    writer.close()
    return True


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (ValueError, ProcessLookupError):
        return False
    return True
