"""Step 7: write a trained network as a CTranslate2 model, in the layout the product reads.

The folder has model.bin, config.json, the two vocabularies, source.spm and target.spm. The matrices
become 8-bit integers. Nothing but the tokens of the source and the end mark goes in: one folder is
one direction, there is no token for the language.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import torch
from ctranslate2.specs import common_spec, transformer_spec

from training.translation import start, vocabulary
from training.translation.model import MOST_POSITIONS, Shape, Translator, positions

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

UNKNOWN: Final = "<unk>"


def export(
    direction: str, saved: Path, pieces: Path, out: Path, quantization: str = "int8"
) -> None:
    """Write the mean weights of a saved run to a new folder."""
    model = trained(saved)
    source, target = start.pieces_of(direction, pieces)
    spec = _spec(model)
    spec.register_source_vocabulary(vocabulary.tokens(vocabulary.load(source)))
    spec.register_target_vocabulary(vocabulary.tokens(vocabulary.load(target)))
    spec.config.bos_token = vocabulary.START
    spec.config.eos_token = vocabulary.EOS
    spec.config.unk_token = UNKNOWN
    spec.config.decoder_start_token = vocabulary.START
    spec.config.add_source_bos = spec.config.add_source_eos = False
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(out))
    shutil.copyfile(source, out / "source.spm")
    shutil.copyfile(target, out / "target.spm")


def trained(saved: Path) -> Translator:
    """Load the mean weights of a run, ready to translate."""
    weights = torch.load(saved, weights_only=True)["mean"]
    inner = weights["source_layers.0.feed.first.bias"].shape[0]
    model = Translator(Shape(len(weights["source.weight"]), len(weights["bias"]), inner=inner))
    model.load_state_dict(weights)
    return model.eval()


def _spec(model: Translator) -> Any:
    shape = model.shape
    spec = transformer_spec.TransformerSpec.from_config(
        (shape.source_layers, shape.target_layers),
        shape.heads,
        pre_norm=False,
        activation=common_spec.Activation.RELU,
    )
    table = positions(MOST_POSITIONS, shape.width).numpy()
    for side, embedding in ((spec.encoder, model.source), (spec.decoder, model.target)):
        tables = side.embeddings if isinstance(side.embeddings, list) else [side.embeddings]
        tables[0].weight = _array(embedding.weight)
        side.scale_embeddings = True
        side.position_encodings.encodings = table
    spec.decoder.projection.weight = _array(model.target.weight)
    spec.decoder.projection.bias = _array(model.bias)
    for to, layer in zip(spec.encoder.layer, model.source_layers, strict=True):
        _own(to.self_attention, layer.own)
        _feed(to.ffn, layer.feed)
    for to, layer in zip(spec.decoder.layer, model.target_layers, strict=True):
        _own(to.self_attention, layer.own)
        _cross(to.attention, layer.cross)
        _feed(to.ffn, layer.feed)
    return spec


def _array(tensor: torch.Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()


def _linear(to: Any, *parts: nn.Linear) -> None:
    """Write linear layers as one, since CTranslate2 computes query, key and value at once."""
    to.weight = _array(torch.cat([part.weight for part in parts]))
    to.bias = _array(torch.cat([part.bias for part in parts]))


def _norm(to: Any, norm: nn.LayerNorm) -> None:
    to.gamma, to.beta = _array(norm.weight), _array(norm.bias)


def _own(to: Any, attention: Any) -> None:
    _linear(to.linear[0], attention.query, attention.key, attention.value)
    _linear(to.linear[1], attention.output)
    _norm(to.layer_norm, attention.norm)


def _cross(to: Any, attention: Any) -> None:
    _linear(to.linear[0], attention.query)
    _linear(to.linear[1], attention.key, attention.value)
    _linear(to.linear[2], attention.output)
    _norm(to.layer_norm, attention.norm)


def _feed(to: Any, feed: Any) -> None:
    _linear(to.linear_0, feed.first)
    _linear(to.linear_1, feed.second)
    _norm(to.layer_norm, feed.norm)
