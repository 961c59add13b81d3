"""The errors of the model store, all under `ModelError`.

ModelError
├── ModelUnknown        no such name in the catalogue
├── ModelNotInstalled   known, but not installed; the message names the command
├── ModelNeeded         other installed models need it
├── ModelUnsupported    cannot run on this machine
├── ModelCorrupt        a download or an installed file is not the pinned one
├── SourceUnreachable   no source provided a file
├── PreparationMissing  the Python package that prepares it is not installed
├── StoreUnreadable     the directory cannot be read
└── StoreUnwritable     the directory cannot be written
    └── NoSpace         ...because the disk is too small
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_cli.extras import install_command
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ModelError(LinguaError):
    """The root of the errors of the model store."""


class ModelUnknown(ModelError):
    """No model has this name."""

    def __init__(self, name: str, near: Sequence[str] = (), members: Sequence[str] = ()) -> None:
        self.name = name
        self.near = tuple(near)
        if members:
            super().__init__(f"{name} is not a model but a group: {' '.join(members)}")
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
    """Other installed models cannot be used without this one."""

    def __init__(self, name: str, others: Sequence[str]) -> None:
        self.name = name
        self.others = tuple(others)
        names = " ".join([*self.others, name])
        super().__init__(
            f"model {name} is needed by {', '.join(self.others)}; to remove all of them: "
            f"lingua models remove {names}"
        )


class ModelUnsupported(ModelError):
    """The model cannot run on this machine."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"model {name} cannot be used on this machine: {why}")


class ModelCorrupt(ModelError):
    """A download or an installed file is not the pinned one."""

    def __init__(self, name: str, problem: str) -> None:
        self.name = name
        self.problem = problem
        super().__init__(f"model {name}: {problem}")


class SourceUnreachable(ModelError):
    """No source provided a file; installed models are unchanged."""

    def __init__(self, what: str, tries: Sequence[tuple[str, str]], variable: str) -> None:
        self.what = what
        self.tries = tuple(tries)  # (host, reason), in the order of the attempts
        self.variable = variable
        reasons = "; ".join(f"{host}: {why}" for host, why in self.tries)
        super().__init__(
            f"cannot fetch {what} from {reasons}\n"
            f"Set {variable} to a mirror that this machine can reach, or http_proxy and "
            "https_proxy to a proxy, or copy the models from another machine (docs/models.md). "
            "Installed models keep working; the same command resumes the download."
        )


class PreparationMissing(ModelError):
    """The Python package that prepares this model is not installed."""

    def __init__(self, name: str, package: str, why: str = "it is not installed") -> None:
        self.name = name
        self.package = package
        super().__init__(
            f"model {name} is prepared with the Python package {package}, but {why}; "
            f"run: {install_command('lingua-speech', 'engines')}"
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
