"""Every error of the model store, in one tree under `ModelError`.

ModelError
├── ModelUnknown        no such name in the catalogue
├── ModelNotInstalled   known, but not here; the message says what to type
├── ModelNeeded         others that are installed need it
├── ModelUnsupported    cannot run on this machine
├── ModelCorrupt        what came, or what lies here, is not what was pinned
├── SourceUnreachable   no source would give a file
├── PreparationMissing  the Python package that prepares it is not installed
├── StoreUnreadable     the directory cannot be read
└── StoreUnwritable     the directory cannot be written
    └── NoSpace         ...because the disk is too small
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.errors import LinguaError
from lingua_scheduler.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ModelError(LinguaError):
    """Root of the errors of the model store."""


class ModelUnknown(ModelError):
    """No model has this name."""

    def __init__(self, name: str, near: Sequence[str] = (), members: Sequence[str] = ()) -> None:
        self.name = name
        self.near = tuple(near)
        if members:
            super().__init__(f"no model: {name} is a group: {' '.join(members)}")
            return
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        super().__init__(f"no model is called {name[:64]!r}{hint} (see: lingua models list)")


class ModelNotInstalled(ModelError):
    """The model is known, but not installed in this store."""

    def __init__(self, name: str, root: Path) -> None:
        self.name = name
        self.root = root
        super().__init__(
            f"model {name} is not installed in {root}; run: lingua models install {name}"
        )


class ModelNeeded(ModelError):
    """Other models that are installed cannot be used without this one."""

    def __init__(self, name: str, others: Sequence[str]) -> None:
        self.name = name
        self.others = tuple(others)
        names = " ".join([*self.others, name])
        super().__init__(
            f"model {name} is needed by {', '.join(self.others)}; to remove all of them: "
            f"lingua models remove {names}"
        )


class ModelUnsupported(ModelError):
    """The model has nothing that could run on this machine."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"model {name} cannot be used on this machine: {why}")


class ModelCorrupt(ModelError):
    """A download or an installed file is not what was pinned."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"model {name}: {problem}")


class SourceUnreachable(ModelError):
    """None of a file's sources would give it; what is installed is untouched."""

    def __init__(self, what: str, tries: Sequence[tuple[str, str]], variable: str) -> None:
        self.what = what
        self.tries = tuple(tries)  # (host, why) in the order tried
        self.variable = variable
        reasons = "; ".join(f"{host}: {why}" for host, why in self.tries)
        super().__init__(
            f"cannot fetch {what} from {reasons}\n"
            f"Set {variable} to a mirror that this machine can reach, or http_proxy and "
            "https_proxy to a proxy, or copy the models from another machine (docs/models.md). "
            "Models that are installed keep working; the same command goes on where it stopped."
        )


class PreparationMissing(ModelError):
    """The Python package that prepares this model is not installed."""

    def __init__(self, name: str, package: str, why: str = "it is not installed") -> None:
        self.name = name
        self.package = package
        super().__init__(
            f"model {name} is prepared with the Python package {package}, but {why}; "
            f"run: {install_command('speech')}"
        )


class StoreUnreadable(ModelError):
    """The directory of the models cannot be read."""

    def __init__(self, root: Path, why: str) -> None:
        self.root = root
        self.why = why
        super().__init__(f"cannot read models in {root}: {why} (LINGUA_MODELS sets the directory)")


class StoreUnwritable(ModelError):
    """The directory of the models cannot be written."""

    def __init__(self, root: Path, why: str) -> None:
        self.root = root
        self.why = why
        super().__init__(f"cannot write models to {root}: {why} (LINGUA_MODELS sets the directory)")


class NoSpace(StoreUnwritable):
    """The disk has too little room for the model."""
