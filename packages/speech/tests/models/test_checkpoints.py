"""Checkpoints: the numbers are read exactly, and no code in them is ever run."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.models import ModelCorrupt, UnsafeCheckpoint
from lingua_speech.models.checkpoints import read_checkpoint
from models import torch_files as torch

pytestmark = pytest.mark.unit

ARRAYS = {
    "model.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "model.bias": np.array([0.5, -1.5], dtype=np.float32),
    "one": np.array(7, dtype=np.float32),
}
GOOD = torch.checkpoint(ARRAYS)


def read(tmp_path: Path, data: bytes) -> dict[str, np.ndarray]:
    file = tmp_path / "pytorch_model.bin"
    file.write_bytes(data)
    return read_checkpoint("m", file)


def with_tensors(tensors: bytes, keys: tuple[str, ...] = ("0",), length: int = 4) -> bytes:
    """Return a checkpoint with another object in place of the tensors."""
    numbers = struct.pack("<q", length) + bytes(4 * length)
    return torch.head(tensors, list(keys)) + numbers * len(keys)


def test_every_tensor_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)


def test_what_is_done_to_an_array_does_not_reach_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD)
    found["model.weight"] *= 2
    assert (tmp_path / "pytorch_model.bin").read_bytes() == GOOD


def test_tensors_may_be_parts_of_one_storage(tmp_path: Path) -> None:
    parts = {"a": torch.tensor("0", (2,), 0, 4), "b": torch.tensor("0", (1, 2), 2, 4)}
    data = torch.head(torch.named(parts), ["0"]) + struct.pack("<q4f", 4, 1, 2, 3, 4)
    found = read(tmp_path, data)
    assert (found["a"].tolist(), found["b"].tolist()) == ([1, 2], [[3, 4]])


MARK = "ran.txt"


class Runs:
    """An object whose pickle writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_runs_something_is_refused_and_does_not_run(
    tmp_path: Path, protocol: int
) -> None:
    evil = pickle.dumps(Runs(tmp_path / MARK), protocol)
    for data in (evil, GOOD[:23] + evil, evil + GOOD):
        with pytest.raises(UnsafeCheckpoint, match=r"unsafe checkpoint pytorch_model\.bin"):
            read(tmp_path, data)
    assert not (tmp_path / MARK).exists()
    # The usual way of reading a pickle does write it.
    pickle.loads(evil)
    assert (tmp_path / MARK).exists()


@pytest.mark.parametrize(
    "body",
    [
        torch.called("os.system", torch.text("true")),
        torch.called("builtins.getattr", torch.text("a"), torch.text("b")),
        torch.called("torch._utils._rebuild_parameter", torch.number(1)),
        torch.called("collections.abc.Callable"),
        torch.called("collections.OrderedDict.__init_subclass__"),
        torch.named({"a": torch.storage("0", 4, "LongStorage")}),
        b"ios\nsystem\n(X\x04\x00\x00\x00true",  # INST
        b"(cos\nsystem\nX\x04\x00\x00\x00trueo",  # OBJ
        torch.text("os") + torch.text("system") + b"\x93)R",  # STACK_GLOBAL
        b"\x82\x01)R",  # EXT1
    ],
)
def test_every_other_name_and_instruction_is_refused(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(UnsafeCheckpoint):
        read(tmp_path, with_tensors(body))


@pytest.mark.parametrize(
    "body",
    [
        torch.number(5),
        torch.named({"a": torch.text("no tensor")}),
        torch.named({"a": torch.tensor("another", (4,))}),
        torch.named({"a": torch.tensor("0", (5,), 0, 4)}),
        torch.named({"a": torch.tensor("0", (4,), 1, 4)}),
        torch.named({"a": torch.tensor("0", (4,), -1, 4)}),
        torch.named({"a": torch.tensor("0", (-4,), 0, 4)}),
        torch.named({"a": torch.tensor("0", (3,), 0, 3)}),
        torch.named({"a": torch.called("torch._utils._rebuild_tensor_v2")}),
        torch.named({"a": torch.text("storage") + b"Q"}),
        torch.called("collections.OrderedDict", torch.number(5)),
        torch.number(5) + torch.number(6) + b"b",  # BUILD of a number
        b"h\x07",  # BINGET of what nobody put
        b"t",  # TUPLE without its beginning
    ],
)
def test_tensors_that_are_described_wrongly_are_told(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(ModelCorrupt, match=r"cannot read pytorch_model.bin: ") as caught:
        read(tmp_path, with_tensors(body))
    assert not isinstance(caught.value, UnsafeCheckpoint)


def test_a_tensor_that_is_not_in_one_piece_is_refused(tmp_path: Path) -> None:
    strides = torch.several(torch.number(1), torch.number(2))
    shape = torch.several(torch.number(2), torch.number(2))
    turned = torch.called(
        "torch._utils._rebuild_tensor_v2", torch.storage("0", 4), torch.number(0), shape, strides
    )
    with pytest.raises(ModelCorrupt, match="not a tensor that is a contiguous part"):
        read(tmp_path, with_tensors(torch.named({"a": turned})))


def test_a_storage_that_comes_twice_is_refused(tmp_path: Path) -> None:
    body = torch.named({"a": torch.tensor("0", (4,))})
    with pytest.raises(ModelCorrupt, match="occurs twice"):
        read(tmp_path, with_tensors(body, ("0", "0")))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04" + bytes(100), torch.whole(torch.number(5))])
def test_what_is_no_such_checkpoint_is_told(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ModelCorrupt):
        read(tmp_path, data)


def test_another_version_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelCorrupt, match="another version"):
        read(tmp_path, GOOD.replace(torch.number(1001), torch.number(1002), 1))


@given(st.integers(0, len(GOOD) - 1))
def test_one_that_is_cut_short_anywhere_is_told(
    tmp_path_factory: pytest.TempPathFactory, size: int
) -> None:
    with pytest.raises(ModelCorrupt):
        read(tmp_path_factory.mktemp("cut"), GOOD[:size])


def test_one_with_something_behind_it_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelCorrupt, match="longer than declared"):
        read(tmp_path, GOOD + b"x")


@given(st.data())
def test_one_that_is_damaged_anywhere_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    damaged = bytearray(GOOD)
    damaged[data.draw(st.integers(0, len(GOOD) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(tmp_path_factory.mktemp("bad"), bytes(damaged))
    except ModelCorrupt:
        return
    assert all(array.dtype == np.float32 for array in found.values())
