"""The command that installs an extra of a package here, to be copied by the user.

In a clone the packages are installed from its folders, because the package index may not have this
version. Otherwise they are installed from the index. Nothing is installed or requested here.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from pathlib import Path

# Extras that a target of the Makefile installs, together with what they need.
TARGETS = {"lingua-speech[engines]": "speech"}
VENV = ".venv"


def install_command(package: str, extra: str) -> str:
    """Return the command that installs an extra of a package for this Python."""
    clone, wanted = clone_of(Path(__file__)), f"{package}[{extra}]"
    if clone is None:
        return f"{_installer()} '{wanted}'"
    is_ours = Path(sys.prefix).resolve() == (clone / VENV).resolve()
    if wanted in TARGETS and is_ours and shutil.which("make"):
        elsewhere = "" if clone == Path.cwd() else f"-C {shlex.quote(str(clone))} "
        return f"make {elsewhere}{TARGETS[wanted]}"
    folder = Path("packages") / package.removeprefix("lingua-")
    place = folder if clone == Path.cwd() else clone / folder
    return f"{_installer()} --editable {shlex.quote(f'{place}[{extra}]')}"


def clone_of(file: Path) -> Path | None:
    """Return the clone that contains this module, None if it was installed otherwise."""
    parents = file.resolve().parents
    if len(parents) < 5 or parents[1].name != "src" or parents[3].name != "packages":
        return None
    root = parents[4]
    return root if (root / "Makefile").is_file() else None


def _installer() -> str:
    python = shlex.quote(_short(sys.executable))
    # Environments created by uv have no pip.
    if importlib.util.find_spec("pip") is None and shutil.which("uv"):
        return f"uv pip install --python {python}"
    return f"{python} -m pip install"


def _short(path: str) -> str:
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path
