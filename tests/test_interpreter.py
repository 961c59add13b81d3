"""Which interpreter `make` takes: the fastest that works, of all that PATH has under some names."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from workspace import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

SCRIPT = ROOT / "scripts" / "interpreter.sh"
# Makes each new object several times as expensive.
SLOW = "PYTHONTRACEMALLOC=25 "


def candidate(folder: Path, name: str, before: str = "") -> Path:
    """A program that is this interpreter, after some words of the shell."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f'#!/bin/sh\n{before}exec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    return program


def chosen(*names: str | Path, path: tuple[Path, ...] = ()) -> tuple[int, str]:
    """The exit code of the script, and what it printed."""
    folders = os.pathsep.join([*map(str, path), "/usr/bin", "/bin"])
    done = subprocess.run(
        ["/bin/sh", SCRIPT, *names],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": folders},
    )
    return done.returncode, done.stdout.strip()


def test_the_fastest_is_taken_whatever_its_place(tmp_path: Path) -> None:
    slow, fast = candidate(tmp_path, "slow", f"export {SLOW}\n"), candidate(tmp_path, "fast")
    assert chosen(slow, fast) == (0, str(fast))
    assert chosen(fast, slow) == (0, str(fast))


def test_a_name_that_hides_a_faster_one_of_the_same_name_is_not_preferred(tmp_path: Path) -> None:
    hidden, hides = tmp_path / "with a space", tmp_path / "first"
    candidate(hides, "python-for-test", f"export {SLOW}\n")
    fast = candidate(hidden, "python-for-test")
    assert chosen("python-for-test", path=(hides, hidden)) == (0, str(fast))


def test_what_does_not_work_is_passed_over(tmp_path: Path) -> None:
    stub = candidate(tmp_path, "stub", "exit 127\n")
    old = candidate(tmp_path, "old", "echo SyntaxError >&2; exit 1\n")
    works = candidate(tmp_path, "works", f"export {SLOW}\n")
    assert chosen(stub, "no-such-name", tmp_path / "absent", old, works) == (0, str(works))


def test_that_none_works_is_told(tmp_path: Path) -> None:
    stub = candidate(tmp_path, "stub", "exit 127\n")
    assert chosen(stub, "no-such-name") == (1, "")


def test_the_same_program_is_tried_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = candidate(tmp_path, "python-for-test", f"echo tried >> '{log}'\n")
    (tmp_path / "again").symlink_to(program)
    assert chosen(program, tmp_path / "again") == (0, str(program))
    assert log.read_text() == "tried\n"
