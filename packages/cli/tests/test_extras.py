"""The command that installs an extra for this Python, checked in real folders."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from lingua_cli import extras
from workspace import ROOT, SOURCES

pytestmark = pytest.mark.unit

ASK = "from lingua_cli.extras import install_command; print(install_command('lingua-speech', '{}'))"
FILES = ("__init__.py", "extras.py")


def asked(python: Path, source: Path, cwd: Path, extra: str = "engines") -> str:
    """Return the output of Python with this source, started in a folder."""
    environ = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [python, "-c", ASK.format(extra)],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def clone_at(folder: Path) -> Path:
    """Make a clone from this tree's own files."""
    package = folder / "packages" / "cli" / "src" / "lingua_cli"
    package.mkdir(parents=True)
    for name in FILES:
        shutil.copy(SOURCES["lingua_cli"] / name, package)
    shutil.copy(ROOT / "Makefile", folder)
    return folder


def source_of(clone: Path) -> Path:
    """Return the folder of the command's modules in a clone."""
    return clone / "packages" / "cli" / "src"


def venv_at(folder: Path) -> Path:
    """Make an environment without packages; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return folder / "bin" / "python"


def test_in_a_clone_with_its_own_environment_make_does_it(tmp_path: Path) -> None:
    clone = clone_at(tmp_path / "a clone")
    python = venv_at(clone / ".venv")
    assert asked(python, source_of(clone), clone) == "make speech"
    assert asked(python, source_of(clone), tmp_path) == f"make -C '{clone}' speech"
    # The Makefile has no target for this one.
    told = asked(python, source_of(clone), clone, "piper")
    assert told.endswith("pip install --editable 'packages/speech[piper]'") or told.startswith(
        "uv pip"
    )


def test_the_target_that_is_named_is_one_of_the_makefile() -> None:
    made = (ROOT / "Makefile").read_text()
    for extra, target in extras.TARGETS.items():
        assert f"\n{target}: $(VENV)/.speaking" in made
        folder, _, name = extra.removeprefix("lingua-").partition("[")
        assert f"--editable './packages/{folder}[{name}'" in made


def test_in_a_clone_with_another_environment_pip_installs_the_clone(tmp_path: Path) -> None:
    clone = clone_at(tmp_path / "clone")
    told = asked(Path(sys.executable), source_of(clone), tmp_path)
    assert told == f"{sys.executable} -m pip install --editable '{clone}/packages/speech[engines]'"


def test_what_was_installed_from_an_index_gets_it_from_there(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "lingua_cli"
    package.mkdir(parents=True)
    for name in FILES:
        shutil.copy(SOURCES["lingua_cli"] / name, package)
    told = asked(Path(sys.executable), tmp_path / "lib", tmp_path)
    assert told == f"{sys.executable} -m pip install 'lingua-speech[engines]'"


WITHOUT = """
import sys
from pathlib import Path
# Python treats a module that is None here as not installed.
sys.modules.update(dict.fromkeys(("numpy", "onnx", "onnxruntime", "espeakng_loader")))
from lingua_cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["models", "install", "whisper-base"],
        ["node", "--engines", "default"],
        ["translate", "talk.wav", "--from", "en", "--to", "es", "--private"],
        ["demo"],
    ],
    ids=" ".join,
)
def test_every_command_that_lacks_the_extra_says_the_command_that_works(
    words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "talk.wav").write_bytes(wav_of_silence())
    environ = {**os.environ, "LINGUA_MODELS": str(tmp_path / "models")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in {1, 2}
    command = f"{sys.executable} -m pip install --editable '{ROOT}/packages/speech[engines]'"
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith((f"run: {command}\n", f"run: make -C {ROOT} speech\n"))


def wav_of_silence() -> bytes:
    """Return a recording without speech."""
    kept = io.BytesIO()
    with wave.open(kept, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(3200))
    return kept.getvalue()
