"""Zip files read as a stream: every kind of member, pieces of any size, and damage."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.models.zip_stream import ZipStream

pytestmark = pytest.mark.unit

CONTENT = {"a.txt": b"hello", "folder/b.bin": bytes(range(256)) * 40, "empty": b"", "é": b"x" * 999}
UNREADABLE = (zipfile.BadZipFile, EOFError, zlib.error, ValueError)


class Pipe(io.BytesIO):
    """An output without seeking, so that the sizes follow each member of a zip file."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise OSError


def zipped(kind: int = zipfile.ZIP_DEFLATED, out: io.BytesIO | None = None) -> bytes:
    target = out or io.BytesIO()
    with zipfile.ZipFile(target, "w", kind) as folder:
        folder.mkdir("folder")
        for name, data in CONTENT.items():
            folder.writestr(name, data)
    return target.getvalue()


PLAIN, STORED = zipped(), zipped(zipfile.ZIP_STORED)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, size: int = 1000, skip: int = 0) -> dict[str, bytes]:
    found = {}
    for entry in ZipStream(pieces(data, size), skip):
        content = b""
        while chunk := entry.content.read(100):
            content += chunk
        assert len(content) == entry.size
        found[entry.path] = content
    return found


@pytest.mark.parametrize("data", [PLAIN, STORED])
@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_every_file_is_read_whatever_the_pieces(data: bytes, size: int) -> None:
    assert read(data, size) == CONTENT


def with_descriptor(data: bytes, *, has_mark: bool = True) -> bytes:
    """Return an archive of one member whose checksum and sizes follow it."""
    packed = zlib.compress(data, wbits=-15)
    head = b"PK\x03\x04\x14\0\x08\0\x08\0" + bytes(12) + len(data).to_bytes(4, "little")
    numbers = (zlib.crc32(data), len(packed), len(data))
    after = b"".join(one.to_bytes(4, "little") for one in numbers)
    name = b"\x01\0\0\0a"
    return head + name + packed + (b"PK\x07\x08" if has_mark else b"") + after + b"PK\x01\x02"


@pytest.mark.parametrize("has_mark", [True, False])
@pytest.mark.parametrize("size", [1, 1000])
def test_a_packed_file_that_tells_its_packed_size_afterwards_is_read(
    size: int, has_mark: bool
) -> None:
    assert read(with_descriptor(b"odd" * 500, has_mark=has_mark), size) == {"a": b"odd" * 500}


def test_a_file_that_nobody_reads_is_passed_over() -> None:
    names = [entry.path for entry in ZipStream(pieces(PLAIN, 100))]
    assert names == list(CONTENT)


def test_it_can_begin_at_a_later_file() -> None:
    with zipfile.ZipFile(io.BytesIO(PLAIN)) as folder:
        at = folder.getinfo("empty").header_offset
    assert list(read(PLAIN, 100, at)) == ["empty", "é"]
    with pytest.raises(zipfile.BadZipFile, match="not from the start of a member"):
        read(PLAIN, 100, at + 1)


def test_the_end_is_needed_only_by_who_reads_to_it() -> None:
    entries = iter(ZipStream(pieces(PLAIN[: PLAIN.index(b"empty")], 100)))
    assert [next(entries).path for _ in range(2)] == ["a.txt", "folder/b.bin"]
    with pytest.raises(EOFError):
        next(entries)


@pytest.mark.parametrize(
    ("at", "value"),
    [(6, b"\x01"), (8, b"\x0c"), (18, b"\xff\xff\xff\xff"), (22, b"\xff\xff\xff\xff")],
)
def test_what_is_packed_in_another_way_is_told(at: int, value: bytes) -> None:
    first = PLAIN.index(b"PK\x03\x04", 1)
    damaged = PLAIN[: first + at] + value + PLAIN[first + at + len(value) :]
    with pytest.raises(zipfile.BadZipFile, match="not supported"):
        read(damaged)


def test_sizes_that_come_after_what_is_not_packed_cannot_be_read() -> None:
    with pytest.raises(zipfile.BadZipFile, match="not supported"):
        read(zipped(zipfile.ZIP_STORED, Pipe()))


@pytest.mark.parametrize(
    ("change", "why"), [(1, "shorter than its size"), (-1, "longer than its size")]
)
def test_a_file_of_another_size_than_it_says_is_told(change: int, why: str) -> None:
    data = b"odd" * 500
    wrong = with_descriptor(data).replace(
        len(data).to_bytes(4, "little"), (len(data) + change).to_bytes(4, "little"), 1
    )
    with pytest.raises((zipfile.BadZipFile, EOFError), match=why):
        read(wrong)


def test_a_wrong_checksum_is_told() -> None:
    at = STORED.index(b"hello")
    with pytest.raises(zipfile.BadZipFile, match="checksum"):
        read(STORED[:at] + b"jello" + STORED[at + 5 :])


@given(st.integers(0, PLAIN.index(b"PK\x01\x02")))
def test_one_that_is_cut_short_is_told(size: int) -> None:
    with pytest.raises(UNREADABLE):
        read(PLAIN[:size])


@given(st.data())
def test_a_damaged_one_is_read_or_told(data: st.DataObject) -> None:
    damaged = bytearray(PLAIN)
    damaged[data.draw(st.integers(0, len(PLAIN) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(damaged))
    except UNREADABLE:
        return
