"""Extracts chosen files of an archive safely: npm tarballs, wheels and Debian packages.

It also extracts from a zip file inside them, whole or split into pieces, which is read as a stream
and never assembled on the disk. No dpkg, tar or unzip is needed. Paths must not leave the target,
links must not point out of it, devices and hard links are refused, and the bytes written, unpacked
and held in memory are bounded. Only files named by a `take` rule are written. Independent of the
catalogue; used by `store`.

Pooch does not replace this: its `Untar` and `Unzip` store the whole archive and unpack it with
`extractall`. They read neither Debian packages nor a zip file split over several archives, and they
bound neither sizes nor members.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
import zlib
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, cast

from lingua_speech.models.errors import ModelCorrupt
from lingua_speech.models.zip_stream import UNSUPPORTED_FLAGS, ZipStream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

MEMBERS_MAX = 20_000
SKIPPED_BYTES_MAX = 100_000_000  # of archives, besides the files that are taken
PIECE_BYTES = 1 << 18  # of an inner archive held in memory
XZ_MEMORY_BYTES = 128 << 20  # twice the need of the strongest usual setting of xz
AR_MAGIC = b"!<arch>\n"
AR_HEADER_BYTES = 60
# Python's readers of tar and zip also raise ValueError, for damaged numbers and names.
UNREADABLE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zlib.error,
    EOFError,
    ValueError,
)


class UnsafeArchive(ModelCorrupt):
    """An archive would write outside the target, link out of it, or exceed a bound."""


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _Member(NamedTuple):
    path: str
    size: int
    link: str  # the target of a symbolic link; empty for a file
    is_program: bool
    content: IO[bytes] | None


class Unpacker:
    """Writes chosen members of several archives into one tree, within one common bound."""

    def __init__(self, model: str, root: Path, take: Mapping[str, str], limit_bytes: int) -> None:
        self._model = model
        self._root = root
        self._take = take
        self._limit_bytes = limit_bytes
        self._written = 0  # bytes written so far, of all archives
        self._unpacked = 0  # bytes of archives unpacked so far
        self._members = 0  # members seen so far
        self._links: dict[Path, str] = {}  # created last, so that nothing is written through a link
        self.unused = set(take)  # rules without a match so far

    def unpack(self, archive: Path, kind: str) -> None:
        """Extract the files named by the rules from an archive; `kind` is that of `kind_of`."""
        try:
            with _members(archive, kind, self._count) as members:
                for member in members:
                    self._accept(member)
        except UNREADABLE as error:
            raise ModelCorrupt(self._model, f"cannot unpack {archive.name}: {error}") from error

    def unpack_inner(self, archives: Sequence[tuple[Path, str]], pattern: str, skip: int) -> None:
        """Extract the files named by the rules from the zip file whose pieces these archives hold.

        The pieces are the files that match the pattern, in the order of the archives. The first
        `skip` bytes are ignored, and nothing is read after the last file that a rule names. So
        the middle of a large zip file needs only the pieces that contain it.
        """
        pieces = _pieces(archives, pattern, self._count)
        try:
            for entry in ZipStream(pieces, skip):
                self._accept(
                    _Member(entry.path, entry.size, "", is_program=False, content=entry.content)
                )
                if not self.unused and not any(rule.endswith("/") for rule in self._take):
                    return
        except UNREADABLE as error:
            raise ModelCorrupt(self._model, f"cannot unpack {pattern}: {error}") from error
        finally:
            pieces.close()

    def finish(self) -> None:
        """Create the links, check that they stay inside, and check that every rule matched."""
        for path, link in self._links.items():
            if path.exists() or self._passes_a_link(path):
                raise self._unsafe(f"the path of the link {path.name} is in use already")
            self._make_folder(path)
            path.symlink_to(link)
        root = self._root.resolve()
        for path in self._links:
            if not self._resolved(path).is_relative_to(root):
                raise self._unsafe(f"the link {path.name} points out of the tree")
        if self.unused:
            raise ModelCorrupt(self._model, f"the archives have no {min(self.unused)}")

    def _count(self, size: int) -> None:
        """Bound the unpacked bytes, including those of files that are not taken."""
        self._unpacked += size
        if self._unpacked > self._limit_bytes + SKIPPED_BYTES_MAX:
            raise self._unsafe(f"unpacks to more than {self._unpacked / 1e6:.0f} MB")

    def _accept(self, member: _Member) -> None:
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise self._unsafe("too many files")
        path = self._target(member.path)
        if path is None:
            return
        if member.link:
            self._add_link(path, member.link)
        elif member.content is not None:
            self._write(path, member)
        else:
            raise self._unsafe(f"{member.path} is neither a file nor a symbolic link")

    def _target(self, name: str) -> Path | None:
        """Return the path of a member in the tree, or None if no rule names it."""
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            raise self._unsafe(f"the path {name[:80]!r} leaves the tree")
        if not name.isprintable():
            raise self._unsafe(f"the path {name[:80]!r} is not printable")
        name = str(path)
        for source, target in self._take.items():
            if source == name or (source.endswith("/") and name.startswith(source)):
                self.unused.discard(source)
                return self._root / (target + name.removeprefix(source))
        return None

    def _add_link(self, path: Path, link: str) -> None:
        if link.startswith("/") or not link.isprintable():
            raise self._unsafe(f"the link {path.name} is absolute or not printable")
        if path in self._links:
            raise self._unsafe(f"the link {path.name} occurs twice")
        self._links[path] = link

    def _resolved(self, path: Path) -> Path:
        try:
            resolved = path.resolve()
        except (RuntimeError, OSError):  # the error of a loop depends on the version of Python
            raise self._unsafe(f"the link {path.name} is part of a loop") from None
        if resolved.is_symlink():  # from Python 3.13 on a loop is no error, but stays unresolved
            raise self._unsafe(f"the link {path.name} is part of a loop")
        return resolved

    def _write(self, path: Path, member: _Member) -> None:
        self._written += member.size
        if self._written > self._limit_bytes:
            raise self._unsafe(f"unpacks to more than {self._limit_bytes / 1e6:.0f} MB")
        if path.exists() or path in self._links:
            raise self._unsafe(f"{member.path} occurs twice")
        self._make_folder(path)
        with path.open("wb") as out:
            _copy(cast("IO[bytes]", member.content), out, member.size)
        if path.stat().st_size != member.size:
            raise ModelCorrupt(self._model, f"{member.path} is cut short")
        path.chmod(0o755 if member.is_program else 0o644)

    def _make_folder(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise self._unsafe(f"the parent of {path.name} is a file") from None

    def _passes_a_link(self, path: Path) -> bool:
        return any(parent in self._links for parent in path.parents)

    def _unsafe(self, problem: str) -> UnsafeArchive:
        return UnsafeArchive(self._model, f"unsafe archive: {problem}")


def kind_of(file: str) -> str:
    """Return the kind of an archive by its file name: `tgz`, `zip` or `deb`."""
    for ending, kind in ((".tgz", "tgz"), (".tar.gz", "tgz"), (".whl", "zip"), (".zip", "zip")):
        if file.endswith(ending):
            return kind
    if file.endswith(".deb"):
        return "deb"
    raise ValueError(f"unknown kind of archive: {file}")


@contextmanager
def _members(archive: Path, kind: str, count: Callable[[int], None]) -> Iterator[Iterator[_Member]]:
    with archive.open("rb") as file:
        if kind == "zip":
            with zipfile.ZipFile(file) as folder:
                yield _zip_members(folder)
            return
        stream = _deb_data(file) if kind == "deb" else gzip.GzipFile(fileobj=file)
        counted = cast("IO[bytes]", _Counted(stream, count))
        with tarfile.open(fileobj=counted, mode="r|", encoding="utf-8") as tar:
            yield _tar_members(tar)


def _pieces(
    archives: Sequence[tuple[Path, str]], pattern: str, count: Callable[[int], None]
) -> Generator[bytes]:
    """Yield the content of the files that match the pattern, in chunks."""
    for archive, kind in archives:
        is_found = False
        with _members(archive, kind, count) as members:
            for member in members:
                if member.content is None or not fnmatchcase(member.path, pattern):
                    continue
                is_found = True
                # The content of a tar file is counted already while it is read.
                piece = _Counted(member.content, count) if kind == "zip" else member.content
                while chunk := piece.read(PIECE_BYTES):
                    yield chunk
        if not is_found:
            raise zipfile.BadZipFile(f"{archive.name} has no file that matches")


def _tar_members(tar: tarfile.TarFile) -> Iterator[_Member]:
    for entry in tar:
        if entry.isdir():
            continue
        name = entry.name.removeprefix("./")
        link = entry.linkname if entry.issym() else ""
        content = tar.extractfile(entry) if entry.isreg() else None
        yield _Member(name, entry.size, link, bool(entry.mode & 0o100), content)


def _zip_members(folder: zipfile.ZipFile) -> Iterator[_Member]:
    for entry in folder.infolist():
        if entry.is_dir():
            continue
        is_supported = entry.compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
        if entry.flag_bits & UNSUPPORTED_FLAGS or not is_supported:
            raise zipfile.BadZipFile(f"{entry.filename!r} is packed in a way that is not supported")
        with folder.open(entry) as content:
            yield _Member(entry.filename, entry.file_size, "", is_program=False, content=content)


def _deb_data(file: IO[bytes]) -> _Readable:
    """Return the file tree of a Debian package, an `ar` archive, as a stream of tar."""
    if file.read(len(AR_MAGIC)) != AR_MAGIC:
        raise tarfile.ReadError("not a Debian package")
    while header := file.read(AR_HEADER_BYTES):
        name, size = _ar_header(header)
        if name == "data.tar.xz":
            return _Unxz(_Slice(file, size))
        if name == "data.tar":
            return _Slice(file, size)
        if name.startswith("data.tar"):
            raise tarfile.ReadError(f"{name} is packed in a way that is not supported")
        file.seek(size + size % 2, 1)
    raise tarfile.ReadError("the package has no data")


def _ar_header(header: bytes) -> tuple[str, int]:
    """Return name and size of an `ar` member: 16 bytes of name, at 48 the decimal size."""
    if len(header) != AR_HEADER_BYTES or header[58:] != b"`\n":
        raise tarfile.ReadError("a damaged package")
    name, size = header[:16].decode("ascii").rstrip(" "), header[48:58].rstrip(b" ")
    if not size.isdigit():
        raise tarfile.ReadError("a damaged package")
    return name.rstrip("/"), int(size)


class _Slice:
    """The next `size` bytes of a file, as a file to read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._file.read(wanted)
        self._left -= len(data)
        return data


class _Unxz:
    """The content of an xz file, as a file to read; `lzma.LZMAFile` has no bound of memory."""

    def __init__(self, packed: _Readable) -> None:
        self._packed = packed
        self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)

    def read(self, size: int = -1) -> bytes:
        data = b""
        while not data and not self._decoder.eof:
            packed = self._packed.read(1 << 16) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not packed:
                raise EOFError("the package is cut short")
            data = self._decoder.decompress(packed, size)
        return data


class _Counted:
    """A file to read that reports how much was read."""

    def __init__(self, file: _Readable, count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._count(len(data))
        return data


def _copy(source: _Readable, out: IO[bytes], limit: int) -> None:
    """Copy at most `limit` bytes, so that a false header cannot fill the disk."""
    left = limit
    while left and (chunk := source.read(min(left, 1 << 20))):
        out.write(chunk)
        left -= len(chunk)


def remove_tree(path: Path) -> None:
    """Remove a folder with its content, a file, or a link; a missing path is no error."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)
