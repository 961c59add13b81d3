"""How an extra of this package is installed here: the command that works, to be copied.

A clone has its packages from its own folder: the package index may not know this version, or not
know it at all. What is installed otherwise comes from the index. Asks nobody and installs nothing.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from pathlib import Path

PACKAGE = "lingua-scheduler"
# Extras that a target of the Makefile installs, with what goes along with them.
TARGETS = {"speech": "speech"}
VENV = ".venv"


def install_command(extra: str) -> str:
    """Return the command that brings an extra to the Python that runs this."""
    clone = clone_of(Path(__file__))
    if clone is None:
        return f"{_installer()} '{PACKAGE}[{extra}]'"
    is_ours = Path(sys.prefix).resolve() == (clone / VENV).resolve()
    if extra in TARGETS and is_ours and shutil.which("make"):
        elsewhere = "" if clone == Path.cwd() else f"-C {shlex.quote(str(clone))} "
        return f"make {elsewhere}{TARGETS[extra]}"
    place = "." if clone == Path.cwd() else str(clone)
    return f"{_installer()} --editable {shlex.quote(f'{place}[{extra}]')}"


def clone_of(file: Path) -> Path | None:
    """Return the clone that a module of ours is in, None if it was installed from elsewhere."""
    root = file.resolve().parents[2]
    has_both = (root / "pyproject.toml").is_file() and (root / "Makefile").is_file()
    return root if has_both and file.resolve().parents[1].name == "src" else None


def _installer() -> str:
    python = shlex.quote(_short(sys.executable))
    # Environments that uv makes have no pip of their own.
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"


def _short(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
