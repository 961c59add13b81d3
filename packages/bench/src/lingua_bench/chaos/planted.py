"""Schedulers with a fault planted on purpose: the harness must find each of them.

`python -m lingua_bench.chaos.planted FAULT serve ...` is `lingua serve` with one place of the code
changed before it starts. The places are in `planted_faults.py`. A change that does not find its
place ends the process at once, so that no run passes because its fault was never planted.
"""

from __future__ import annotations

import runpy
import sys
from typing import TYPE_CHECKING

from lingua_bench.chaos.planted_faults import PLANTED_FAULTS, PlantedFault
from lingua_scheduler.state import scripts
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


class NotPlanted(LinguaError):
    """The code at the place of a fault has changed: `PLANTED_FAULTS` must be updated."""


class Planter:
    """Changes the text of Lua files while they are loaded, and knows what it has changed."""

    def __init__(self, plant: PlantedFault) -> None:
        self._plant = plant
        self._read = scripts.read_include
        self.is_done = False

    def read_include(self, folder: Traversable, path: str) -> str:
        """Return the text of an include, with the fault if it belongs there."""
        text, fault = self._read(folder, path), self._plant
        if path != fault.include:
            return text
        if text.count(fault.before) != 1:
            raise NotPlanted(f"{path} has {text.count(fault.before)} times: {fault.before.strip()}")
        self.is_done = True
        return text.replace(fault.before, fault.after)


def plant(name: str) -> None:
    """Plant a fault into this process; raises `NotPlanted`."""
    planter = Planter(PLANTED_FAULTS[name])
    scripts.read_include = planter.read_include
    scripts.load_scripts.cache_clear()
    scripts.load_scripts()
    if not planter.is_done:
        raise NotPlanted(f"no script includes {PLANTED_FAULTS[name].include}")


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    runpy.run_module("lingua_cli", run_name="__main__")
