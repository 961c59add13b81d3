"""A zip file read from its front to its end, as it comes: for one that is never whole on the disk.

Python's own reader begins with the table at the end and so needs all of the file. Here each file is
read by the header before it; of a packed one that does not tell its length there, the packing does.
Sizes and checksums are compared. Used by `archives`.
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile

if TYPE_CHECKING:
    from collections.abc import Iterator

# Mark, version, flags, method, time, date, checksum, both sizes, lengths of the name and the rest.
HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
FILE, TABLE, EMPTY = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
# After a file whose header did not know: perhaps a mark, then checksum and both sizes.
AFTER: Final = struct.Struct("<III")
AFTER_MARK: Final = b"PK\x07\x08"
IS_TOLD_AFTER: Final = 0x8
STRANGE_FLAGS: Final = 0x1 | 0x20 | 0x40  # encrypted, patched, strongly encrypted
LARGE: Final = 0xFFFFFFFF  # the size is elsewhere
CHUNK_BYTES: Final = 1 << 18


class Entry(NamedTuple):
    """One file; its content can be read until the next one is asked for."""

    path: str
    size: int
    content: IO[bytes]


class ZipStream:
    """The files of a zip file that comes in pieces."""

    def __init__(self, pieces: Iterator[bytes], skip: int = 0) -> None:
        self._source = _Source(pieces)
        self._source.drop(skip)

    def __iter__(self) -> Iterator[Entry]:
        """Give the files; raises `BadZipFile`, `zlib.error` or `EOFError`."""
        while True:
            mark, _, flags, method, _, _, checksum, packed, size, name, rest = HEADER.unpack(
                self._header()
            )
            if mark in {TABLE, EMPTY}:
                return
            path = _decoded(self._source.exactly(name), flags)
            self._source.drop(rest)
            _check(mark, path, flags, method, (packed, size))
            content = _Content(self._source, None if method == ZIP_DEFLATED else packed, size)
            if not path.endswith("/"):
                yield Entry(path, size, cast("IO[bytes]", content))
            content.drain()
            if flags & IS_TOLD_AFTER:
                checksum = self._checksum_after()
            if checksum != content.checksum:
                raise BadZipFile(f"{path!r} is damaged: its checksum is another")

    def _header(self) -> bytes:
        """Return what is before a file; the end of the table may be shorter than that."""
        mark = self._source.exactly(len(FILE))
        if mark != FILE:
            return mark + bytes(HEADER.size - len(mark))
        return mark + self._source.exactly(HEADER.size - len(mark))

    def _checksum_after(self) -> int:
        first = self._source.exactly(len(AFTER_MARK))
        rest = AFTER.size if first == AFTER_MARK else AFTER.size - len(first)
        told = self._source.exactly(rest)
        checksum, _, _ = AFTER.unpack(told if first == AFTER_MARK else first + told)
        return int(checksum)


def _check(mark: bytes, path: str, flags: int, method: int, sizes: tuple[int, int]) -> None:
    if mark != FILE:
        raise BadZipFile("not a zip file, or not from where a file begins in it")
    is_known = method == ZIP_DEFLATED or (method == ZIP_STORED and not flags & IS_TOLD_AFTER)
    if flags & STRANGE_FLAGS or not is_known or LARGE in sizes:
        raise BadZipFile(f"{path!r} is packed in a way that is not read here")


def _decoded(name: bytes, flags: int) -> str:
    return name.decode("utf-8" if flags & 0x800 else "cp437")


class _Source:
    """Pieces as one stream, with what was read too much given back."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""  # read already, not yet used

    def some(self, most: int) -> bytes:
        """Return at least one byte, or none at the end."""
        while not self._left:
            self._left = next(self._pieces, b"")
            if not self._left:
                return b""
        found, self._left = self._left[:most], self._left[most:]
        return found

    def exactly(self, size: int) -> bytes:
        """Return so many bytes or raise `EOFError`."""
        found = b""
        while len(found) < size:
            more = self.some(size - len(found))
            if not more:
                raise EOFError("the archive is cut short")
            found += more
        return found

    def drop(self, size: int) -> None:
        """Go on without so many bytes."""
        while size:
            size -= len(self.exactly(min(size, CHUNK_BYTES)))

    def give_back(self, data: bytes) -> None:
        """Have the next reader begin with this."""
        self._left = data + self._left


class _Content:
    """One file's content as a file to read: as it is for `packed` bytes, else until its packing
    says that it ends. Never more than `size` bytes.
    """

    def __init__(self, source: _Source, packed: int | None, size: int) -> None:
        self._source = source
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS) if packed is None else None
        self._left = size
        self.checksum = 0
        if packed is not None and packed != size:
            raise BadZipFile("a file that is not packed has two sizes")

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, none at the end."""
        wanted = min(CHUNK_BYTES if size < 0 else size, self._left)
        if not wanted:
            return b""
        data = self._inflated(wanted) if self._unpacker else self._source.some(wanted)
        if not data:
            raise EOFError("a file is shorter than it says, or the archive is cut short")
        self._left -= len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return data

    def drain(self) -> None:
        """Read what nobody wanted, and the end of the packing."""
        while self.read():
            pass
        if self._unpacker:
            if self._inflated(1):
                raise BadZipFile("a file is longer than it says")
            self._source.give_back(self._unpacker.unused_data)

    def _inflated(self, most: int) -> bytes:
        """Return at least one byte, or none where the packing ends."""
        unpacker = self._unpacker
        assert unpacker is not None
        while not unpacker.eof:
            packed = unpacker.unconsumed_tail or self._source.some(CHUNK_BYTES)
            data = unpacker.decompress(packed, most)
            if data:
                return data
            if not packed:
                raise EOFError("the archive is cut short")
        return b""
