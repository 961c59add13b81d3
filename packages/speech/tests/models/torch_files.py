"""Writes checkpoints in PyTorch's older format, and a complete small Marian model.

No PyTorch is needed, and the pickles can contain anything, including hostile instructions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
WIDTH, INNER, HEADS, POSITIONS = 32, 64, 4, 512
CONFIG = {
    "model_type": "marian",
    "activation_function": "swish",
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "normalize_before": False,
    "normalize_embedding": False,
    "scale_embedding": True,
    "d_model": WIDTH,
}
Arrays = Mapping[str, np.ndarray]


# Instructions of a pickle.


def whole(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def several(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def called(name: str, *items: bytes) -> bytes:
    """Return the instructions that call a function with these arguments."""
    module, _, function = name.rpartition(".")
    return f"c{module}\n{function}\n".encode() + several(*items) + b"R"


def storage(key: str, length: int, kind: str = "FloatStorage") -> bytes:
    named = f"ctorch\n{kind}\n".encode()
    return several(text("storage"), named, text(key), text("cpu"), number(length), b"N") + b"Q"


def tensor(key: str, shape: tuple[int, ...], offset: int = 0, length: int = -1) -> bytes:
    size = int(np.prod(shape))
    strides = [int(np.prod(shape[at + 1 :])) for at in range(len(shape))]
    parts = (several(*map(number, shape)), several(*map(number, strides)))
    held = storage(key, size if length < 0 else length)
    hooks = called("collections.OrderedDict")
    return called("torch._utils._rebuild_tensor_v2", held, number(offset), *parts, b"\x89", hooks)


def named(items: Mapping[str, bytes]) -> bytes:
    """Return an ordered dictionary, with the metadata that PyTorch gives it."""
    pairs = b"".join(text(name) + item for name, item in items.items())
    metadata = b"}" + text("_metadata") + called("collections.OrderedDict") + b"s"
    return called("collections.OrderedDict") + b"(" + pairs + b"u" + metadata + b"b"


def head(tensors: bytes, keys: list[str]) -> bytes:
    """Return the part of a checkpoint before the numbers."""
    magic = b"\x8a\x0a" + MAGIC.to_bytes(10, "little")
    machine = b"}(" + text("protocol_version") + number(1001) + text("little_endian") + b"\x88u"
    order = b"](" + b"".join(map(text, keys)) + b"e"
    return b"".join(map(whole, (magic, number(1001), machine, tensors, order)))


def checkpoint(arrays: Arrays) -> bytes:
    """Return a checkpoint of these arrays, each in a storage of its own."""
    keys = [str(at) for at in range(len(arrays))]
    tensors = {
        name: tensor(key, arrays[name].shape) for name, key in zip(arrays, keys, strict=True)
    }
    numbers = [struct.pack("<q", one.size) + one.astype("<f4").tobytes() for one in arrays.values()]
    return head(named(tensors), keys) + b"".join(numbers)


# A Marian model


def marian_arrays(words: int, seed: int = 7) -> dict[str, np.ndarray]:
    """Return random weights of a model with so many words, which 8 bits represent exactly."""
    random = np.random.default_rng(seed)

    def of(*shape: int) -> np.ndarray:
        numbers = random.integers(-127, 128, shape)
        numbers[..., 0] = 127
        return (numbers * 0.004).astype(np.float32)

    found = {"final_logits_bias": of(1, words), "model.shared.weight": of(words, WIDTH)}
    for side, layers in (("encoder", 2), ("decoder", 1)):
        found[f"model.{side}.embed_positions.weight"] = of(POSITIONS, WIDTH)
        for at in range(layers):
            name = f"model.{side}.layers.{at}"
            kinds = ["self_attn", *(["encoder_attn"] if side == "decoder" else [])]
            for kind in kinds:
                for part in ("k_proj", "v_proj", "q_proj", "out_proj"):
                    found[f"{name}.{kind}.{part}.weight"] = of(WIDTH, WIDTH)
                    found[f"{name}.{kind}.{part}.bias"] = of(WIDTH)
            for norm in (*(f"{kind}_layer_norm" for kind in kinds), "final_layer_norm"):
                found[f"{name}.{norm}.weight"] = 1 + of(WIDTH)
                found[f"{name}.{norm}.bias"] = of(WIDTH)
            for part, shape in (("fc1", (INNER, WIDTH)), ("fc2", (WIDTH, INNER))):
                found[f"{name}.{part}.weight"] = of(*shape)
                found[f"{name}.{part}.bias"] = of(shape[0])
    return found


def write_marian(folder: Path, words: list[str], arrays: Arrays) -> None:
    """Write the files that upstream publishes of a direction; `words` end with the padding."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    vocabulary = {word: at for at, word in enumerate(words)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "pytorch_model.bin").write_bytes(checkpoint(arrays))
