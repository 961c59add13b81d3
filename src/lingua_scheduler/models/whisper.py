"""Whisper's two networks, changed once at install so that they take a fraction of the time.

The encoder adds a table of 1500 positions to its input and so always works on 30 s: the table is
cut to the input's real length. The decoder turns its last layer, 26 MB of bytes, into 106 MB of
floats for every token: it is multiplied as bytes, like all the others. Inputs, outputs and weights
stay what they are. Needs the package `onnx`, imported only when it runs. Used by `prepare`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_scheduler.models.errors import ModelCorrupt

if TYPE_CHECKING:
    from pathlib import Path

POSITIONS = 1500  # of Whisper's encoder: 30 s in steps of 20 ms
NAMES = "lingua_"  # prefix of what we add to a graph
LAST_LAYER = NAMES + "last_layer"


def make_quicker(model: str, folder: Path) -> None:
    """Write both networks beside the originals."""
    shorten_encoder(model, folder)
    quicken_decoder(model, folder)


def shorten_encoder(model: str, folder: Path) -> None:
    """Write `encoder_short.onnx`, which takes any length of audio up to 30 s."""
    import onnx  # noqa: PLC0415 - only this step needs it, and only at install

    network = onnx.load(folder / "encoder.onnx")
    graph = network.graph
    index, slot = _position_sum(model, graph)
    node = graph.node[index]
    table, frames = node.input[slot], node.input[1 - slot]
    node.input[slot] = NAMES + "positions"
    for new in reversed(_cutting(onnx, table, frames)):
        graph.node.insert(index, new)
    graph.initializer.extend(_numbers(onnx, _row_axis(graph, table)))
    _loosen(graph)
    onnx.checker.check_model(network)
    onnx.save(network, folder / "encoder_short.onnx")


def _position_sum(model: str, graph: Any) -> tuple[int, int]:
    """Return the one sum with the table of positions: its node and which input the table is."""
    tables = {value.name for value in graph.initializer if list(value.dims[-2:-1]) == [POSITIONS]}
    found = [
        (index, slot)
        for index, node in enumerate(graph.node)
        if node.op_type == "Add"
        for slot, name in enumerate(node.input)
        if name in tables
    ]
    if len(found) != 1:
        raise ModelCorrupt(model, f"the encoder has {len(found)} tables of positions, not one")
    return found[0]


def _row_axis(graph: Any, table: str) -> int:
    return next(len(value.dims) - 2 for value in graph.initializer if value.name == table)


def _cutting(onnx: Any, table: str, frames: str) -> list[Any]:
    """Return the nodes that cut the table to as many rows as there are frames."""
    make = onnx.helper.make_node
    return [
        make("Shape", [frames], [NAMES + "shape"]),
        make("Gather", [NAMES + "shape", NAMES + "one"], [NAMES + "length"], axis=0),
        make(
            "Slice",
            [table, NAMES + "zero", NAMES + "length", NAMES + "axis"],
            [NAMES + "positions"],
        ),
    ]


def _numbers(onnx: Any, axis: int) -> list[Any]:
    make = onnx.helper.make_tensor
    values = {"zero": 0, "one": 1, "axis": axis}
    return [
        make(NAMES + name, onnx.TensorProto.INT64, [1], [value]) for name, value in values.items()
    ]


def _loosen(graph: Any) -> None:
    """Declare the lengths as open and keep one output: nobody reads the maps of attention."""
    graph.input[0].type.tensor_type.shape.dim[2].dim_param = "frames"
    graph.output[0].type.tensor_type.shape.dim[1].dim_param = "positions"
    del graph.output[1:]
    del graph.value_info[:]


def quicken_decoder(model: str, folder: Path) -> None:
    """Write `decoder_fast.onnx`, whose last layer is multiplied as bytes."""
    import onnx  # noqa: PLC0415 - only this step needs it, and only at install

    network = onnx.load(folder / "decoder.onnx")
    graph = network.graph
    # The first token and later ones go different ways through it.
    choices = [node for node in graph.node if node.op_type == "If"]
    if len(choices) != 1:
        raise ModelCorrupt(model, f"the decoder has {len(choices)} branches, not one")
    weights = {_multiply_bytes(model, onnx, branch) for branch in choices[0].attribute}
    tables = [value for value in graph.initializer if value.name in weights]
    if len(weights) != 1 or len(tables) != 1:
        raise ModelCorrupt(model, "the decoder has no single last layer")
    turned = onnx.numpy_helper.to_array(tables[0]).T.copy()
    graph.initializer.append(onnx.numpy_helper.from_array(turned, LAST_LAYER))
    # The table itself stays: it is also the embedding of tokens.
    onnx.checker.check_model(network)
    onnx.save(network, folder / "decoder_fast.onnx")


def _multiply_bytes(model: str, onnx: Any, branch: Any) -> str:
    """Change how a branch makes its `logits`; return the name of the weights it used."""
    graph = branch.g
    made = {name: node for node in graph.node for name in node.output}
    product = made["logits"]
    floats = made.get(product.input[1])
    turn = made.get(floats.input[0]) if floats is not None else None
    kinds = [node.op_type for node in (product, floats, turn) if node is not None]
    if floats is None or turn is None or kinds != ["MatMul", "DequantizeLinear", "Transpose"]:
        raise ModelCorrupt(model, f"the decoder's last layer is {' after '.join(kinds)}")
    replaced = {product.output[0], floats.output[0], turn.output[0]}
    kept = [node for node in graph.node if node.output[0] not in replaced]
    scale, zero = floats.input[1], floats.input[2]
    added = _byte_product(onnx, product.input[0], scale, zero, f"{NAMES}{branch.name}_")
    del graph.node[:]
    graph.node.extend([*kept, *added])
    return str(turn.input[0])


def _byte_product(onnx: Any, states: str, scale: str, zero: str, prefix: str) -> list[Any]:
    """Return the nodes that multiply hidden states with the last layer, both as bytes."""
    make = onnx.helper.make_node
    quantised = [prefix + name for name in ("bytes", "scale", "zero")]
    return [
        make("DynamicQuantizeLinear", [states], quantised),
        make("MatMulInteger", [quantised[0], LAST_LAYER, quantised[2], zero], [prefix + "sum"]),
        make("Cast", [prefix + "sum"], [prefix + "float"], to=onnx.TensorProto.FLOAT),
        make("Mul", [quantised[1], scale], [prefix + "both_scales"]),
        make("Mul", [prefix + "float", prefix + "both_scales"], ["logits"]),
    ]
