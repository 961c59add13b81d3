"""The model store: one folder per model, installed completely or not at all.

    ROOT/NAME/            an installed model with its manifest.json
    ROOT/.partial/NAME/   a running or interrupted install: downloads (resumed) and the tree so far
    ROOT/.locks/NAME      held by the process that installs or removes NAME

The folder appears by one rename after every hash was verified, so an existing folder can be used.
The store is also the cache: another checkout with the same directory needs no network.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from lingua_speech.models import prepare
from lingua_speech.models.archives import Unpacker, kind_of, remove_tree
from lingua_speech.models.catalogue import Catalogue, Download, Model, load_catalogue
from lingua_speech.models.errors import (
    ModelCorrupt,
    ModelError,
    ModelNeeded,
    ModelNotInstalled,
    NoSpace,
    StoreUnreadable,
    StoreUnwritable,
)
from lingua_speech.models.fetch import PinnedFile, UnreachableHosts, fetch, sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MANIFEST = "manifest.json"
MEGABYTE = 1_000_000
SPARE_BYTES = 50 * MEGABYTE  # left free on the disk by an install


class InstallProgress(NamedTuple):
    """The progress of an install, for display."""

    model: str
    what: str  # "wait" | "download" | "ask" | "unpack" | "prepare" | "place" | "done"
    detail: str = ""
    done_bytes: int = 0
    total_bytes: int = 0


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an install: its sources and the hash of every file."""

    name: str
    fingerprint: str
    licence: str
    installed_at: str
    sources: dict[str, str]  # address -> SHA-256
    files: dict[str, str]  # path -> SHA-256
    links: dict[str, str]  # path -> target
    size_bytes: int


class Installed(NamedTuple):
    """The result of an install."""

    name: str
    path: Path
    is_new: bool  # False: it was installed already
    download_bytes: int
    took_s: float


class StoreEntry(NamedTuple):
    """A model of the catalogue and its state in this store."""

    model: Model
    manifest: Manifest | None  # None: not installed, or unreadable
    damage: str = ""  # why the manifest cannot be read

    @property
    def is_current(self) -> bool:
        """Tell whether the installed model is the one that the catalogue describes now."""
        return self.manifest is not None and self.manifest.fingerprint == self.model.fingerprint


def default_root() -> Path:
    """Return `$LINGUA_MODELS`, else the user's data directory for models."""
    if chosen := os.environ.get("LINGUA_MODELS"):
        return _expanded(chosen)
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return _expanded(data) / "lingua" / "models"


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        # The user of a container may have neither HOME nor an entry in /etc/passwd.
        raise ModelError(f"{path}: no home directory; set LINGUA_MODELS to a path") from error


def default_store() -> ModelStore:
    """Return the store that the environment names."""
    return ModelStore(default_root())


def _ignore_progress(_: InstallProgress) -> None:
    """Ignore progress."""


class ModelStore:
    """A directory of models."""

    def __init__(self, root: Path, catalogue: Catalogue | None = None) -> None:
        self.root = root.absolute()
        self.catalogue = load_catalogue() if catalogue is None else catalogue
        self._unreachable = UnreachableHosts()

    def path(self, name: str) -> Path:
        """Return the folder of an installed model or raise `ModelNotInstalled`."""
        self.catalogue.model(name)
        if not self.has(name):
            raise ModelNotInstalled(name, self.root)
        return self.root / name

    def has(self, name: str) -> bool:
        """Tell whether the model is installed; only reads the disk."""
        self.catalogue.model(name)
        with _reading(self.root):
            return (self.root / name / MANIFEST).is_file()

    def entries(self) -> list[StoreEntry]:
        """Return every model of the catalogue with its state."""
        return [self._entry(model) for model in self.catalogue.models.values()]

    def _entry(self, model: Model) -> StoreEntry:
        try:
            return StoreEntry(model, self.manifest(model.name))
        except ModelCorrupt as corrupt:
            return StoreEntry(model, None, corrupt.problem)

    def manifest(self, name: str) -> Manifest | None:
        """Return the manifest of a model, or None if it is not installed."""
        try:
            with _reading(self.root):
                text = (self.root / name / MANIFEST).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return msgspec.json.decode(text, type=Manifest)
        except msgspec.DecodeError as error:
            raise ModelCorrupt(name, f"{MANIFEST} cannot be read: {error}") from error

    def install(
        self,
        name: str,
        progress: Callable[[InstallProgress], None] = _ignore_progress,
        *,
        again: bool = False,
    ) -> list[Installed]:
        """Install a model or a group, with the models it requires.

        Installed models are kept; with `again` the named ones are replaced, e.g. if damaged.
        """
        named = self.catalogue.groups.get(name, (name,)) if again else ()
        return [
            self._install(model, progress, again=model.name in named)
            for model in self.catalogue.expand([name])
        ]

    def verify(self, name: str) -> list[str]:
        """Hash every file of an installed model again and return the problems."""
        folder = self.path(name)
        entry = self._entry(self.catalogue.model(name))
        if entry.manifest is None:
            return [entry.damage or "removed in the meantime"]
        wanted = dict(entry.manifest.files)
        if entry.is_current:
            # A user who can change a file can change the manifest too, but not the catalogue.
            wanted |= entry.model.pinned
        files, links = _content(folder)
        problems = [f"{p}: missing" for p in sorted({*wanted} - files)]
        problems += [f"{p}: not of this model" for p in sorted(files - {*wanted})]
        for path in sorted(files & {*wanted}):
            problems += _file_problems(folder, path, wanted[path])
        if links != entry.manifest.links:
            problems.append("symbolic links: changed")
        return problems

    def remove(
        self, name: str, progress: Callable[[InstallProgress], None] = _ignore_progress
    ) -> None:
        """Remove a model or the rest of an interrupted install, or raise `ModelNotInstalled`.

        A model that other installed models need is not removed: `ModelNeeded`.
        """
        # Raises unless it is a known name, so that no path outside the store is removed.
        self.catalogue.model(name)
        if others := self.users_of(name):
            raise ModelNeeded(name, others)
        if not self.occupies(name):
            raise ModelNotInstalled(name, self.root)
        with _writing(self.root), self._locked(name, progress):
            self._set_aside(name)
            remove_tree(self.root / ".partial" / name)

    def occupies(self, name: str) -> bool:
        """Tell whether there is anything to remove: a model, or the rest of an install."""
        return any(self._exists(folder / name) for folder in (self.root, self.root / ".partial"))

    def _exists(self, path: Path) -> bool:
        try:
            with _reading(self.root):
                return bool(path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def users_of(self, name: str) -> list[str]:
        """Return the installed models that require this one."""
        known = self.catalogue.models.values()
        return [m.name for m in known if name in m.requires and self.has(m.name)]

    def _install(
        self, model: Model, progress: Callable[[InstallProgress], None], *, again: bool
    ) -> Installed:
        started = time.monotonic()
        fetched = 0
        if again or not self.is_current(model):
            downloads = model.downloads_here()
            prepare.check_model(model)
            with _writing(self.root), self._locked(model.name, progress):
                # The process that held the lock before may have installed it.
                if again or not self.is_current(model):
                    fetched = self._build(model, downloads, progress)
        took_s = time.monotonic() - started
        progress(InstallProgress(model.name, "done"))
        return Installed(model.name, self.root / model.name, fetched > 0, fetched, took_s)

    def is_current(self, model: Model) -> bool:
        """Tell whether a model is installed as the catalogue describes it now."""
        return self._entry(model).is_current

    def _build(
        self,
        model: Model,
        downloads: tuple[Download, ...],
        progress: Callable[[InstallProgress], None],
    ) -> int:
        """Fetch, unpack, check, prepare and publish a model; return the bytes fetched."""
        work = self.root / ".partial" / model.name
        tree = work / "tree"
        work.mkdir(parents=True, exist_ok=True)
        _keep_only(work, {download.sha256 for download in downloads})
        self._check_space(model, downloads, work)
        sources = self._download(model, downloads, progress)
        try:
            progress(InstallProgress(model.name, "unpack"))
            archives = [(work / one.sha256, kind_of(one.file)) for one in downloads]
            _unpack(model, archives, tree)
            if model.prepare:
                progress(InstallProgress(model.name, "prepare"))
                prepare.run(model.name, model.prepare, tree)
            _write_manifest(model, tree, sources)
            _flush_to_disk(tree)
            progress(InstallProgress(model.name, "place"))
            self._publish(model.name, tree)
        finally:
            # After a failure only the downloads can be used by the next attempt.
            remove_tree(tree)
        remove_tree(work)
        return sum(download.size for download in downloads)

    def _download(
        self,
        model: Model,
        downloads: tuple[Download, ...],
        progress: Callable[[InstallProgress], None],
    ) -> dict[str, str]:
        """Fetch all archives of the model and return address -> SHA-256."""
        total = sum(download.size for download in downloads)
        before = 0
        sources = {}
        for download in downloads:

            def on_progress(size: int, file: str = download.file, base: int = before) -> None:
                progress(InstallProgress(model.name, "download", file, base + size, total))

            def on_packager(packager: str, base: int = before) -> None:
                progress(InstallProgress(model.name, "ask", packager, base, total))

            pinned = self._pinned_file(model.name, download)
            target = self.root / ".partial" / model.name / download.sha256
            sources[fetch(pinned, target, on_progress, on_packager, self._unreachable)] = (
                download.sha256
            )
            before += download.size
        return sources

    def _pinned_file(self, name: str, download: Download) -> PinnedFile:
        source = self.catalogue.sources[download.source]
        urls = tuple(f"{base.rstrip('/')}/{download.path}" for base in source.addresses())
        return PinnedFile(
            model=name,
            file=download.file,
            urls=urls,
            size=download.size,
            sha256=download.sha256,
            variable=source.variable,
            packager=source.packager,
        )

    def _check_space(self, model: Model, downloads: tuple[Download, ...], work: Path) -> None:
        have = sum(path.stat().st_size for path in work.iterdir() if path.is_file())
        needed = sum(d.size for d in downloads) - have + model.disk_mb * MEGABYTE + SPARE_BYTES
        free = shutil.disk_usage(self.root).free
        if free < needed:
            raise NoSpace(
                self.root,
                f"{model.name} needs {needed / MEGABYTE:.0f} MB, {free / MEGABYTE:.0f} MB are free",
            )

    def _publish(self, name: str, tree: Path) -> None:
        """Rename the finished tree; an older one is missing only for a moment."""
        aside = self._set_aside(name)
        try:
            tree.rename(self.root / name)
        finally:
            # Restores the older one, also after Ctrl-C.
            if os.path.lexists(aside) and not os.path.lexists(self.root / name):
                aside.rename(self.root / name)

    def _set_aside(self, name: str) -> Path:
        """Rename the folder of a model in one step, so that it is never visible in part."""
        aside = self.root / ".partial" / name / "old"
        if os.path.lexists(self.root / name):
            remove_tree(aside)
            aside.parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).rename(aside)
        return aside

    @contextmanager
    def _locked(self, name: str, progress: Callable[[InstallProgress], None]) -> Iterator[None]:
        """Hold the lock of a model; the system releases it however this process ends."""
        locks = self.root / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / name).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress(InstallProgress(name, "wait", "for another process"))
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def _reading(root: Path) -> Iterator[None]:
    """Turn errors of reading into ours; a missing file is left to the caller."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise StoreUnreadable(root, f"{error.strerror or error}") from error


@contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Turn errors of writing into ours."""
    try:
        yield
    except OSError as error:
        why = f"{error.strerror or error}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise NoSpace(root, why) from error
        raise StoreUnwritable(root, why) from error


def _keep_only(work: Path, archives: set[str]) -> None:
    """Remove all of an earlier install except these archives, complete or partial."""
    for path in work.iterdir():
        if path.name.removesuffix(".part") not in archives:
            remove_tree(path)


def _file_problems(folder: Path, path: str, wanted: str) -> list[str]:
    try:
        return [] if sha256_of(folder / path) == wanted else [f"{path}: changed"]
    except OSError as error:
        return [f"{path}: cannot be read: {error.strerror or error}"]


def _unpack(model: Model, archives: Sequence[tuple[Path, str]], tree: Path) -> None:
    """Extract the files of the model from its archives, and check their pinned hashes."""
    unpacker = Unpacker(model.name, tree, model.take, model.disk_mb * MEGABYTE)
    if model.inner:
        unpacker.unpack_inner(archives, model.inner.pattern, model.inner.skip_bytes)
    else:
        for archive, kind in archives:
            unpacker.unpack(archive, kind)
    unpacker.finish()
    _check_pinned(model, tree)


def _check_pinned(model: Model, tree: Path) -> None:
    """Raise `ModelCorrupt` unless the pinned files have the hashes published upstream."""
    for path, wanted in {**model.pinned, **model.pinned_raw}.items():
        if not (tree / path).is_file() or sha256_of(tree / path) != wanted:
            raise ModelCorrupt(model.name, f"{path} is not the file that upstream published")


def _write_manifest(model: Model, tree: Path, sources: dict[str, str]) -> None:
    files, links = _content(tree)
    manifest = Manifest(
        name=model.name,
        fingerprint=model.fingerprint,
        licence=model.licence,
        installed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        sources=sources,
        files={path: sha256_of(tree / path) for path in sorted(files)},
        links=links,
        size_bytes=sum((tree / path).stat().st_size for path in files),
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    (tree / MANIFEST).write_bytes(text + b"\n")


def _flush_to_disk(tree: Path) -> None:
    """Flush all files to the disk before their folder is renamed, in case of a power failure."""
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _content(folder: Path) -> tuple[set[str], dict[str, str]]:
    """Return the files and the symbolic links of a model, without its manifest."""
    files, links = set(), {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            links[name] = str(path.readlink())
        elif path.is_file() and name != MANIFEST:
            files.add(name)
    return files, dict(sorted(links.items()))
