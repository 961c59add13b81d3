"""Converts OPUS-MT's networks to the format of CTranslate2, at install and without PyTorch.

They were trained with Marian and published as PyTorch checkpoints. `raw/A-B/` has the weights,
their configuration (`config.json`) and the vocabulary. `A-B/`, which already has the two
sentencepiece models, gets the network with 8-bit matrices. Then `raw` is removed: the pickle is
never read again. Needs the package `ctranslate2`, imported only when it runs. Used by `prepare`.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lingua_speech.models.checkpoints import read_checkpoint
from lingua_speech.models.errors import ModelCorrupt

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

RAW: Final = "raw"
END, UNKNOWN, PADDING = "</s>", "<unk>", "<pad>"


class MarianConfig(msgspec.Struct, frozen=True):
    """The fields of `config.json` that determine the network; other kinds are refused."""

    model_type: Literal["marian"]
    activation_function: Literal["swish", "relu", "gelu"]
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    normalize_before: Literal[False]
    normalize_embedding: Literal[False]
    scale_embedding: bool
    # One table of embeddings for both sides and the output.
    share_encoder_decoder_embeddings: Literal[True] = True


def convert(model: str, folder: Path) -> None:
    """Convert every direction in `raw`, and remove `raw`."""
    raw = folder / RAW
    for one in sorted(raw.iterdir()):
        _convert(model, one, folder / one.name)
        # Removed at once, to free space on the disk.
        shutil.rmtree(one)
    raw.rmdir()


def _convert(model: str, raw: Path, target: Path) -> None:
    try:
        config = msgspec.json.decode((raw / "config.json").read_bytes(), type=MarianConfig)
        tokens = msgspec.json.decode((raw / "vocab.json").read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError) as error:
        raise ModelCorrupt(model, f"{raw.name}: {error}") from error
    weights = Weights(model, read_checkpoint(model, raw / "pytorch_model.bin"))
    words = vocabulary(model, tokens)
    try:
        spec = _spec(config, weights, len(words))
        _describe(spec, words)
        spec.validate()
        spec.optimize(quantization="int8")
    except ValueError as error:  # sizes that do not match
        raise ModelCorrupt(model, f"{raw.name}: {error}") from error
    target.mkdir(exist_ok=True)
    spec.save(str(target))


class Weights:
    """Arrays by name; a missing one raises `ModelCorrupt`."""

    def __init__(self, model: str, arrays: Mapping[str, Any]) -> None:
        self._model = model
        self._arrays = arrays

    def __getitem__(self, name: str) -> Any:
        if name not in self._arrays:
            raise ModelCorrupt(self._model, f"the checkpoint has no {name}")
        return self._arrays[name]


def vocabulary(model: str, tokens: Mapping[str, int]) -> list[str]:
    """Return the tokens in the order of the weights, without the padding, which comes last.

    Padding only marks the start of a translation, which CTranslate2 handles itself.
    """
    words = sorted(tokens, key=tokens.__getitem__)
    if [tokens[word] for word in words] != list(range(len(words))):
        raise ModelCorrupt(model, "the numbers of the vocabulary are not consecutive")
    if words[-1:] != [PADDING] or END not in words or UNKNOWN not in words:
        raise ModelCorrupt(model, f"the vocabulary lacks {END}, {UNKNOWN}, or a last {PADDING}")
    return words[:-1]


def _describe(spec: Any, words: list[str]) -> None:
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token = spec.config.eos_token = END
    spec.config.unk_token = UNKNOWN
    # Not used: a translation begins with a zero embedding.
    spec.config.decoder_start_token = END
    spec.config.add_source_bos = spec.config.add_source_eos = False


def _spec(config: MarianConfig, weights: Weights, size: int) -> Any:
    """Return CTranslate2's specification of the network, with the weights."""
    from ctranslate2.specs import common_spec, transformer_spec  # noqa: PLC0415 - as in `whisper`

    layers = (config.encoder_layers, config.decoder_layers)
    if config.encoder_attention_heads != config.decoder_attention_heads:
        raise ValueError("encoder and decoder have different numbers of heads")
    activation = common_spec.Activation[config.activation_function.upper()]
    spec = transformer_spec.TransformerSpec.from_config(
        layers, config.encoder_attention_heads, pre_norm=False, activation=activation
    )
    words = weights["model.shared.weight"][:size]
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = words
    spec.decoder.projection.weight = words
    spec.decoder.projection.bias = weights["final_logits_bias"].reshape(-1)[:size]
    spec.decoder.start_from_zero_embedding = True
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        side.scale_embeddings = config.scale_embedding
        side.position_encodings.encodings = weights[f"model.{name}.embed_positions.weight"]
        for at, layer in enumerate(side.layer):
            _layer(layer, weights, f"model.{name}.layers.{at}")
    return spec


def _layer(layer: Any, weights: Weights, name: str) -> None:
    own = f"{name}.self_attn"
    _linear(layer.self_attention.linear[0], weights, *(f"{own}.{p}_proj" for p in "qkv"))
    _linear(layer.self_attention.linear[1], weights, f"{own}.out_proj")
    _norm(layer.self_attention.layer_norm, weights, f"{own}_layer_norm")
    if hasattr(layer, "attention"):
        other = f"{name}.encoder_attn"
        _linear(layer.attention.linear[0], weights, f"{other}.q_proj")
        _linear(layer.attention.linear[1], weights, f"{other}.k_proj", f"{other}.v_proj")
        _linear(layer.attention.linear[2], weights, f"{other}.out_proj")
        _norm(layer.attention.layer_norm, weights, f"{other}_layer_norm")
    _linear(layer.ffn.linear_0, weights, f"{name}.fc1")
    _linear(layer.ffn.linear_1, weights, f"{name}.fc2")
    _norm(layer.ffn.layer_norm, weights, f"{name}.final_layer_norm")


def _linear(to: Any, weights: Weights, *names: str) -> None:
    """Join linear layers into one: CTranslate2 computes query, key and value at once."""
    import numpy  # noqa: ICN001, PLC0415 - comes with `ctranslate2`

    to.weight = numpy.concatenate([weights[f"{name}.weight"] for name in names])
    to.bias = numpy.concatenate([weights[f"{name}.bias"] for name in names])


def _norm(to: Any, weights: Weights, name: str) -> None:
    to.gamma, to.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
