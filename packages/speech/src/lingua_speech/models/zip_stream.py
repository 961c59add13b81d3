"""Reads a zip file as a stream from start to end, for one that is never whole on the disk.

Python's own reader begins with the directory at the end, so it needs the whole file. Here each
member is read by the header before it; a compressed member without a length there ends where its
compressed data ends. Sizes and checksums are compared. Used by `archives`.
"""

from __future__ import annotations

import struct
import zlib
from typing import IO, TYPE_CHECKING, Final, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile

if TYPE_CHECKING:
    from collections.abc import Iterator

# Signature, version, flags, method, time, date, checksum, both sizes, lengths of name and extra.
HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
LOCAL_HEADER, DIRECTORY, DIRECTORY_END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
# The data descriptor after a member: an optional signature, then checksum and both sizes.
DESCRIPTOR: Final = struct.Struct("<III")
DESCRIPTOR_SIGNATURE: Final = b"PK\x07\x08"
HAS_DESCRIPTOR: Final = 0x8
UNSUPPORTED_FLAGS: Final = 0x1 | 0x20 | 0x40  # encrypted, patched, strongly encrypted
ZIP64: Final = 0xFFFFFFFF  # in place of a size that is in the extra field
CHUNK_BYTES: Final = 1 << 18


class ZipMember(NamedTuple):
    """One member; its content can be read until the next one is requested."""

    path: str
    size: int
    content: IO[bytes]


class ZipStream:
    """The members of a zip file that arrives in pieces."""

    def __init__(self, pieces: Iterator[bytes], skip: int = 0) -> None:
        self._source = _Source(pieces)
        self._source.skip_bytes(skip)

    def __iter__(self) -> Iterator[ZipMember]:
        """Yield the members; raises `BadZipFile`, `zlib.error` or `EOFError`."""
        while True:
            signature, _, flags, method, _, _, checksum, packed, size, name, rest = HEADER.unpack(
                self._header()
            )
            if signature in {DIRECTORY, DIRECTORY_END}:
                return
            path = _decoded(self._source.read_exactly(name), flags)
            self._source.skip_bytes(rest)
            _check(signature, path, flags, method, (packed, size))
            content = _Content(self._source, None if method == ZIP_DEFLATED else packed, size)
            if not path.endswith("/"):
                yield ZipMember(path, size, cast("IO[bytes]", content))
            content.drain()
            if flags & HAS_DESCRIPTOR:
                checksum = self._descriptor_checksum()
            if checksum != content.checksum:
                raise BadZipFile(f"{path!r} is damaged: its checksum differs")

    def _header(self) -> bytes:
        """Return the header of a member; the end of the directory may be shorter than one."""
        signature = self._source.read_exactly(len(LOCAL_HEADER))
        if signature != LOCAL_HEADER:
            return signature + bytes(HEADER.size - len(signature))
        return signature + self._source.read_exactly(HEADER.size - len(signature))

    def _descriptor_checksum(self) -> int:
        first = self._source.read_exactly(len(DESCRIPTOR_SIGNATURE))
        rest = DESCRIPTOR.size if first == DESCRIPTOR_SIGNATURE else DESCRIPTOR.size - len(first)
        remaining = self._source.read_exactly(rest)
        checksum, _, _ = DESCRIPTOR.unpack(
            remaining if first == DESCRIPTOR_SIGNATURE else first + remaining
        )
        return int(checksum)


def _check(signature: bytes, path: str, flags: int, method: int, sizes: tuple[int, int]) -> None:
    if signature != LOCAL_HEADER:
        raise BadZipFile("not a zip file, or not from the start of a member")
    is_known = method == ZIP_DEFLATED or (method == ZIP_STORED and not flags & HAS_DESCRIPTOR)
    if flags & UNSUPPORTED_FLAGS or not is_known or ZIP64 in sizes:
        raise BadZipFile(f"{path!r} is packed in a way that is not supported")


def _decoded(name: bytes, flags: int) -> str:
    return name.decode("utf-8" if flags & 0x800 else "cp437")


class _Source:
    """Pieces as one stream, to which bytes can be returned."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = b""  # received, not yet read

    def read_some(self, most: int) -> bytes:
        """Return at least one byte, or nothing at the end."""
        while not self._left:
            self._left = next(self._pieces, b"")
            if not self._left:
                return b""
        found, self._left = self._left[:most], self._left[most:]
        return found

    def read_exactly(self, size: int) -> bytes:
        """Return exactly so many bytes or raise `EOFError`."""
        found = b""
        while len(found) < size:
            more = self.read_some(size - len(found))
            if not more:
                raise EOFError("the archive is cut short")
            found += more
        return found

    def skip_bytes(self, size: int) -> None:
        """Skip so many bytes."""
        while size:
            size -= len(self.read_exactly(min(size, CHUNK_BYTES)))

    def unread(self, data: bytes) -> None:
        """Return bytes to the stream; they are read next."""
        self._left = data + self._left


class _Content:
    """The content of a member as a file to read, never more than `size` bytes.

    `packed` is the length of stored data; None: the data is compressed and marks its own end.
    """

    def __init__(self, source: _Source, packed: int | None, size: int) -> None:
        self._source = source
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS) if packed is None else None
        self._left = size
        self.checksum = 0
        if packed is not None and packed != size:
            raise BadZipFile("a stored member has two different sizes")

    def read(self, size: int = -1) -> bytes:
        """Return some bytes, or nothing at the end."""
        wanted = min(CHUNK_BYTES if size < 0 else size, self._left)
        if not wanted:
            return b""
        data = self._inflated(wanted) if self._unpacker else self._source.read_some(wanted)
        if not data:
            raise EOFError("a member is shorter than its size, or the archive is cut short")
        self._left -= len(data)
        self.checksum = zlib.crc32(data, self.checksum)
        return data

    def drain(self) -> None:
        """Read the rest of the content, and the end of the compressed data."""
        while self.read():
            pass
        if self._unpacker:
            if self._inflated(1):
                raise BadZipFile("a member is longer than its size")
            self._source.unread(self._unpacker.unused_data)

    def _inflated(self, most: int) -> bytes:
        """Return at least one byte, or nothing at the end of the compressed data."""
        unpacker = self._unpacker
        assert unpacker is not None
        while not unpacker.eof:
            packed = unpacker.unconsumed_tail or self._source.read_some(CHUNK_BYTES)
            data = unpacker.decompress(packed, most)
            if data:
                return data
            if not packed:
                raise EOFError("the archive is cut short")
        return b""
