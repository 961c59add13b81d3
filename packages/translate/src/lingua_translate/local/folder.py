"""The folder of a private service: removed with it, or by the next one if it was killed.

The user of a folder holds a lock on a file in it. The kernel releases the lock when the process and
the children that share it have ended, however they did. A folder whose lock is free is unused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "lingua-private-"
LOCK: Final = "private.lock"
TRIES: Final = 10


@contextmanager
def private_folder() -> Iterator[tuple[Path, int]]:
    """Give a folder and its lock, a file that children may share; removes unused folders."""
    remove_forgotten(Path(tempfile.gettempdir()))
    folder, lock = _made()
    try:
        yield folder, lock
    finally:
        _remove(folder)
        os.close(lock)


def remove_forgotten(parent: Path) -> None:
    """Remove the folders of this user's processes that have ended without doing so."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # It is being removed just now, or we may not read it.
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                _remove_if_forgotten(folder)


def _remove_if_forgotten(folder: Path) -> None:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    finally:
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder, its lock last: if something still writes there, the next run removes it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)
    if [path.name for path in folder.iterdir()] == [LOCK]:
        shutil.rmtree(folder, ignore_errors=True)


def _made() -> tuple[Path, int]:
    """Make a folder and lock it; another one if it was removed as unused before it was locked."""
    for _ in range(TRIES):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        path = folder / LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), path.stat()):
                return folder, lock
        os.close(lock)
    raise LinguaError(f"no folder can be kept in {tempfile.gettempdir()}")
