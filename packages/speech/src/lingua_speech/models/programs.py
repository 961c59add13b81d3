"""The environment in which the programs of the model `apertium` run from its folder.

The programs are in `root/usr/bin`, their libraries in `root/usr/lib/<machine>-linux-gnu`; the C and
C++ libraries are the system's. A mode file of a pair names its data as `/usr/share/apertium/…`:
prefix such a path with the pair's `root`. Used by the Apertium engine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_speech.models.store import ModelStore


def apertium_environment(store: ModelStore) -> dict[str, str]:
    """Return PATH and LD_LIBRARY_PATH with the installed programs first."""
    usr = store.path("apertium") / "root" / "usr"
    libraries = [str(path) for path in sorted((usr / "lib").glob("*-linux-gnu*"))]
    return {
        "PATH": _before("PATH", [str(usr / "bin")]),
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", libraries),
    }


def _before(variable: str, folders: list[str]) -> str:
    """Return these folders, then those of the variable, without empty ones (the current folder)."""
    now = os.environ.get(variable, "")
    return os.pathsep.join([*folders, *(folder for folder in now.split(os.pathsep) if folder)])
