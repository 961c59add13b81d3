"""The allocator of the private server: the system's jemalloc if there is one, for it alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lingua_scheduler.state.allocator import LIBRARY, find_allocator, with_allocator

pytestmark = pytest.mark.unit


def test_the_first_folder_that_has_the_library_is_taken(tmp_path: Path) -> None:
    empty, first, second = (tmp_path / name for name in ("empty", "first", "second"))
    for folder in (first, second):
        folder.mkdir()
        (folder / LIBRARY).touch()
    assert find_allocator(map(str, (empty, first, second))) == first / LIBRARY
    assert find_allocator([str(empty)]) is None


def test_the_environment_of_the_server_names_it_and_keeps_the_rest() -> None:
    library = Path("/usr/lib", LIBRARY)
    assert with_allocator({"A": "b"}, library) == {"A": "b", "LD_PRELOAD": str(library)}
    assert with_allocator({"A": "b"}, None) == {"A": "b"}


def test_a_library_that_somebody_else_preloads_stays() -> None:
    chosen = {"LD_PRELOAD": "/opt/mine.so"}
    assert with_allocator(chosen, Path("/usr/lib", LIBRARY)) == chosen


def test_a_library_that_cannot_be_loaded_does_not_stop_the_program(tmp_path: Path) -> None:
    broken = tmp_path / LIBRARY
    broken.write_bytes(b"not a library")
    echo = shutil.which("echo")
    assert echo is not None
    done = subprocess.run(
        [echo, sys.platform],
        env=with_allocator(os.environ, broken),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, sys.platform)
