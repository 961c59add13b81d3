"""A tree with the files of one Apertium mode, for tests."""

from __future__ import annotations

from pathlib import Path

from lingua_speech.engines.apertium.modes import ApertiumTree

MODE = (
    "lt-proc '/usr/share/apertium/p/a.bin' | apertium-tagger -g $2 '/usr/share/apertium/p/b.bin'"
    " | lrx-proc -m '/usr/share/apertium/p/c.bin' | apertium-transfer -b '/usr/share/apertium/p/d'"
    " | lt-proc $1 '/usr/share/apertium/p/e.bin' | lt-proc -p '/usr/share/apertium/p/f.bin'"
)


def apertium_tree(root: Path) -> ApertiumTree:
    """Make the folders, empty data files and mode files of a tree."""
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/share/apertium/modes").mkdir(parents=True)
    (root / "usr/share/apertium/p").mkdir()
    for name in ("a.bin", "b.bin", "c.bin", "d", "e.bin", "f.bin"):
        (root / "usr/share/apertium/p" / name).touch()
    for name in ("lt-proc", "apertium-tagger", "lrx-proc", "apertium-transfer"):
        (root / "usr/bin" / name).touch(mode=0o755)
    (root / "usr/share/apertium/modes/eng-spa.mode").write_text(MODE)
    (root / "usr/share/apertium/modes/eng-cat_valencia.mode").write_text(MODE)
    return ApertiumTree(root)
