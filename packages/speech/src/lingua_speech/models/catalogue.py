"""The catalogue of installable models, read from `catalogue.toml` and checked.

The file lists for every model its purpose, its licence, the exact downloads with sizes and SHA-256,
and which files of the archives go where. A new model needs only a table there. This module does not
access networks or disks; `store` does.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import platform
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from lingua_speech.models.errors import ModelUnknown, ModelUnsupported

if TYPE_CHECKING:
    from collections.abc import Iterable

# Python's name of a machine -> Debian's.
ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class DownloadSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base addresses, tried in order; one environment variable replaces all of them."""

    urls: tuple[str, ...]
    variable: str
    packager: str = ""  # the machine's own package manager, tried last: apt-get, npm or pip

    def addresses(self) -> tuple[str, ...]:
        """Return the mirrors of the environment, else the addresses of the catalogue."""
        return tuple(os.environ.get(self.variable, "").split()) or self.urls


class Download(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One pinned archive."""

    source: str
    path: str
    size: int
    sha256: str
    architecture: str = ""  # only for this architecture; empty: for all

    @property
    def file(self) -> str:
        """Return the name of the file."""
        return self.path.rsplit("/", 1)[-1]


class InnerZip(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A zip file inside the archives, perhaps in pieces, from which the files are taken."""

    pattern: str  # shell pattern of the paths of its pieces, one in each archive
    skip_bytes: int = 0  # of the first piece, which begins inside another file


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One installable model."""

    name: str = ""  # the key of its table
    purpose: str
    licence: str  # as in SPDX
    credit: str  # the authors, in one sentence
    disk_mb: int  # space needed unpacked; also the bound of unpacking
    kept_mb: int = 0  # space after the preparation, if that removes files
    downloads: tuple[Download, ...]
    take: dict[str, str]  # file or `folder/` of the archives -> file or `folder/` of the model
    inner: InnerZip | None = None  # the zip file to take from, if any
    pinned: dict[str, str] = {}  # files of the model -> SHA-256 published upstream
    pinned_raw: dict[str, str] = {}  # the same for files that the preparation removes
    requires: tuple[str, ...] = ()
    prepare: str = ""  # a step of `prepare.STEPS`
    glibc: str = ""  # the oldest glibc that its programs support

    @property
    def fingerprint(self) -> str:
        """Return a hash that changes when the content of this model would change."""
        facts = [(d.path, d.sha256) for d in self.downloads]
        described: list[object] = [facts, sorted(self.take.items()), self.prepare]
        if self.inner:
            described.append(self.inner)
        return hashlib.sha256(msgspec.json.encode(described)).hexdigest()

    @property
    def kept_bytes(self) -> int:
        """Return the approximate size of the installed model."""
        return (self.kept_mb or self.disk_mb) * 1_000_000

    def downloads_here(self) -> tuple[Download, ...]:
        """Return the downloads for this machine, or raise `ModelUnsupported`."""
        machine = platform.machine().lower()
        wanted = ("", ARCHITECTURES.get(machine, machine))
        here = tuple(d for d in self.downloads if d.architecture in wanted)
        bound = {d.architecture for d in self.downloads} - {""}
        if bound and not bound & set(wanted):
            raise ModelUnsupported(
                self.name, f"not available for {machine}, only for {sorted(bound)}"
            )
        if self.glibc and not _has_glibc(self.glibc):
            raise ModelUnsupported(self.name, f"it needs glibc {self.glibc} or newer")
        return here

    def download_bytes(self) -> int:
        """Return the size of the downloads for this machine, 0 if the model is not supported."""
        try:
            return sum(download.size for download in self.downloads_here())
        except ModelUnsupported:
            return 0


class Catalogue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All sources, models and groups."""

    sources: dict[str, DownloadSource]
    groups: dict[str, tuple[str, ...]]
    models: dict[str, Model]

    def model(self, name: str) -> Model:
        """Return the model of this name or raise `ModelUnknown` with similar names."""
        if name in self.models:
            return self.models[name]
        known = [*self.models, *self.groups]
        near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
        raise ModelUnknown(name, near, self.groups.get(name, ()))

    def expand(self, names: Iterable[str]) -> tuple[Model, ...]:
        """Return the models of these names and groups, required ones first, each once."""
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
    """Read and check a catalogue; without a text, the one of this package."""
    if text is None:
        text = resources.files(__package__).joinpath("catalogue.toml").read_bytes()
    raw = msgspec.toml.decode(text, type=Catalogue)
    models = {k: msgspec.structs.replace(m, name=k) for k, m in raw.models.items()}
    catalogue = msgspec.structs.replace(raw, models=models)
    _check(catalogue)
    return catalogue


def _check(catalogue: Catalogue) -> None:
    """Raise `ValueError` for a catalogue with an unknown reference."""
    names = set(catalogue.models)
    for group, members in catalogue.groups.items():
        if group in names or not names.issuperset(members):
            raise ValueError(f"group {group}: a member is unknown, or a model has its name")
    for model in catalogue.models.values():
        if not names.issuperset(model.requires):
            raise ValueError(f"{model.name}: requires a model that is not in the catalogue")
        if not model.downloads or not model.take:
            raise ValueError(f"{model.name}: nothing to download or to take")
        for download in model.downloads:
            if download.source not in catalogue.sources or len(download.sha256) != 64:
                raise ValueError(f"{model.name}: {download.path}: no such source, or no SHA-256")


def _has_glibc(oldest: str) -> bool:
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:  # another C library, or not Linux
        return False
    have = name.removeprefix("glibc ").split(".")
    return [int(part) for part in have] >= [int(part) for part in oldest.split(".")]
