"""Where things are in this repository, for tests that read its files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The folder of each package, by the name it is imported under.
PACKAGES = {f"lingua_{folder.name}": folder for folder in sorted((ROOT / "packages").iterdir())}
# Where the modules of each are.
SOURCES = {name: folder / "src" / name for name, folder in PACKAGES.items()}
SCHEDULER = SOURCES["lingua_scheduler"]
