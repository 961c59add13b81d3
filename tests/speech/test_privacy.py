"""Engines tell nobody that they are used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.speech

LOADS = "import lingua_scheduler.speech.host.child, onnxruntime"


def marks_of(folder: Path) -> list[str]:
    """Return what a worker that loads the library leaves in its folder for temporary files."""
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    for name in ("ORT_DISABLE_TELEMETRY", "CI"):
        environment.pop(name, None)
    subprocess.run([sys.executable, "-c", LOADS], env=environment, check=True)
    return sorted(path.name for path in folder.iterdir())


def test_the_library_below_the_engines_does_not_report_to_its_maker(tmp_path: Path) -> None:
    # Left to itself it makes a name for this machine, to report by (`.ses`), but not where CI is
    # set.
    assert marks_of(tmp_path / "marks") == []
