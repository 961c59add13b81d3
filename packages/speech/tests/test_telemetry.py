"""Engines send no telemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.speech

LOADS = "import lingua_speech.host.child, onnxruntime"


def marks_of(folder: Path) -> list[str]:
    """Return the temporary files that a worker leaves after loading the library."""
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    for name in ("ORT_DISABLE_TELEMETRY", "CI"):
        environment.pop(name, None)
    subprocess.run([sys.executable, "-c", LOADS], env=environment, check=True)
    return sorted(path.name for path in folder.iterdir())


def test_the_library_below_the_engines_does_not_report_to_its_maker(tmp_path: Path) -> None:
    # Without the setting, the library stores an id of this machine (`.ses`), unless CI is set.
    assert marks_of(tmp_path / "marks") == []
