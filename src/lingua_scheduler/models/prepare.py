"""What is made of a model's files at install, once: an encoder for short audio, transcripts.

Whisper's encoder adds a table of 1500 positions to its input and so always works on 30 s. Cutting
the table to the input's real length lets it take any length, at a fraction of the time. Only this
step needs the package `onnx`, which is imported here and when it runs. Used by `store`.
"""

from __future__ import annotations

import gzip
import importlib.util
import re
import wave
from typing import TYPE_CHECKING, Any, NamedTuple

from lingua_scheduler.models.errors import ModelCorrupt, PreparationMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

POSITIONS = 1500  # of Whisper's encoder: 30 s in steps of 20 ms
NAMES = "lingua_"  # prefix of what we add to the graph


class Step(NamedTuple):
    """One preparation: what it does to the model's folder and the package it needs."""

    run: Callable[[str, Path], None]
    package: str = ""


def check(model: str, step: str) -> None:
    """Raise `PreparationMissing` before anything is downloaded in vain."""
    package = STEPS[step].package
    if package and importlib.util.find_spec(package) is None:
        raise PreparationMissing(model, package)


def run(model: str, step: str, folder: Path) -> None:
    """Do a model's preparation in its folder."""
    check(model, step)
    STEPS[step].run(model, folder)


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


def read_prompts(model: str, folder: Path) -> None:
    """Write `transcripts.tsv` from the list of texts that comes with Asterisk's sounds."""
    lists = sorted(folder.glob("doc/*/core-sounds-*.txt.gz"))
    if len(lists) != 1:
        raise ModelCorrupt(model, f"{len(lists)} lists of texts, not one")
    _write_transcripts(model, folder, _prompts(gzip.decompress(lists[0].read_bytes()).decode()))


def _prompts(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, words = line.partition(":")
        words = " ".join(words.split())
        # A text in brackets, `[ascending tones]`, describes a sound; nobody says it.
        if colon and not line.startswith(";") and words and not re.fullmatch(r"\[.*\]", words):
            yield key.strip(), words


def read_utterances(model: str, folder: Path) -> None:
    """Write `transcripts.tsv` from a list in the form of Sphinx: `<s> text </s> (key)`."""
    pattern = re.compile(r"<s>\s*(.*?)\s*</s>\s*\((.+)\)")
    lines = (folder / "transcription").read_text(encoding="utf-8").splitlines()
    found = [match for line in lines if (match := pattern.fullmatch(line.strip()))]
    _write_transcripts(model, folder, ((m[2], " ".join(m[1].split())) for m in found))


def _write_transcripts(model: str, folder: Path, texts: Iterator[tuple[str, str]]) -> None:
    """Write the texts whose recording is there; a model without any is corrupt."""
    known = dict(texts)
    spoken = {k: text for k, text in known.items() if (folder / "wav" / f"{k}.wav").is_file()}
    if not spoken:
        raise ModelCorrupt(model, "no recording has a text")
    for key in spoken:
        _check_recording(model, folder / "wav" / f"{key}.wav")
    lines = "".join(f"{key}\t{text}\n" for key, text in sorted(spoken.items()))
    (folder / "transcripts.tsv").write_text(lines, encoding="utf-8")


def _check_recording(model: str, path: Path) -> None:
    try:
        with wave.open(str(path), "rb") as sound:
            is_plain = sound.getnchannels() == 1 and sound.getsampwidth() == 2
    except (wave.Error, EOFError) as error:
        raise ModelCorrupt(model, f"{path.name}: {error}") from error
    if not is_plain:
        raise ModelCorrupt(model, f"{path.name} is not 16-bit mono")


STEPS = {
    "whisper-short-encoder": Step(shorten_encoder, "onnx"),
    "prompts": Step(read_prompts),
    "utterances": Step(read_utterances),
}
