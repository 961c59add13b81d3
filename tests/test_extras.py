"""The command that brings an extra to this very Python: looked at in real folders."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from lingua_scheduler import extras

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]
ASK = "from lingua_scheduler.extras import install_command; print(install_command('{}'))"


def asked(python: Path, source: Path, cwd: Path, extra: str = "speech") -> str:
    """Return what a Python with this source says, started in a folder."""
    environ = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [python, "-c", ASK.format(extra)],
        cwd=cwd, env=environ, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return done.stdout.strip()


def clone_at(folder: Path) -> Path:
    """Make what a clone has, of this tree's own files."""
    package = folder / "src" / "lingua_scheduler"
    package.mkdir(parents=True)
    for name in ("__init__.py", "extras.py"):
        shutil.copy(ROOT / "src" / "lingua_scheduler" / name, package)
    for name in ("pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, folder)
    return folder


def venv_at(folder: Path) -> Path:
    """Make an environment without packages; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    return folder / "bin" / "python"


def test_in_a_clone_with_its_own_environment_make_does_it(tmp_path: Path) -> None:
    clone = clone_at(tmp_path / "a clone")
    python = venv_at(clone / ".venv")
    assert asked(python, clone / "src", clone) == "make speech"
    assert asked(python, clone / "src", tmp_path) == f"make -C '{clone}' speech"
    # Make knows no target for this one.
    told = asked(python, clone / "src", clone, "piper")
    assert told.endswith("pip install --editable '.[piper]'") or told.startswith("uv pip")


def test_the_target_that_is_named_is_one_of_the_makefile() -> None:
    made = (ROOT / "Makefile").read_text()
    for extra, target in extras.TARGETS.items():
        assert f"\n{target}: $(VENV)/.speaking" in made
        assert f"'.[{extra}]'" in made


def test_in_a_clone_with_another_environment_pip_installs_the_clone(tmp_path: Path) -> None:
    clone = clone_at(tmp_path / "clone")
    told = asked(Path(sys.executable), clone / "src", tmp_path)
    assert told == f"{sys.executable} -m pip install --editable '{clone}[speech]'"


def test_what_was_installed_from_an_index_gets_it_from_there(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "lingua_scheduler"
    package.mkdir(parents=True)
    for name in ("__init__.py", "extras.py"):
        shutil.copy(ROOT / "src" / "lingua_scheduler" / name, package)
    told = asked(Path(sys.executable), tmp_path / "lib", tmp_path)
    assert told == f"{sys.executable} -m pip install 'lingua-scheduler[speech]'"


WITHOUT = """
import sys
from pathlib import Path
# As Python marks what must not be imported: the same as what is not there.
sys.modules.update(dict.fromkeys(("numpy", "onnx", "onnxruntime", "espeakng_loader")))
from lingua_scheduler.cli.main import main
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
    environ = {
        **os.environ, "PYTHONPATH": str(ROOT / "src"), "LINGUA_MODELS": str(tmp_path / "models"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *words],
        cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode in {1, 2}
    command = f"{sys.executable} -m pip install --editable '{ROOT}[speech]'"
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.endswith((f"run: {command}\n", f"run: make -C {ROOT} speech\n"))


def wav_of_silence() -> bytes:
    """Return a recording in which nothing is said."""
    kept = io.BytesIO()
    with wave.open(kept, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(3200))
    return kept.getvalue()
