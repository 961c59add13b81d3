"""QR codes for a terminal: text in, half blocks out (ISO/IEC 18004). Pure.

    qr_code(text) ──> rows of modules, True is dark ──> half_blocks(rows)

Bytes as UTF-8, the lowest level of error correction, versions 1 to 20: 858 bytes, enough for an
address with a token. A screen is not scratched, so more correction would only make it larger.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from lingua_wire.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Rows = list[list[bool]]

# By version, from 1 on, a byte each: the error correction codewords of a block, and the number of
# blocks.
CORRECTION: Final = bytes.fromhex("070a0f141a1214181e1214181a1e16181c1e1c1c")
BLOCKS: Final = bytes.fromhex("0101010101020202020404040404060606060708")
LEVEL: Final = 1
VERSION_MAX: Final = len(BLOCKS)
# The version from which lengths have two bytes, and that from which the version is written.
LONG_FROM, NAMED_FROM = 10, 7
BYTE_MODE: Final = 4
PADDING: Final = (0xEC, 0x11)
QUIET: Final = 2

MASKS: Final[tuple[Callable[[int, int], bool], ...]] = (
    lambda x, y: (x + y) % 2 == 0,
    lambda _, y: y % 2 == 0,
    lambda x, _: x % 3 == 0,
    lambda x, y: (x + y) % 3 == 0,
    lambda x, y: (x // 3 + y // 2) % 2 == 0,
    lambda x, y: x * y % 2 + x * y % 3 == 0,
    lambda x, y: (x * y % 2 + x * y % 3) % 2 == 0,
    lambda x, y: ((x + y) % 2 + x * y % 3) % 2 == 0,
)


def qr_code(text: str) -> Rows:
    """Return the modules of the smallest code for a text."""
    data = text.encode()
    version = next((v for v in range(1, VERSION_MAX + 1) if _fits(len(data), v)), None)
    if version is None:
        raise InvalidInput(f"a QR code has no room for {len(data)} bytes")
    bits = _bits(interleaved(codewords(data, version), version))
    codes = [_Drawing(version, bits, mask).rows for mask in range(len(MASKS))]
    return min(codes, key=penalty)


def half_blocks(rows: Rows) -> str:
    """Return a code for a terminal, dark on light whatever its colours are, two rows to a line."""
    wide = len(rows) + 2 * QUIET
    margin = [[False] * wide for _ in range(QUIET)]
    side = [False] * QUIET
    all_rows = [*margin, *([*side, *row, *side] for row in rows), *margin, [False] * wide]
    signs = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
    lines = (
        "".join(signs[upper, lower] for upper, lower in zip(*pair, strict=True))
        for pair in zip(all_rows[::2], all_rows[1::2], strict=False)
    )
    # Light modules are drawn in white, so that a dark and a light terminal show the same.
    return "\n".join(f"\x1b[97;40m{line}\x1b[0m" for line in lines)


# Codewords


def capacity(version: int) -> int:
    """Return the codewords of a version, with those of error correction."""
    modules = (16 * version + 128) * version + 64
    if version > 1:
        aligned = version // 7 + 2
        modules -= (25 * aligned - 10) * aligned - 55
    if version >= NAMED_FROM:
        modules -= 36
    return modules // 8


def data_capacity(version: int) -> int:
    """Return the codewords of a version that hold data."""
    return capacity(version) - CORRECTION[version - 1] * BLOCKS[version - 1]


def _fits(size: int, version: int) -> bool:
    return 4 + _length_bits(version) + 8 * size <= 8 * data_capacity(version)


def _length_bits(version: int) -> int:
    return 16 if version >= LONG_FROM else 8


def codewords(data: bytes, version: int) -> bytes:
    """Return the data codewords of a text."""
    length = _length_bits(version)
    number = BYTE_MODE << length | len(data)
    number = number << 8 * len(data) | int.from_bytes(data)
    used = 4 + length + 8 * len(data)
    room = 8 * data_capacity(version)
    end = min(4, room - used)
    used, number = used + end, number << end
    rest = -used % 8
    found = (number << rest).to_bytes((used + rest) // 8)
    missing = room // 8 - len(found)
    return found + bytes(PADDING[at % 2] for at in range(missing))


def interleaved(data: bytes, version: int) -> bytes:
    """Return data and error correction in the order in which they are drawn."""
    count, extra = BLOCKS[version - 1], CORRECTION[version - 1]
    short, longer = divmod(len(data), count)
    blocks, at = [], 0
    for number in range(count):
        size = short + (number >= count - longer)
        blocks.append(data[at : at + size])
        at += size
    checks = [correction(block, extra) for block in blocks]
    columns = ([block[i] for block in blocks if i < len(block)] for i in range(short + 1))
    return bytes(chain(*columns, *zip(*checks, strict=True)))


def correction(data: Sequence[int], count: int) -> bytes:
    """Return the error correction codewords of a block: a remainder over GF(256)."""
    factors = [1]
    root = 1
    for _ in range(count):
        factors = [
            _times(left, root) ^ right
            for left, right in zip([0, *factors], [*factors, 0], strict=True)
        ]
        root = _times(root, 2)
    rest = [0] * count
    for value in data:
        lead = value ^ rest[0]
        rest = [
            old ^ _times(factor, lead)
            for old, factor in zip([*rest[1:], 0], factors[1:], strict=True)
        ]
    return bytes(rest)


def _times(one: int, other: int) -> int:
    product = 0
    for at in range(7, -1, -1):
        product = product << 1 ^ (product >> 7) * 0x11D ^ (other >> at & 1) * one
    return product


def _bits(data: bytes) -> list[bool]:
    return [bool(value >> at & 1) for value in data for at in range(7, -1, -1)]


# Drawing


def format_bits(mask: int) -> int:
    """Return the level and the mask, with their error correction."""
    data = LEVEL << 3 | mask
    return (data << 10 | _remainder(data, 10, 0x537)) ^ 0x5412


def version_bits(version: int) -> int:
    """Return the version with its error correction."""
    return version << 12 | _remainder(version, 12, 0x1F25)


def _remainder(data: int, count: int, factors: int) -> int:
    rest = data
    for _ in range(count):
        rest = rest << 1 ^ (rest >> count - 1) * factors
    return rest


class _Drawing:
    """One code: patterns first, then data around them."""

    def __init__(self, version: int, bits: list[bool], mask: int) -> None:
        self.size = 4 * version + 17
        self.rows: Rows = [[False] * self.size for _ in range(self.size)]
        self.taken: Rows = [[False] * self.size for _ in range(self.size)]
        self._patterns(version)
        self._format(mask)
        self._data(bits, mask)

    def _set(self, x: int, y: int, *, dark: bool) -> None:
        self.rows[y][x], self.taken[y][x] = dark, True

    def _patterns(self, version: int) -> None:
        for at in range(self.size):
            self._set(6, at, dark=at % 2 == 0)
            self._set(at, 6, dark=at % 2 == 0)
        last = self.size - 4
        for x, y in ((3, 3), (last, 3), (3, last)):
            self._rings(x, y, 4, (2, 4))
        places = aligned_at(version)
        corners = {(6, 6), (6, self.size - 7), (self.size - 7, 6)}
        for x in places:
            for y in places:
                if (x, y) not in corners:
                    self._rings(x, y, 2, (1,))
        if version >= NAMED_FROM:
            bits = version_bits(version)
            for at in range(18):
                far, near = self.size - 11 + at % 3, at // 3
                self._set(far, near, dark=bool(bits >> at & 1))
                self._set(near, far, dark=bool(bits >> at & 1))

    def _rings(self, x: int, y: int, reach: int, light: tuple[int, ...]) -> None:
        for row in range(max(0, y - reach), min(self.size, y + reach + 1)):
            for column in range(max(0, x - reach), min(self.size, x + reach + 1)):
                distance = max(abs(column - x), abs(row - y))
                self._set(column, row, dark=distance not in light)

    def _format(self, mask: int) -> None:
        bits, size = format_bits(mask), self.size
        first = [*((8, y) for y in range(6)), (8, 7), (8, 8), (7, 8)]
        first += [(14 - at, 8) for at in range(9, 15)]
        second = [(size - 1 - at, 8) for at in range(8)]
        second += [(8, size - 15 + at) for at in range(8, 15)]
        for at, places in enumerate(zip(first, second, strict=True)):
            for x, y in places:
                self._set(x, y, dark=bool(bits >> at & 1))
        self._set(8, size - 8, dark=True)

    def _data(self, bits: list[bool], mask: int) -> None:
        left = iter(bits)
        for x, y in data_places(self.size):
            if not self.taken[y][x]:
                self.rows[y][x] = next(left, False) ^ MASKS[mask](x, y)


def aligned_at(version: int) -> list[int]:
    """Return the rows and columns of the alignment patterns."""
    if version == 1:
        return []
    count = version // 7 + 2
    step = (version * 4 + count * 2 + 1) // (count * 2 - 2) * 2
    last = 4 * version + 10
    return [6, *sorted(last - step * at for at in range(count - 1))]


def data_places(size: int) -> Iterator[tuple[int, int]]:
    """Yield all places in the order of the data: columns in pairs, up and down."""
    rights = [*range(size - 1, 6, -2), 5, 3, 1]
    for number, right in enumerate(rights):
        upward = number % 2 == 0
        for at in range(size):
            y = size - 1 - at if upward else at
            yield right, y
            yield right - 1, y


def penalty(rows: Rows) -> int:
    """Return how hard a code is to read: long runs, blocks, false finders, too dark or light."""
    found = 0
    for line in chain(rows, (list(column) for column in zip(*rows, strict=True))):
        text = "".join("1" if dark else "0" for dark in line)
        for run in text.replace("01", "0 1").replace("10", "1 0").split():
            found += len(run) - 2 if len(run) >= 5 else 0
        found += 40 * (text.count("10111010000") + text.count("00001011101"))
    size = len(rows)
    for y in range(size - 1):
        for x in range(size - 1):
            square = rows[y][x] + rows[y][x + 1] + rows[y + 1][x] + rows[y + 1][x + 1]
            found += 3 if square in (0, 4) else 0
    dark = sum(map(sum, rows)) * 20 // (size * size)
    return found + 10 * abs(dark - 10)
