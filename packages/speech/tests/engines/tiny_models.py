"""Small models with random weights, in the file formats of the real ones.

Their output is meaningless, but the code that loads and runs real models runs on them unchanged: a
Whisper and two translators for CTranslate2, voices for Piper and Kokoro, and sentencepiece models
trained on a few sentences.
"""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import sentencepiece
from ctranslate2.specs import common_spec, transformer_spec, whisper_spec
from onnx import TensorProto, helper, numpy_helper

WIDTH, INNER, HEADS = 32, 64, 2
WHISPER_TOKENS = 51_865
END_OF_TEXT, WHISPER_EAGERNESS = 50_257, np.float32(6.0)
# The bias of a translator towards the end.
EAGERNESS = -1.0

CORPUS = (
    "the meeting starts at nine and we will discuss the new contract",
    "where is the nearest hospital please help me find the station",
    "good morning how can i help you today my friend",
    "la reunión empieza a las nueve y hablaremos del nuevo contrato",
    "dónde está el hospital más cercano por favor ayúdeme a buscar la estación",
    "buenos días en qué puedo ayudarle hoy amigo mío",
)


class Weights:
    """Random numbers in the shapes of a network, the same in every run."""

    def __init__(self, seed: int = 0, scale: float = 0.3) -> None:
        self._random = np.random.default_rng(seed)
        self._scale = scale

    def of(self, *shape: int) -> np.ndarray:
        return (self._random.standard_normal(shape) * self._scale).astype(np.float32)

    def norm(self, spec: Any) -> None:
        spec.gamma, spec.beta = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    def linear(self, spec: Any, outputs: int, inputs: int) -> None:
        spec.weight, spec.bias = self.of(outputs, inputs), np.zeros(outputs, np.float32)

    def layers(self, layers: list[Any], *, is_decoder: bool) -> None:
        for layer in layers:
            self._attention(layer.self_attention, [3 * WIDTH, WIDTH])
            if is_decoder:
                self._attention(layer.attention, [WIDTH, 2 * WIDTH, WIDTH])
            self.norm(layer.ffn.layer_norm)
            self.linear(layer.ffn.linear_0, INNER, WIDTH)
            self.linear(layer.ffn.linear_1, WIDTH, INNER)

    def _attention(self, spec: Any, outputs: list[int]) -> None:
        self.norm(spec.layer_norm)
        for part, size in zip(spec.linear, outputs, strict=True):
            self.linear(part, size, WIDTH)


def word_pieces(path: Path, sentences: tuple[str, ...] = CORPUS, size: int = 120) -> list[str]:
    """Train a sentencepiece model and return its pieces in order."""
    written = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 4),
        model_writer=written,
        vocab_size=size,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(written.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]


def nllb(path: Path, languages: tuple[str, ...] = ("eng_Latn", "spa_Latn", "fra_Latn")) -> Path:
    """Write a translator with one vocabulary and a token for each language."""
    path.mkdir(parents=True)
    pieces = word_pieces(path / "sentencepiece.bpe.model")
    spec = _translator(["<pad>", *pieces, *languages], seed=1)
    spec.config.decoder_start_token = "</s>"
    return _saved(spec, path)


def opus(
    path: Path, *, seed: int = 2, targets: tuple[str, ...] = (), adds_eos: bool = False
) -> Path:
    """Write a translator for one direction, or for several targets by a token."""
    path.mkdir(parents=True)
    english = word_pieces(path / "source.spm", CORPUS[:3])
    spanish = word_pieces(path / "target.spm", CORPUS[3:])
    words = list(dict.fromkeys(["</s>", "<unk>", *targets, *english, *spanish]))
    spec = _translator(words, seed=seed)
    spec.config.add_source_eos = adds_eos
    spec.config.decoder_start_token = "</s>"
    return _saved(spec, path)


def whisper(path: Path, tokenizer: Path, *, seed: int = 3) -> Path:
    """Write a multilingual Whisper of one layer; the tokenizer.json is a real one."""
    path.mkdir(parents=True)
    (path / "tokenizer.json").write_bytes(tokenizer.read_bytes())
    words = _whisper_words(tokenizer)
    weights, spec = Weights(seed), whisper_spec.WhisperSpec(1, HEADS, 1, HEADS)
    for convolution, inputs in ((spec.encoder.conv1, 80), (spec.encoder.conv2, WIDTH)):
        convolution.weight = weights.of(WIDTH, inputs, 3)
        convolution.bias = np.zeros(WIDTH, np.float32)
    spec.encoder.position_encodings.encodings = weights.of(1500, WIDTH)
    spec.decoder.position_encodings.encodings = weights.of(448, WIDTH)
    spec.decoder.embeddings.weight = weights.of(len(words), WIDTH)
    spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.decoder.scale_embeddings = False
    _filled(spec, weights)
    # A bias towards the end at each step; otherwise it would continue to the last token.
    end = spec.decoder.embeddings.weight[END_OF_TEXT]
    spec.decoder.layer_norm.beta = WHISPER_EAGERNESS * end / np.square(end).sum()
    spec.register_vocabulary(words)
    spec.config.suppress_ids, spec.config.suppress_ids_begin = [], [220, END_OF_TEXT]
    spec.config.lang_ids = list(range(50259, 50358))
    spec.config.alignment_heads = [[0, 0]]
    return _saved(spec, path)


def voice(path: Path, code: str = "es_ES", speakers: int = 1, hop: int = 256) -> Path:
    """Write a Piper voice: each phoneme is a tone whose length grows with length_scale."""
    config = {
        "audio": {"sample_rate": 16_000},
        "espeak": {"voice": code.partition("_")[0]},
        "language": {"code": code},
        "num_symbols": 256,
        "num_speakers": speakers,
        "speaker_id_map": {f"p{number}": number for number in range(speakers)},
        "phoneme_type": "espeak",
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_id_map": _phoneme_ids(),
    }
    path.with_name(f"{path.name}.json").write_text(json.dumps(config), "utf-8")
    onnx.save(_tones(hop, speakers), str(path))
    return path


# The letters of the real alphabet that the tests need; their sound does not matter.
KOKORO_LETTERS = (
    '$;:,.!?—…"()“” \u0303ʣʥʦʨAIOQSTWYᵊabcdefhijklmnopqrstuvwxyz'
    "ɑɐɒæβɔɕçðʤəɚɛɜɟɡɥɨɪʝŋɲøɸθœɹɾʁʃʧʊʌɣʎʒʔˈˌː"
)
KOKORO_HOP = 600


def kokoro(folder: Path, voices: tuple[str, ...]) -> Path:
    """Write a Kokoro: each letter is a tone whose level is the style.

    The style for a text of n letters is n / 1000; like the real one it accepts 512 letters.
    """
    (folder / "voices").mkdir(parents=True)
    numbers = {letter: number for number, letter in enumerate(KOKORO_LETTERS)}
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": numbers}}))
    manners = np.repeat(np.arange(1, 511, dtype="<f4") / 1000, 256)
    for name in voices:
        manners.tofile(folder / "voices" / f"{name}.bin")
    onnx.save(_letters(len(numbers)), str(folder / "kokoro.onnx"))
    return folder


def _letters(count: int) -> onnx.ModelProto:
    times = np.arange(KOKORO_HOP) / 24_000
    pitches = 100 + 5 * np.arange(count)
    constants = {
        "tones": np.sin(2 * np.pi * pitches[:, None] * times).astype(np.float32),
        "places": np.zeros((1, 512, 1), np.float32),
        "zero": np.array([0]),
        "one": np.array([1]),
        "flat": np.array([1, -1]),
    }
    nodes = [
        helper.make_node("Gather", ["tones", "input_ids"], ["sung"]),
        helper.make_node("Shape", ["input_ids"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["length"]),
        helper.make_node("Slice", ["places", "zero", "length", "one"], ["room"]),
        helper.make_node("Add", ["sung", "room"], ["placed"]),
        helper.make_node("ReduceMean", ["style"], ["level"], keepdims=0),
        helper.make_node("Mul", ["placed", "level"], ["told"]),
        helper.make_node("Div", ["told", "speed"], ["loud"]),
        helper.make_node("Reshape", ["loud", "flat"], ["waveform"]),
    ]
    inputs = [
        helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "letters"]),
        helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    graph = helper.make_graph(
        nodes,
        "kokoro",
        inputs,
        [helper.make_tensor_value_info("waveform", TensorProto.FLOAT, [1, "samples"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _translator(words: list[str], *, seed: int) -> Any:
    spec = transformer_spec.TransformerSpec.from_config(
        (1, 1), HEADS, pre_norm=True, activation=common_spec.Activation.RELU
    )
    weights = Weights(seed)
    spec.encoder.embeddings[0].weight = weights.of(len(words), WIDTH)
    spec.decoder.embeddings.weight = weights.of(len(words), WIDTH)
    positions = weights.of(1024, WIDTH)
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings = positions
        side.scale_embeddings = True
    weights.linear(spec.decoder.projection, len(words), WIDTH)
    # With random weights alone a text would end at once or never.
    spec.decoder.projection.bias[words.index("</s>")] = EAGERNESS
    _filled(spec, weights)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    return spec


def _filled(spec: Any, weights: Weights) -> None:
    for side in (spec.encoder, spec.decoder):
        weights.norm(side.layer_norm)
        weights.layers(side.layer, is_decoder=side is spec.decoder)


def _saved(spec: Any, path: Path) -> Path:
    spec.validate()
    spec.optimize(quantization="int8")
    spec.save(str(path))
    return path


def _whisper_words(tokenizer: Path) -> list[str]:
    described = json.loads(tokenizer.read_text("utf-8"))
    known = dict(described["model"]["vocab"])
    known.update({token["content"]: token["id"] for token in described["added_tokens"]})
    words = [f"<extra{number}>" for number in range(WHISPER_TOKENS)]
    for word, number in known.items():
        words[number] = word
    return words


def _phoneme_ids() -> dict[str, list[int]]:
    signs = ["_", "^", "$", " ", "!", "'", "(", ")", ",", "-", ".", ":", ";", "?"]
    signs += [chr(number) for number in range(ord("a"), ord("z") + 1)]
    signs += list("æçðøħŋœɐɑɒɓɔɕɖɗɘəɚɛɜɞɟɡɢɣɤɥɦɧɨɪɫɬɭɮɯɰɱɲɳɴɵɶɸɹɺɻɽɾʀʁʂʃʄʈʉʊʋʌʍʎʏʐʑʒʔˈˌːˑθβ̃")
    return {sign: [number] for number, sign in enumerate(dict.fromkeys(signs))}


def _tones(hop: int, speakers: int) -> onnx.ModelProto:
    """Build the network: ids -> levels, each held for hop x length_scale samples, times a tone."""
    one, samples = np.array([1], np.int64), np.array([hop], np.float32)
    tone = np.sin(np.arange(2_000_000) * 2 * np.pi * 220 / 16_000).astype(np.float32)
    constants = {
        "hop": samples,
        "one": one,
        "zero": np.array([0], np.int64),
        "floor": np.float32(0.2),
        "table": np.linspace(0.2, 0.8, 256, dtype=np.float32),
        "tone": tone,
        "all": np.array([-1], np.int64),
        "shape": np.array([1, 1, 1, -1], np.int64),
        "axis": np.array([0], np.int64),
    }
    nodes = [
        helper.make_node("Gather", ["table", "input"], ["levels"]),
        helper.make_node("Gather", ["scales", "one"], ["length"]),
        helper.make_node("Mul", ["length", "hop"], ["held_f"]),
        helper.make_node("Cast", ["held_f"], ["held"], to=TensorProto.INT64),
        helper.make_node("Concat", ["all", "one"], ["column"], axis=0),
        helper.make_node("Reshape", ["levels", "column"], ["levels_c"]),
        helper.make_node("Concat", ["one", "held"], ["row"], axis=0),
        helper.make_node("Expand", ["levels_c", "row"], ["stretched"]),
        helper.make_node("Reshape", ["stretched", "all"], ["flat"]),
        helper.make_node("Shape", ["flat"], ["count"]),
        helper.make_node("Slice", ["tone", "zero", "count", "axis"], ["sung"]),
        helper.make_node("Mul", ["flat", "sung"], ["quiet"]),
        helper.make_node("Reshape", ["quiet", "shape"], ["output"]),
    ]
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, [1, "phonemes"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    if speakers > 1:
        # Each speaker is a little louder than the one before.
        nodes[-1] = helper.make_node("Cast", ["sid"], ["sid_f"], to=TensorProto.FLOAT)
        nodes += [
            helper.make_node("Add", ["sid_f", "floor"], ["gain"]),
            helper.make_node("Mul", ["quiet", "gain"], ["said"]),
            helper.make_node("Reshape", ["said", "shape"], ["output"]),
        ]
        inputs.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
    graph = helper.make_graph(
        nodes,
        "tones",
        inputs,
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, 1, "samples"])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
