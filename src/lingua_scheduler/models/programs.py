"""How to start the programs of the model `apertium` from its folder.

The programs lie in `root/usr/bin` and their libraries in `root/usr/lib/<machine>-linux-gnu`; the C
and C++ libraries are the system's. A mode file of a pair names its data as `/usr/share/apertium/…`:
put the pair's `root` before such a path. Used by the Apertium engine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lingua_scheduler.models.store import Store


def apertium_environment(store: Store) -> dict[str, str]:
    """Return PATH and LD_LIBRARY_PATH with the installed programs first."""
    usr = store.path("apertium") / "root" / "usr"
    libraries = [str(path) for path in sorted((usr / "lib").glob("*-linux-gnu*"))]
    return {
        "PATH": _before("PATH", [str(usr / "bin")]),
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", libraries),
    }


def _before(variable: str, folders: list[str]) -> str:
    """Return the variable's folders after these, empty ones (the current folder) left out."""
    now = os.environ.get(variable, "")
    return os.pathsep.join([*folders, *(folder for folder in now.split(os.pathsep) if folder)])
