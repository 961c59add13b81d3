"""Reads the weights of a PyTorch checkpoint without PyTorch and without running code of the file.

Such a file is a pickle, and a pickle is a program. Here it may only assemble names, numbers and
tensors: every other instruction, and every name except the three that a dictionary of tensors
needs, is refused before it is executed. Only the older of PyTorch's two formats is read, which
`torch.save` wrote until version 1.6 and still writes on request:

    pickles: magic number, version, machine, dictionary of tensors, order of the storages
    for each storage in that order: 8 bytes with the count of its numbers, then the numbers

Nothing is copied: the arrays are views of the file. Used by `marian`, at install.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
import pickletools
import struct
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lingua_speech.models.errors import ModelCorrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MAGIC: Final = 0x1950A86A20F9469CFC6C
VERSION: Final = 1001
# All pickles together; those of a model have some tens of kilobytes.
PICKLES_BYTES_MAX: Final = 4 << 20
STORAGES_MAX: Final = 10_000
NUMBER_BYTES: Final = 4
LENGTH: Final = struct.Struct("<q")
# Opcodes that only build data. Opcodes that create objects of other classes, or look up names in
# another way, are missing.
_ALLOWED = (
    "PROTO STOP MARK NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINUNICODE EMPTY_TUPLE"
    " TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINPUT"
    " LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE BUILD"
)
ALLOWED_OPCODES: Final = frozenset(_ALLOWED.split())


class UnsafeCheckpoint(ModelCorrupt):
    """A checkpoint would do more than describe tensors."""


class Storage(NamedTuple):
    """A block of numbers in the file, of which tensors are parts."""

    key: str
    length: int  # in numbers


class Tensor(NamedTuple):
    """A tensor as a part of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def read_checkpoint(model: str, path: Path) -> dict[str, Any]:
    """Return name -> array of 32-bit numbers, for reading only; raises `ModelCorrupt`."""
    import numpy  # noqa: ICN001, PLC0415 - only at install, and only for such a model

    try:
        with path.open("rb") as file:
            tensors, order, start = _read_description(file.read(PICKLES_BYTES_MAX))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        offsets = _storage_offsets(data, order, tensors, start)
        return {
            name: numpy.frombuffer(
                data,
                dtype="<f4",
                count=math.prod(one.shape),
                offset=offsets[one.storage.key] + one.offset * NUMBER_BYTES,
            ).reshape(one.shape)
            for name, one in tensors.items()
        }
    except _Refused as error:
        raise UnsafeCheckpoint(model, f"unsafe checkpoint {path.name}: {error}") from error
    except (ValueError, EOFError, pickle.UnpicklingError) as error:
        raise ModelCorrupt(model, f"cannot read {path.name}: {error}") from error


class _Refused(Exception):
    """A refused instruction; never leaves this module."""


def _read_description(head: bytes) -> tuple[dict[str, Tensor], list[str], int]:
    """Return the tensors, the order of the storages, and the offset of the first storage."""
    stream = io.BytesIO(head)
    magic = _unpickled(stream)
    if magic != MAGIC:
        raise ValueError("it is not a checkpoint in PyTorch's older format")
    version, machine = _unpickled(stream), _unpickled(stream)
    if version != VERSION or not isinstance(machine, dict) or not machine.get("little_endian"):
        raise ValueError("it has another version or is for another kind of machine")
    tensors, order = _unpickled(stream), _unpickled(stream)
    _check(tensors, order)
    return dict(tensors), order, stream.tell()


def _unpickled(stream: io.BytesIO) -> Any:
    """Check every instruction of one pickle, then read it."""
    start = stream.tell()
    for code, _, _ in pickletools.genops(stream):
        if code.name not in ALLOWED_OPCODES:
            raise _Refused(f"it has the instruction {code.name}")
    stream.seek(start)
    try:
        return _Reader(stream).load()
    except (TypeError, AttributeError, KeyError, IndexError) as error:
        # The instructions build an inconsistent structure.
        raise ValueError(f"its tensors are described wrongly: {error}") from error


class _Reader(pickle.Unpickler):
    """Resolves three names only, all of them harmless."""

    def find_class(self, module: str, name: str) -> Any:
        """Return our replacement of a name."""
        # New objects for each use, so that a pickle cannot change later uses.
        known: dict[tuple[str, str], Callable[[], Any]] = {
            ("collections", "OrderedDict"): lambda: _fresh_subclass(OrderedDict),
            ("torch._utils", "_rebuild_tensor_v2"): lambda: lambda *facts: Tensor(*facts[:4]),
            ("torch", "FloatStorage"): lambda: "float",
        }
        if (module, name) not in known:
            raise _Refused(f"it names {module}.{name}"[:200])
        return known[module, name]()

    def persistent_load(self, pid: Any) -> Storage:
        """Return a storage by its description."""
        kind, numbers, key, _, count, view = pid
        if kind != "storage" or numbers != "float" or view is not None:
            raise ValueError("it has storages of other types than 32-bit numbers")
        return Storage(key, count)


def _fresh_subclass(base: type) -> Any:
    return type(base.__name__, (base,), {})


def _check(tensors: object, order: object) -> None:
    """Raise `ValueError` unless these are tensors within the listed storages."""
    if not isinstance(tensors, dict) or not isinstance(order, list) or len(order) > STORAGES_MAX:
        raise ValueError("it is not a dictionary of tensors")
    if not all(isinstance(key, str) for key in (*order, *tensors)):
        raise ValueError("its names are not texts")
    for name, one in tensors.items():
        is_tensor = isinstance(one, Tensor) and isinstance(one.storage, Storage)
        if not is_tensor or one.storage.key not in order or not _is_contiguous(one):
            raise ValueError(f"{name} is not a tensor that is a contiguous part of a storage")


def _is_contiguous(one: Tensor) -> bool:
    """Tell whether a tensor is contiguous and lies within its storage."""
    numbers = (one.offset, one.storage.length, *one.shape, *one.stride)
    if not all(type(number) is int and number >= 0 for number in numbers):
        return False
    wanted = tuple(math.prod(one.shape[at + 1 :]) for at in range(len(one.shape)))
    return one.stride == wanted and one.offset + math.prod(one.shape) <= one.storage.length


def _storage_offsets(
    data: mmap.mmap, order: list[str], tensors: dict[str, Tensor], start: int
) -> dict[str, int]:
    """Return the offset of each storage; the rest of the file must consist of storages."""
    lengths = {one.storage.key: one.storage.length for one in tensors.values()}
    found = dict(_storages(data, order, lengths, start))
    if len(found) != len(order):
        raise ValueError("a storage occurs twice")
    return found


def _storages(
    data: mmap.mmap, order: list[str], lengths: dict[str, int], at: int
) -> Iterator[tuple[str, int]]:
    for key in order:
        if at + LENGTH.size > len(data):
            raise EOFError("it is cut short")
        length = cast("int", LENGTH.unpack_from(data, at)[0])
        at += LENGTH.size
        if length != lengths.get(key, length) or length < 0:
            raise ValueError("a storage has another size than its tensors declare")
        yield key, at
        at += length * NUMBER_BYTES
    if at != len(data):
        raise EOFError("it is cut short, or longer than declared")
