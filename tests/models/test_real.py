"""The real models of the group `bench`, installed if they are not there: about 160 MB.

This is how a fresh machine gets them for the other tests of speech; a second run asks no network.
"""

from __future__ import annotations

import itertools
import shlex
import subprocess
import wave
from pathlib import Path

import numpy as np
import onnx
import pytest

from lingua_scheduler.models import (
    ModelCorrupt,
    Store,
    apertium_environment,
    default_store,
    prepare,
)

pytestmark = pytest.mark.speech


@pytest.fixture(name="store", scope="module")
def installed_bench() -> Store:
    store = default_store()
    store.install("bench")
    return store


@pytest.mark.parametrize("name", default_store().catalogue.groups["bench"])
def test_every_model_of_the_bench_is_whole(store: Store, name: str) -> None:
    assert store.verify(name) == []


@pytest.mark.parametrize("name", ["librivox-en", "prompts-en", "prompts-es"])
def test_every_transcript_has_its_recording(store: Store, name: str) -> None:
    folder = store.path(f"recordings-{name}")
    lines = (folder / "transcripts.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) >= (5 if name == "librivox-en" else 400)
    for line in lines:
        key, text = line.split("\t")
        assert text
        with wave.open(str(folder / "wav" / f"{key}.wav"), "rb") as sound:
            assert (sound.getnchannels(), sound.getsampwidth()) == (1, 2)
            assert sound.getnframes() > 0


def test_the_short_encoder_is_the_encoder_and_takes_less(store: Store) -> None:
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


def test_the_quicker_decoder_says_what_the_original_says(store: Store) -> None:
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
    # Bytes are coarser than floats, and products of bytes coarser still on processors that add them
    # up in 16 bits (0.9987 there, 0.9995 elsewhere).
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


@pytest.mark.parametrize(
    ("name", "mode", "text", "wanted"),
    [
        ("apertium-eng-spa", "eng-spa", "I need a doctor", "Necesito un doctor"),
        ("apertium-eng-spa", "spa-eng", "La casa es grande", "The house is big"),
        ("apertium-fra-spa", "fr-es", "La maison est grande", "La casa es grande"),
        ("apertium-fra-spa", "es-fr", "La casa es grande", "La maison est grande"),
    ],
)
def test_the_programs_translate_from_their_folder_alone(
    store: Store, name: str, mode: str, text: str, wanted: str
) -> None:
    """Run a mode's pipeline with an environment that has nothing but the model's own folders."""
    root = store.path(name) / "root"
    ours = {key: value.split(":")[0] for key, value in apertium_environment(store).items()}
    line = (root / "usr/share/apertium/modes" / f"{mode}.mode").read_text()
    line = line.replace("/usr/share/apertium", str(root / "usr/share/apertium"))
    data = f"{text}\n"
    for stage in line.replace("$1", "-g").replace("$2", "").split("|"):
        words = shlex.split(stage)
        program = Path(ours["PATH"]) / words[0]
        data = subprocess.run(
            [program, *words[1:]], input=data, capture_output=True, text=True, check=True,
            env={**ours, "LC_ALL": "C.UTF-8"}, timeout=60,
        ).stdout  # fmt: skip
    assert data.strip() == wanted
