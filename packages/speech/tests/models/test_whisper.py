"""Whisper's optimised networks against the originals; the model is installed if it is missing."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from lingua_speech.models import (
    ModelCorrupt,
    ModelStore,
    default_store,
    prepare,
)

pytestmark = pytest.mark.speech


@pytest.fixture(name="store", scope="module")
def installed_whisper() -> ModelStore:
    store = default_store()
    store.install("whisper-base")
    return store


def test_the_short_encoder_is_the_encoder_and_takes_less(store: ModelStore) -> None:
    import onnxruntime  # noqa: PLC0415 - slow to load, and only this test needs it

    folder = store.path("whisper-base")
    whole = onnxruntime.InferenceSession(folder / "encoder.onnx")
    short = onnxruntime.InferenceSession(folder / "encoder_short.onnx")
    sound = np.random.default_rng(5).standard_normal((1, 80, 3000)).astype(np.float32)
    states = short.run(None, {"input_features": sound})
    assert len(states) == 1
    wanted = whole.run(["last_hidden_state"], {"input_features": sound})[0]
    assert np.abs(states[0] - wanted).max() < 1e-4
    assert short.run(None, {"input_features": sound[:, :, :400]})[0].shape == (1, 200, 512)


def test_the_quicker_decoder_says_what_the_original_says(store: ModelStore) -> None:
    import onnxruntime  # noqa: PLC0415 - slow to load

    folder = store.path("whisper-base")
    random = np.random.default_rng(7)
    hidden = random.standard_normal((1, 60, 512)).astype(np.float32)
    found = []
    for name in ("decoder.onnx", "decoder_fast.onnx"):
        network = onnxruntime.InferenceSession(folder / name)
        fed = {
            "input_ids": np.array([[50258, 50259, 50359, 50363]]),
            "encoder_hidden_states": hidden,
            "use_cache_branch": np.array([False]),
        }
        for one in network.get_inputs():
            if one.name.startswith("past_key_values"):
                shape = (1, one.shape[1], 0, one.shape[3])
                fed[one.name] = np.zeros(shape, np.float32)
        found.append(network.run(["logits"], fed)[0][0])
    original, quicker = found
    assert (original.argmax(axis=1) == quicker.argmax(axis=1)).all()
    # Bytes are less precise than floats, and products of bytes still less on processors that add
    # them in 16 bits (0.9987 there, 0.9995 on others).
    assert np.corrcoef(original.ravel(), quicker.ravel())[0, 1] > 0.998
    assert np.abs(original - quicker).mean() < original.std() / 20


@pytest.mark.parametrize("tables", [0, 2])
def test_an_encoder_without_exactly_one_table_of_positions_is_refused(
    tmp_path: Path, tables: int
) -> None:
    make = onnx.helper
    table = make.make_tensor("table", onnx.TensorProto.FLOAT, [1500, 1], [0.0] * 1500)
    names = ["x", *(f"y{number}" for number in range(tables))]
    nodes = [
        make.make_node("Add", [before, "table"], [after])
        for before, after in itertools.pairwise(names)
    ]
    kind = make.make_tensor_value_info
    graph = make.make_graph(
        nodes, "g", [kind("x", 1, [1, 1500, 1])], [kind(names[-1], 1, [1, 1500, 1])], [table]
    )
    onnx.save(make.make_model(graph), tmp_path / "encoder.onnx")
    with pytest.raises(ModelCorrupt, match=f"has {tables} tables"):
        prepare.run("m", "whisper", tmp_path)
