"""Schedulers with a fault planted on purpose: the harness must find each of them.

`python -m lingua_bench.chaos.planted FAULT serve ...` is `lingua serve` with one place of the code
changed before it starts. The places are in `planted_faults.py`. A change that does not find its
place ends the process at once, so that no run passes because its fault was never planted.
"""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos.planted_faults import PLANTED_FAULTS, PlantedFault
from lingua_scheduler.state import scripts
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


# Where modules of Python are; everything else is a file of Lua.
PACKAGE: Final = "lingua_scheduler."


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
        text = self._read(folder, path)
        return self.changed(text) if path == self._plant.include else text

    def changed(self, text: str) -> str:
        """Return a text with the fault in it."""
        fault, count = self._plant, text.count(self._plant.before)
        if count != 1:
            raise NotPlanted(f"{fault.include} has {count} times: {fault.before.strip()}")
        self.is_done = True
        return text.replace(fault.before, fault.after)


def plant(name: str) -> None:
    """Plant a fault into this process; raises `NotPlanted`."""
    planter = Planter(PLANTED_FAULTS[name])
    if PLANTED_FAULTS[name].include.startswith(PACKAGE):
        plant_module(planter, PLANTED_FAULTS[name].include)
        return
    scripts.read_include = planter.read_include
    scripts.load_scripts.cache_clear()
    scripts.load_scripts()
    if not planter.is_done:
        raise NotPlanted(f"no script includes {PLANTED_FAULTS[name].include}")


def plant_module(planter: Planter, name: str) -> None:
    """Execute a module again with the fault in it, before others take something from it."""
    module = importlib.import_module(name)
    changed = planter.changed(inspect.getsource(module))
    exec(compile(changed, str(module.__file__), "exec"), module.__dict__)  # noqa: S102 our own code


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    runpy.run_module("lingua_cli", run_name="__main__")
