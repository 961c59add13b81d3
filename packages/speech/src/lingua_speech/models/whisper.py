"""Optimises Whisper's two networks at install, so that they take a fraction of the time.

The encoder adds a table of 1500 positions to its input and so always works on 30 s; here the table
is cut to the real length of the input. The decoder converts its last layer, 26 MB of bytes, into
106 MB of floats for every token; here it is multiplied as bytes, like the other layers. Inputs,
outputs and weights do not change. Needs the package `onnx`, imported only when it runs. Used by
`prepare`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lingua_speech.models.errors import ModelCorrupt

if TYPE_CHECKING:
    from pathlib import Path

POSITIONS = 1500  # of Whisper's encoder: 30 s in steps of 20 ms
PREFIX = "lingua_"  # of the names that we add to a graph
LAST_LAYER = PREFIX + "last_layer"


def optimise(model: str, folder: Path) -> None:
    """Write both optimised networks beside the originals."""
    shorten_encoder(model, folder)
    optimise_decoder(model, folder)


def shorten_encoder(model: str, folder: Path) -> None:
    """Write `encoder_short.onnx`, which accepts any length of audio up to 30 s."""
    import onnx  # noqa: PLC0415 - only this step needs it, and only at install

    network = onnx.load(folder / "encoder.onnx")
    graph = network.graph
    index, slot = _position_sum(model, graph)
    node = graph.node[index]
    table, frames = node.input[slot], node.input[1 - slot]
    node.input[slot] = PREFIX + "positions"
    for new in reversed(_slicing_nodes(onnx, table, frames)):
        graph.node.insert(index, new)
    graph.initializer.extend(_constants(onnx, _row_axis(graph, table)))
    _make_lengths_variable(graph)
    onnx.checker.check_model(network)
    onnx.save(network, folder / "encoder_short.onnx")


def _position_sum(model: str, graph: Any) -> tuple[int, int]:
    """Return the index of the node that adds the table of positions, and of its input."""
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


def _slicing_nodes(onnx: Any, table: str, frames: str) -> list[Any]:
    """Return the nodes that cut the table to as many rows as there are frames."""
    make = onnx.helper.make_node
    return [
        make("Shape", [frames], [PREFIX + "shape"]),
        make("Gather", [PREFIX + "shape", PREFIX + "one"], [PREFIX + "length"], axis=0),
        make(
            "Slice",
            [table, PREFIX + "zero", PREFIX + "length", PREFIX + "axis"],
            [PREFIX + "positions"],
        ),
    ]


def _constants(onnx: Any, axis: int) -> list[Any]:
    make = onnx.helper.make_tensor
    values = {"zero": 0, "one": 1, "axis": axis}
    return [
        make(PREFIX + name, onnx.TensorProto.INT64, [1], [value]) for name, value in values.items()
    ]


def _make_lengths_variable(graph: Any) -> None:
    """Declare the lengths as variable and keep one output; the attention maps are not used."""
    graph.input[0].type.tensor_type.shape.dim[2].dim_param = "frames"
    graph.output[0].type.tensor_type.shape.dim[1].dim_param = "positions"
    del graph.output[1:]
    del graph.value_info[:]


def optimise_decoder(model: str, folder: Path) -> None:
    """Write `decoder_fast.onnx`, whose last layer is multiplied as bytes."""
    import onnx  # noqa: PLC0415 - only this step needs it, and only at install

    network = onnx.load(folder / "decoder.onnx")
    graph = network.graph
    # The first token and later tokens take different branches.
    choices = [node for node in graph.node if node.op_type == "If"]
    if len(choices) != 1:
        raise ModelCorrupt(model, f"the decoder has {len(choices)} branches, not one")
    weights = {_multiply_bytes(model, onnx, branch) for branch in choices[0].attribute}
    tables = [value for value in graph.initializer if value.name in weights]
    if len(weights) != 1 or len(tables) != 1:
        raise ModelCorrupt(model, "the decoder has no single last layer")
    transposed = onnx.numpy_helper.to_array(tables[0]).T.copy()
    graph.initializer.append(onnx.numpy_helper.from_array(transposed, LAST_LAYER))
    # The table itself stays: it is also the embedding of tokens.
    onnx.checker.check_model(network)
    onnx.save(network, folder / "decoder_fast.onnx")


def _multiply_bytes(model: str, onnx: Any, branch: Any) -> str:
    """Replace the computation of `logits` in a branch; return the name of its weights."""
    graph = branch.g
    made = {name: node for node in graph.node for name in node.output}
    product = made["logits"]
    floats = made.get(product.input[1])
    transpose = made.get(floats.input[0]) if floats is not None else None
    kinds = [node.op_type for node in (product, floats, transpose) if node is not None]
    if floats is None or transpose is None or kinds != ["MatMul", "DequantizeLinear", "Transpose"]:
        raise ModelCorrupt(model, f"the decoder's last layer is {' after '.join(kinds)}")
    replaced = {product.output[0], floats.output[0], transpose.output[0]}
    kept = [node for node in graph.node if node.output[0] not in replaced]
    scale, zero = floats.input[1], floats.input[2]
    added = _byte_product(onnx, product.input[0], scale, zero, f"{PREFIX}{branch.name}_")
    del graph.node[:]
    graph.node.extend([*kept, *added])
    return str(transpose.input[0])


def _byte_product(onnx: Any, states: str, scale: str, zero: str, prefix: str) -> list[Any]:
    """Return the nodes that multiply hidden states by the last layer, both as bytes."""
    make = onnx.helper.make_node
    quantised = [prefix + name for name in ("bytes", "scale", "zero")]
    return [
        make("DynamicQuantizeLinear", [states], quantised),
        make("MatMulInteger", [quantised[0], LAST_LAYER, quantised[2], zero], [prefix + "sum"]),
        make("Cast", [prefix + "sum"], [prefix + "float"], to=onnx.TensorProto.FLOAT),
        make("Mul", [quantised[1], scale], [prefix + "both_scales"]),
        make("Mul", [prefix + "float", prefix + "both_scales"], ["logits"]),
    ]
