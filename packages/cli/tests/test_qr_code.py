"""QR codes: the standard's own numbers, and a reader that knows only the standard."""

from __future__ import annotations

import pytest

from lingua_cli.qr_code import (
    BLOCKS,
    CORRECTION,
    MASKS,
    aligned_at,
    capacity,
    correction,
    data_capacity,
    data_places,
    format_bits,
    half_blocks,
    qr_code,
    version_bits,
)
from lingua_wire.errors import InvalidInput

pytestmark = pytest.mark.unit


def test_error_correction_is_that_of_the_known_example() -> None:
    # HELLO WORLD in version 1-M.
    data = (32, 91, 11, 120, 209, 114, 220, 77, 67, 64, 236, 17, 236, 17, 236, 17)
    expected = (196, 35, 39, 119, 235, 215, 231, 226, 93, 23)
    assert tuple(correction(data, 10)) == expected


@pytest.mark.parametrize(
    ("mask", "bits"),
    [
        (0, "111011111000100"),
        (1, "111001011110011"),
        (4, "110011000101111"),
        (7, "110100101110110"),
    ],
)
def test_the_format_has_the_bits_of_the_standard(mask: int, bits: str) -> None:
    assert f"{format_bits(mask):015b}" == bits


@pytest.mark.parametrize(
    ("version", "bits"), [(7, "000111110010010100"), (20, "010100100110100110")]
)
def test_the_version_has_the_bits_of_the_standard(version: int, bits: str) -> None:
    assert f"{version_bits(version):018b}" == bits


@pytest.mark.parametrize(
    ("version", "codewords", "data", "patterns"),
    [
        (1, 26, 19, []),
        (2, 44, 34, [6, 18]),
        (7, 196, 156, [6, 22, 38]),
        (10, 346, 274, [6, 28, 50]),
        (14, 581, 461, [6, 26, 46, 66]),
        (20, 1085, 861, [6, 34, 62, 90]),
    ],
)
def test_versions_have_the_sizes_of_the_standard(
    version: int, codewords: int, data: int, patterns: list[int]
) -> None:
    assert (capacity(version), data_capacity(version)) == (codewords, data)
    assert aligned_at(version) == patterns


def read(rows: list[list[bool]]) -> str:
    """Read a code as a scanner does, and check its error correction."""
    size = len(rows)
    version = (size - 17) // 4
    places = [*((8, y) for y in range(6)), (8, 7), (8, 8), (7, 8)]
    places += [(14 - at, 8) for at in range(9, 15)]
    bits = sum(rows[y][x] << at for at, (x, y) in enumerate(places))
    mask = next(m for m in range(8) if format_bits(m) == bits)
    taken = taken_places(size, version)
    stream = [rows[y][x] ^ MASKS[mask](x, y) for x, y in data_places(size) if (x, y) not in taken]
    words = [
        sum(bit << 7 - at for at, bit in enumerate(stream[i : i + 8]))
        for i in range(0, 8 * capacity(version), 8)
    ]
    count, extra = BLOCKS[version - 1], CORRECTION[version - 1]
    short, longer = divmod(data_capacity(version), count)
    blocks: list[list[int]] = [[] for _ in range(count)]
    left = iter(words)
    for at in range(short + 1):
        for number, block in enumerate(blocks):
            if at < short or number >= count - longer:
                block.append(next(left))
    checks: list[list[int]] = [[] for _ in range(count)]
    for _ in range(extra):
        for check in checks:
            check.append(next(left))
    for block, check in zip(blocks, checks, strict=True):
        assert bytes(check) == correction(block, extra)
    data = bytes(word for block in blocks for word in block)
    text = "".join(f"{byte:08b}" for byte in data)
    assert text[:4] == "0100"
    head = 4 + (16 if version >= 10 else 8)
    length = int(text[4:head], 2)
    return bytes(int(text[i : i + 8], 2) for i in range(head, head + 8 * length, 8)).decode()


def taken_places(size: int, version: int) -> set[tuple[int, int]]:
    """The places without data."""
    taken = {(6, at) for at in range(size)} | {(at, 6) for at in range(size)}
    taken |= {(x, y) for x in range(9) for y in range(9)}
    taken |= {(size - 1 - x, y) for x in range(8) for y in range(9)}
    taken |= {(x, size - 1 - y) for x in range(9) for y in range(8)}
    corners = {(6, 6), (6, size - 7), (size - 7, 6)}
    for x in aligned_at(version):
        for y in aligned_at(version):
            if (x, y) not in corners:
                taken |= {(x + dx, y + dy) for dx in range(-2, 3) for dy in range(-2, 3)}
    if version >= 7:
        taken |= {(size - 11 + at % 3, at // 3) for at in range(18)}
        taken |= {(at // 3, size - 11 + at % 3) for at in range(18)}
    return taken


@pytest.mark.parametrize("length", [0, 1, 17, 18, 53, 106, 154, 230, 231, 271, 350, 458, 600, 858])
def test_every_size_is_read_back(length: int) -> None:
    text = ("https://192.0.2.1:5010/room/123456#token=" + "aB3-_." * 200)[:length]
    rows = qr_code(text)
    assert read(rows) == text
    # The three corners that scanners look for.
    for x, y in ((0, 0), (len(rows) - 7, 0), (0, len(rows) - 7)):
        assert all(rows[y][x + at] and rows[y + 6][x + at] for at in range(7))
        assert not any(rows[y + 1][x + at] for at in range(1, 6))


def test_letters_of_all_languages_are_read_back() -> None:
    assert read(qr_code("会议 Besprechung é")) == "会议 Besprechung é"


def test_what_has_no_room_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no room for 859 bytes"):
        qr_code("x" * 859)


def test_half_blocks_show_two_rows_in_a_line_with_a_margin() -> None:
    rows = qr_code("hello")
    lines = half_blocks(rows).split("\n")
    assert len(rows) == 21
    assert len(lines) == 13
    bare = [line.removeprefix("\x1b[97;40m").removesuffix("\x1b[0m") for line in lines]
    assert {len(line) for line in bare} == {25}
    shown = [[sign in dark for sign in line] for line in bare for dark in ("▄ ", "▀ ")]
    assert [row[2:-2] for row in shown[2:23]] == rows
    assert not any(any(row) for row in (*shown[:2], *shown[23:]))
