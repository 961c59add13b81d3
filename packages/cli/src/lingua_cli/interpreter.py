"""How this interpreter was built, for whoever compares figures.

The same code costs about a fifth more CPU in an interpreter that was built without profile-guided
optimisation (PGO) and link-time optimisation (LTO), as version managers often build it. Figures of
two interpreters must not be compared without saying so.
"""

from __future__ import annotations

import platform
import sysconfig
from dataclasses import dataclass

PGO_OPTION, LTO_OPTION = "--enable-optimizations", "--with-lto"


@dataclass(frozen=True, slots=True)
class InterpreterBuild:
    """The facts about an interpreter that change what code costs."""

    name: str
    machine: str
    compiler: str
    # What the interpreter says about its own build: `PGO`, `LTO`, both or neither. Empty, too, for
    # one that was optimised in another way, as the packages of Debian are, which do not say so.
    optimisations: tuple[str, ...]

    def __str__(self) -> str:
        declared = " and ".join(self.optimisations)
        built = f"built with {declared}" if declared else "no PGO or LTO declared"
        return f"{self.name}, {self.machine}, {self.compiler}, {built}"


def this_interpreter() -> InterpreterBuild:
    """Return the build of the interpreter that runs this code."""
    configured = sysconfig.get_config_var("CONFIG_ARGS") or ""
    flags = " ".join(
        str(sysconfig.get_config_var(name) or "") for name in ("PY_CORE_CFLAGS", "PY_CORE_LDFLAGS")
    )
    return InterpreterBuild(
        name=f"{platform.python_implementation()} {platform.python_version()}",
        machine=f"{platform.system()} {platform.machine()}",
        compiler=platform.python_compiler(),
        optimisations=optimisations_in(configured, flags),
    )


def optimisations_in(configured: str, flags: str) -> tuple[str, ...]:
    """Return the optimisations in the options of `configure` and the flags of the compiler."""
    found = {
        "PGO": PGO_OPTION in configured or "-fprofile-use" in flags,
        "LTO": is_lto(configured) or "-flto" in flags,
    }
    return tuple(name for name, is_there in found.items() if is_there)


def is_lto(configured: str) -> bool:
    """Tell whether link-time optimisation was configured: `--with-lto` or `--with-lto=thin`."""
    words = (word.strip("'") for word in configured.split())
    return any(
        word == LTO_OPTION or (word.startswith(f"{LTO_OPTION}=") and not word.endswith("=no"))
        for word in words
    )
