"""The Bergamot (Firefox) models: running them, and reading their weights.

They are "tiny" Marian networks: 6 transformer layers for the source, 2 for the target with a
simple recurrent unit (SSRU) in place of self-attention, all 8-bit integers, layers normalised
after they are added. One table of 32,000 word pieces serves source, target and output.
"""

from __future__ import annotations

import struct
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

Weights = dict[str, np.ndarray]

# Marian's codes of types: 32-bit floats, and 8-bit integers with one multiplier for the matrix.
FLOAT32: Final = 0x404
INT8: Final = 0x4101
# Stored as it is used; all other 8-bit matrices are stored transposed.
NOT_TRANSPOSED: Final = "Wemb"
HEADER: Final = struct.Struct("<QQQQ")


def translator(folder: Path) -> Any:
    """Load a model to translate with. It may be used only by the thread that loads it."""
    import fxtranslate  # noqa: PLC0415  (only the synthesis needs it)

    vocabulary = (folder / "vocab.spm").read_bytes()
    model, lexicon = (folder / "model.bin").read_bytes(), (folder / "lex.bin").read_bytes()
    return fxtranslate.Translator(model, vocabulary, vocabulary, lexicon)


def weights(path: Path) -> Weights:
    """Read a Marian binary file; every matrix as floats, inputs x outputs."""
    data = path.read_bytes()
    _version, size = struct.unpack_from("<QQ", data)
    headers = [HEADER.unpack_from(data, 16 + HEADER.size * number) for number in range(size)]
    at = 16 + HEADER.size * size
    names = []
    for length, *_ in headers:
        names.append(data[at : at + length - 1].decode())
        at += length
    shapes = []
    for _, _, dimensions, _ in headers:
        shapes.append(struct.unpack_from(f"<{dimensions}i", data, at))
        at += 4 * dimensions
    (padding,) = struct.unpack_from("<Q", data, at)
    starts = accumulate((header[3] for header in headers), initial=at + 8 + padding)
    found = {}
    for (_, kind, _, length), name, shape, start in zip(
        headers, names, shapes, starts, strict=False
    ):
        if not name.startswith("special:") and "QuantMult" not in name:
            found[name] = _matrix(name, kind, shape, data[start : start + length])
    return found


def _matrix(name: str, kind: int, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    size = int(np.prod(shape))
    if kind == FLOAT32:
        return np.frombuffer(data, np.float32, size).reshape(shape).copy()
    if kind != INT8:
        raise SystemExit(f"{name} has the type {kind:#x}, which is not known here")
    whole = np.frombuffer(data, np.int8, size).astype(np.float32)
    (multiplier,) = struct.unpack_from("<f", data, size)
    values = whole / np.float32(multiplier)
    if name == NOT_TRANSPOSED:
        return values.reshape(shape)
    return np.ascontiguousarray(values.reshape(shape[::-1]).T)
