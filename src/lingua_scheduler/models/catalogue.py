"""What can be installed: the catalogue, read from `catalogue.toml` and checked.

The file says for every model what it is for, its licence, the exact files to download with their
sizes and SHA-256, and which files of the archives go where. Adding a model is adding a table there.
This module knows nothing of networks or disks; `store` does the work.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import platform
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.models.errors import ModelUnknown, ModelUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

# What Debian calls the machines that Python names so.
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where files come from: addresses tried in order, all replaced by one variable."""

    urls: tuple[str, ...]
    variable: str
    packager: str = ""  # the machine's own program that is asked last: apt-get, npm or pip

    def addresses(self) -> tuple[str, ...]:
        """Return the mirrors the environment names, else the addresses of the catalogue."""
        return tuple(os.environ.get(self.variable, "").split()) or self.urls


class Download(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One archive, pinned."""

    source: str
    path: str
    size: int
    sha256: str
    architecture: str = ""  # only for this machine; empty: for all

    @property
    def file(self) -> str:
        """Return the file's own name."""
        return self.path.rsplit("/", 1)[-1]


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A zip file that lies in the archives, perhaps in pieces: what is taken is in that."""

    pattern: str  # its pieces, one in each archive, as a shell would match their paths
    skip_bytes: int = 0  # of the first piece, which begins in the midst of another file


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One thing that can be installed."""

    name: str = ""  # the table's key
    purpose: str
    licence: str  # short, as SPDX names it
    credit: str  # whose work it is, in a sentence
    disk_mb: int  # what it needs unpacked; also the bound of unpacking
    kept_mb: int = 0  # what is left of that after the preparation, if it uses some up
    downloads: tuple[Download, ...]
    take: dict[str, str]  # file or `folder/` of the archives -> file or `folder/` of the model
    inner: Inner | None = None  # take from the zip file within
    pinned: dict[str, str] = {}  # files of the model whose SHA-256 is known from upstream
    pinned_raw: dict[str, str] = {}  # the same of files that the preparation uses up
    requires: tuple[str, ...] = ()
    prepare: str = ""  # a step of `prepare.STEPS`
    glibc: str = ""  # the oldest C library the programs start with

    @property
    def fingerprint(self) -> str:
        """Return what changes when this model's content would."""
        facts = [(d.path, d.sha256) for d in self.downloads]
        described: list[object] = [facts, sorted(self.take.items()), self.prepare]
        if self.inner:
            described.append(self.inner)
        return hashlib.sha256(msgspec.json.encode(described)).hexdigest()

    @property
    def kept_bytes(self) -> int:
        """Return about how much an installed one takes."""
        return (self.kept_mb or self.disk_mb) * 1_000_000

    def downloads_here(self) -> tuple[Download, ...]:
        """Return the downloads for this machine, or raise `ModelUnsupported`."""
        machine = platform.machine().lower()
        wanted = ("", ARCHITECTURES.get(machine, machine))
        here = tuple(d for d in self.downloads if d.architecture in wanted)
        bound = {d.architecture for d in self.downloads} - {""}
        if bound and not bound & set(wanted):
            raise ModelUnsupported(self.name, f"there is none for {machine}, only {sorted(bound)}")
        if self.glibc and not _has_glibc(self.glibc):
            raise ModelUnsupported(self.name, f"it needs glibc {self.glibc} or newer")
        return here

    def download_bytes(self) -> int:
        """Return how much an install on this machine fetches, 0 where it cannot be used."""
        try:
            return sum(download.size for download in self.downloads_here())
        except ModelUnsupported:
            return 0


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sources, models and groups."""

    sources: dict[str, Source]
    groups: dict[str, tuple[str, ...]]
    models: dict[str, Model]

    def model(self, name: str) -> Model:
        """Return the model of this name or raise `ModelUnknown` with what is near."""
        if name in self.models:
            return self.models[name]
        known = [*self.models, *self.groups]
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
        raise ModelUnknown(name, near, self.groups.get(name, ()))

    def expand(self, names: Iterable[str]) -> tuple[Model, ...]:
        """Return the models these names and groups mean, what they require first, each once."""
        found: dict[str, Model] = {}
        for name in names:
            for member in self.groups.get(name, (name,)):
                self._add(self.model(member), found)
        return tuple(found.values())

    def _add(self, model: Model, found: dict[str, Model]) -> None:
        for name in model.requires:
            self._add(self.model(name), found)
        found.setdefault(model.name, model)


def load_catalogue(text: bytes | None = None) -> Catalogue:
    """Read and check a catalogue; without text the one of this package."""
    if text is None:
        text = resources.files(__package__).joinpath("catalogue.toml").read_bytes()
    raw = msgspec.toml.decode(text, type=Catalogue)
    models = {k: msgspec.structs.replace(m, name=k) for k, m in raw.models.items()}
    catalogue = msgspec.structs.replace(raw, models=models)
    _check(catalogue)
    return catalogue


def _check(catalogue: Catalogue) -> None:
    """Raise `ValueError` for a catalogue that refers to what it does not have."""
    names = set(catalogue.models)
    for group, members in catalogue.groups.items():
        if group in names or not names.issuperset(members):
            raise ValueError(f"group {group}: a member is unknown, or a model has its name")
    for model in catalogue.models.values():
        if not names.issuperset(model.requires):
            raise ValueError(f"{model.name}: requires what is not in the catalogue")
        if not model.downloads or not model.take:
            raise ValueError(f"{model.name}: nothing to download or to take")
        for download in model.downloads:
            if download.source not in catalogue.sources or len(download.sha256) != 64:
                raise ValueError(f"{model.name}: {download.path}: no such source, or no SHA-256")


def _has_glibc(oldest: str) -> bool:
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:  # another C library, or no Linux
        return False
    have = name.removeprefix("glibc ").split(".")
    return [int(part) for part in have] >= [int(part) for part in oldest.split(".")]
