"""Conversion of Marian's networks: the same probabilities, and the pickle is removed."""

from __future__ import annotations

import json
from pathlib import Path

import ctranslate2
import numpy as np
import pytest

from lingua_speech.models import ModelCorrupt
from lingua_speech.models.marian import convert
from models import torch_files as torch

pytestmark = pytest.mark.unit

WORDS = ["</s>", "<unk>", "▁the", "▁la", "▁ley", "▁law", "s", "▁good", "▁buena", "<pad>"]
SOURCE, TARGET = ["▁the", "▁good", "▁law", "s", "</s>"], ["▁la", "▁buena", "▁ley", "s"]
NEAR = 0.005


@pytest.fixture(name="arrays", scope="module")
def weights() -> dict[str, np.ndarray]:
    return torch.marian_arrays(len(WORDS))


def converted(tmp_path: Path, arrays: torch.Arrays, words: list[str] = WORDS) -> Path:
    torch.write_marian(tmp_path / "raw" / "en-es", words, arrays)
    convert("m", tmp_path)
    return tmp_path / "en-es"


class Marian:
    """The network step by step as in its paper, as the reference of the converted one."""

    def __init__(self, arrays: torch.Arrays) -> None:
        self._arrays = arrays

    def log_probabilities(self, source: list[str], target: list[str]) -> list[float]:
        """Return the log-probability of each word of a translation, including its end."""
        read = self._layers("encoder", self._embedded("encoder", [WORDS.index(w) for w in source]))
        wanted = [WORDS.index(word) for word in (*target, "</s>")]
        # It begins with a zero embedding, not with the weights of the padding.
        written = self._embedded("decoder", [None, *wanted[:-1]])
        written = self._layers("decoder", written, read)
        shared, bias = self._arrays["model.shared.weight"], self._arrays["final_logits_bias"]
        scores = (written @ shared.T + bias)[:, :-1]
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return [float(row[at]) for row, at in zip(scores, wanted, strict=True)]

    def _embedded(self, side: str, words: list[int | None]) -> np.ndarray:
        shared = self._arrays["model.shared.weight"] * np.sqrt(torch.WIDTH)
        nothing = np.zeros(torch.WIDTH)
        found = np.stack([nothing if word is None else shared[word] for word in words])
        return found + self._arrays[f"model.{side}.embed_positions.weight"][: len(words)]

    def _layers(self, side: str, x: np.ndarray, read: np.ndarray | None = None) -> np.ndarray:
        for at in range(torch.CONFIG[f"{side}_layers"]):
            name = f"model.{side}.layers.{at}"
            mask = np.triu(np.full((len(x), len(x)), -1e9), 1) if read is not None else 0.0
            heard = self._attention(f"{name}.self_attn", x, x, mask)
            x = self._normed(f"{name}.self_attn_layer_norm", x + heard)
            if read is not None:
                heard = self._attention(f"{name}.encoder_attn", x, read, 0.0)
                x = self._normed(f"{name}.encoder_attn_layer_norm", x + heard)
            inner = self._linear(f"{name}.fc1", x)
            inner = self._linear(f"{name}.fc2", inner / (1 + np.exp(-inner)))
            x = self._normed(f"{name}.final_layer_norm", x + inner)
        return x

    def _attention(
        self, name: str, x: np.ndarray, other: np.ndarray, mask: np.ndarray | float
    ) -> np.ndarray:
        q, k, v = (
            self._linear(f"{name}.{part}_proj", y).reshape(len(y), torch.HEADS, -1).swapaxes(0, 1)
            for part, y in (("q", x), ("k", other), ("v", other))
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(torch.WIDTH / torch.HEADS) + mask
        parts = np.exp(scores - scores.max(axis=-1, keepdims=True))
        found = (parts / parts.sum(axis=-1, keepdims=True)) @ v
        return self._linear(f"{name}.out_proj", found.swapaxes(0, 1).reshape(len(x), -1))

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ self._arrays[f"{name}.weight"].T + self._arrays[f"{name}.bias"])

    def _normed(self, name: str, x: np.ndarray) -> np.ndarray:
        even = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return np.asarray(even * self._arrays[f"{name}.weight"] + self._arrays[f"{name}.bias"])


def test_the_converted_network_finds_the_same_as_probable(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    path = converted(tmp_path, arrays)
    translator = ctranslate2.Translator(str(path), compute_type="float32")
    found = translator.score_batch([SOURCE], [TARGET])[0].log_probs
    wanted = Marian(arrays).log_probabilities(SOURCE, TARGET)
    np.testing.assert_allclose(found, wanted, atol=NEAR)
    assert np.ptp(wanted) > 1


@pytest.mark.parametrize("part", ["q_proj", "v_proj", "out_proj"])
def test_and_another_network_finds_something_else(arrays: dict[str, np.ndarray], part: str) -> None:
    """A control: the comparison above cannot succeed by chance."""
    other = dict(arrays)
    name = f"model.decoder.layers.0.encoder_attn.{part}.weight"
    other[name] = np.ascontiguousarray(other[name][::-1])
    wanted = Marian(arrays).log_probabilities(SOURCE, TARGET)
    found = Marian(other).log_probabilities(SOURCE, TARGET)
    assert np.abs(np.subtract(found, wanted)).max() > 2 * NEAR


def test_the_checkpoint_is_gone_and_the_padding_is_no_word(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    path = converted(tmp_path, arrays)
    assert not (tmp_path / "raw").exists()
    assert {file.name for file in path.iterdir()} == {
        "model.bin",
        "config.json",
        "shared_vocabulary.json",
    }
    assert json.loads((path / "shared_vocabulary.json").read_text()) == WORDS[:-1]
    config = json.loads((path / "config.json").read_text())
    assert (config["eos_token"], config["add_source_eos"]) == ("</s>", False)


def test_a_conversion_gives_the_same_file_each_time(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    first, second = (converted(tmp_path / name, arrays) / "model.bin" for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_weight_that_is_missing_is_named(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    name = "model.decoder.layers.0.fc2.bias"
    rest = {key: array for key, array in arrays.items() if key != name}
    with pytest.raises(ModelCorrupt, match=f"the checkpoint has no {name}"):
        converted(tmp_path, rest)


def test_weights_that_do_not_fit_each_other_are_told(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    name = "model.encoder.layers.0.self_attn.k_proj.weight"
    with pytest.raises(ModelCorrupt, match="en-es: "):
        converted(tmp_path, {**arrays, name: np.zeros((3, 5), np.float32)})


@pytest.mark.parametrize(
    "words",
    [WORDS[:-1], ["<pad>", *WORDS[:-1]], [*WORDS[1:-1], "x", "<pad>"], []],
)
def test_another_vocabulary_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], words: list[str]
) -> None:
    with pytest.raises(ModelCorrupt, match="the vocabulary lacks"):
        converted(tmp_path, arrays, words)


def test_a_vocabulary_with_a_hole_is_refused(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    raw = tmp_path / "raw" / "en-es"
    torch.write_marian(raw, WORDS, arrays)
    (raw / "vocab.json").write_text('{"</s>": 0, "<unk>": 2}')
    with pytest.raises(ModelCorrupt, match="not consecutive"):
        convert("m", tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "bart"),
        ("normalize_before", True),
        ("activation_function", "tanh"),
        ("encoder_attention_heads", 2),
        ("share_encoder_decoder_embeddings", False),
        ("encoder_layers", "two"),
    ],
)
def test_a_network_of_another_shape_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], key: str, value: object
) -> None:
    raw = tmp_path / "raw" / "en-es"
    torch.write_marian(raw, WORDS, arrays)
    (raw / "config.json").write_text(json.dumps({**torch.CONFIG, key: value}))
    with pytest.raises(ModelCorrupt, match="en-es: "):
        convert("m", tmp_path)


def test_a_file_that_is_missing_is_told(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    raw = tmp_path / "raw" / "en-es"
    torch.write_marian(raw, WORDS, arrays)
    (raw / "vocab.json").unlink()
    with pytest.raises(ModelCorrupt, match=r"vocab\.json"):
        convert("m", tmp_path)
