"""Engines tell nobody that they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.speech

LOADS = "import {module}; import onnxruntime; print(onnxruntime.get_available_providers())"


def marks_of(module: str, folder: Path) -> list[str]:
    """Return what a process that loads the library leaves in its folder for temporary files."""
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run(
        [sys.executable, "-c", LOADS.format(module=module)], env=environment, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return sorted(path.name for path in folder.iterdir())


def test_the_library_below_the_engines_does_not_report_to_its_maker(tmp_path: Path) -> None:
    # Left to itself it makes a name for this machine, to report by; `sys` stands for nothing.
    assert marks_of("sys", tmp_path / "without us") == [".ses"]
    assert marks_of("lingua_scheduler.speech.host.child", tmp_path / "with us") == []
