"""CTranslate2: neural translation with a model of your own, on a CPU or a GPU (mt=ctranslate2).

Licence: MIT; the model has its own (NLLB: CC-BY-NC-4.0, OPUS-MT: mostly CC-BY-4.0). Needs `pip
install 'lingua-speech[ctranslate2]'` and a model converted by CTranslate2's converters. Layouts:
nllb, one folder for all directions (model.bin, config.json, shared_vocabulary.*, one
sentencepiece *.model); opus, one folder for each (model.bin, config.json, *vocabulary*, source.spm,
target.spm), or one for several targets, selected by a token such as `>>es<<`.

| option | default | what it is |
|---|---|---|
| model | | the folder, if one serves all directions |
| dir.A-B | | the folder of one direction: `dir.en-es=/models/en-es`, `dir.en>pt-br=...` |
| layout | auto | nllb, opus, or auto: opus if there is a source.spm |
| pairs | | the directions to offer with `model`: `en-es+es-en` |
| languages | | or all directions between these: `en+es+fr` |
| device | cpu | cpu, cuda or auto |
| compute_type | default | int8, int8_float16, float16, float32 ... |
| threads | 1 | threads of one translation on a CPU |
| beam | 2 | width of the search, 1 to 16 |
"""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_speech import plugins
from lingua_speech.engine import About, EngineError, ModelMissing, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_speech.engines.flores import flores
from lingua_speech.engines.language_pairs import matching_pairs
from lingua_wire.errors import ConfigError
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

KNOWN: Final = {
    "model": "",
    "layout": "auto",
    "pairs": "",
    "languages": "",
    "device": "cpu",
    "compute_type": "default",
    "threads": "1",
    "beam": "2",
}
EOS: Final = "</s>"
# How sentencepiece writes a space.
SPACE: Final = "\N{LOWER ONE EIGHTH BLOCK}"
# Control tokens, which no text may contain.
SPECIAL = re.compile(r"<s>|</s>|<unk>|<pad>|<mask>|[a-z]{3}_[A-Z][a-z]{3}|>>\S+<<")
# Sentences of one call; between calls the watch is checked.
BATCH: Final = 4
# A translation is not much longer than its source; without a bound a bad model may never end.
GROWTH: Final = 3
SPARE_TOKENS: Final = 20
# Longer sources and translations are cut: models were trained with up to 512 tokens.
MOST_TOKENS: Final = 500

Direction = tuple[str, str]


def make(options: Mapping[str, str]) -> CTranslate:
    """Load the models."""
    others, folders = reading.family(options, "dir")
    taken = plugins.take(others, KNOWN)
    loading: dict[str, Any] = {
        "device": reading.one_of(taken, "device", ("cpu", "cuda", "auto")),
        "compute_type": taken["compute_type"],
        "intra_threads": reading.whole(taken, "threads", 1, 256),
    }
    beam = reading.whole(taken, "beam", 1, 16)
    # A folder that serves several directions is loaded once.
    loaded = {path: CTranslateModel(_folder(path), loading, beam) for path in set(folders.values())}
    models = {reading.direction(name): loaded[path] for name, path in folders.items()}
    if taken["model"]:
        shared = CTranslateModel(
            reading.folder(taken, "model", "model.bin"), loading, beam, taken["layout"]
        )
        models.update(dict.fromkeys(_wanted(taken), shared))
    if not models:
        raise ConfigError("engines", "ctranslate2 needs model=FOLDER or dir.en-es=FOLDER")
    for (source, target), model in models.items():
        model.check(source, target)
    return CTranslate(models, loading["device"])


class ScoredTranslation(NamedTuple):
    """A translation, and the mean log-probability of its tokens: 0 is certain."""

    text: str
    score: float


class CTranslate:
    """Translates with neural models, each for one or more directions."""

    def __init__(self, models: Mapping[Direction, CTranslateModel], device: str) -> None:
        self._models = models
        self._device = device

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="ctranslate2",
            version=version("ctranslate2"),
            model="+".join(sorted({model.name for model in self._models.values()})),
            licence="MIT; of the model: see there",
            device=self._device,
            pairs=tuple(sorted(self._models)),
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Translate a text sentence by sentence."""
        return self.translate_with_score(text, source, target, watch).text

    def translate_with_score(
        self, text: str, source: str, target: str, watch: Watch
    ) -> ScoredTranslation:
        """Translate a text, and return the score of its worst sentence."""
        model = self._model(source, target)
        split = sentences.split(sentences.plain(text))
        spoken = [sentence for sentence in split if sentences.is_speakable(sentence)]
        done: dict[str, ScoredTranslation] = {}
        for start in range(0, len(spoken), BATCH):
            watch.check()
            batch = spoken[start : start + BATCH]
            done.update(zip(batch, model.translate_batch(batch, source, target), strict=True))
        watch.check()
        texts = (done[one].text if one in done else one for one in split)
        worst = min((guess.score for guess in done.values()), default=0.0)
        return ScoredTranslation(" ".join(filter(None, texts)), worst)

    def close(self) -> None:
        """Free the models."""
        for model in self._models.values():
            model.unload()

    def _model(self, source: str, target: str) -> CTranslateModel:
        for pair in matching_pairs(source, target):
            if pair in self._models:
                return self._models[pair]
        raise EngineError("UNSUPPORTED_FEATURE", f"no model from {source!r} to {target!r}")


class CTranslateModel:
    """One folder: the network, its tokenisers and its special tokens."""

    def __init__(
        self, path: Path, loading: Mapping[str, Any], beam: int, layout: str = "auto"
    ) -> None:
        self.name = path.name
        self._beam = beam
        self._is_nllb = _layout(path, layout) == "nllb"
        # The tokenisers of source and target.
        self._source_tokeniser, self._target_tokeniser = _tokenisers(path, is_nllb=self._is_nllb)
        self._vocabulary = _vocabulary(path)
        # Some converters configure the model to add the end of the source itself.
        self._adds_eos = bool(_config(path).get("add_source_eos", False))
        self._translator = _load(path, loading)

    def check(self, source: str, target: str) -> None:
        """Raise `ModelMissing` unless the model has the tokens for these languages."""
        if self._is_nllb:
            for code in (source, target):
                if flores(code) not in self._vocabulary:
                    raise ModelMissing(f"{self.name} does not know the language {code!r}")
        elif self._has_target_tokens() and not self._target_token(target):
            raise ModelMissing(f"{self.name} has no token for the language {target!r}")

    def translate_batch(
        self, texts: Sequence[str], source: str, target: str
    ) -> list[ScoredTranslation]:
        """Translate some sentences in one call."""
        tokens = [self.source_tokens(text, source, target) for text in texts]
        prefix = [[flores(target)]] * len(texts) if self._is_nllb else None
        longest = max(map(len, tokens))
        try:
            found = self._translator.translate_batch(
                tokens,
                target_prefix=prefix,
                beam_size=self._beam,
                max_decoding_length=min(GROWTH * longest + SPARE_TOKENS, MOST_TOKENS),
                return_scores=True,
            )
        except RuntimeError as error:
            raise EngineError("PROCESSING_ERROR", f"{self.name}: {error}") from error
        return [
            ScoredTranslation(self._text(one.hypotheses[0]), float(one.scores[0])) for one in found
        ]

    def source_tokens(self, text: str, source: str, target: str) -> list[str]:
        """Return the input of the network: tokens, with the special tokens of its layout."""
        pieces = [
            piece for piece in self._source_tokeniser.encode(text, out_type=str) if _is_text(piece)
        ]
        pieces = pieces[:MOST_TOKENS] + ([] if self._adds_eos else [EOS])
        if self._is_nllb:
            return [flores(source), *pieces]
        return [self._target_token(target), *pieces] if self._has_target_tokens() else pieces

    def unload(self) -> None:
        """Free its memory."""
        self._translator.unload_model()

    def _text(self, tokens: Sequence[str]) -> str:
        text = str(self._target_tokeniser.decode([token for token in tokens if _is_text(token)]))
        # A token that the target tokeniser does not know is kept with its mark of a space.
        return " ".join(text.replace(SPACE, " ").split())

    def _has_target_tokens(self) -> bool:
        return any(token.startswith(">>") and token.endswith("<<") for token in self._vocabulary)

    def _target_token(self, target: str) -> str:
        names = (target, base_of(target), flores(target)[:3], flores(target))
        tokens = (f">>{name}<<" for name in names)
        return next((token for token in tokens if token in self._vocabulary), "")


def _is_text(token: str) -> bool:
    return SPECIAL.fullmatch(token) is None


def _wanted(taken: Mapping[str, str]) -> list[Direction]:
    wanted = [*reading.pairs(taken, "pairs"), *permutations(reading.listed(taken, "languages"), 2)]
    if not wanted:
        raise ConfigError("engines", "model= needs pairs=en-es+es-en or languages=en+es as well")
    return [(source.lower(), target.lower()) for source, target in wanted]


def _folder(path: str) -> Path:
    return reading.folder({"dir": path}, "dir", "model.bin")


def _layout(path: Path, layout: str) -> str:
    if reading.one_of({"layout": layout}, "layout", ("auto", "nllb", "opus")) != "auto":
        return layout
    return "opus" if (path / "source.spm").is_file() else "nllb"


def _tokenisers(path: Path, *, is_nllb: bool) -> tuple[Any, Any]:
    library = reading.library("sentencepiece", extra="ctranslate2")
    if not is_nllb:
        reading.folder({"model": str(path)}, "model", "source.spm", "target.spm")
        source, target = (
            library.SentencePieceProcessor(model_file=str(path / f"{side}.spm"))
            for side in ("source", "target")
        )
        return source, target
    files = sorted(path.glob("*.model")) + sorted(path.glob("*.spm"))
    if not files:
        raise ModelMissing(f"{path} has no sentencepiece model (sentencepiece.bpe.model)")
    both = library.SentencePieceProcessor(model_file=str(files[0]))
    return both, both


def _vocabulary(path: Path) -> frozenset[str]:
    """Read the source tokens as CTranslate2 stores them: a JSON list, or one per line."""
    for name in ("shared_vocabulary", "source_vocabulary"):
        if (path / f"{name}.json").is_file():
            return frozenset(json.loads((path / f"{name}.json").read_text("utf-8")))
        if (path / f"{name}.txt").is_file():
            return frozenset((path / f"{name}.txt").read_text("utf-8").splitlines())
    raise ModelMissing(f"{path} has no shared_vocabulary and no source_vocabulary")


def _config(path: Path) -> dict[str, Any]:
    file = path / "config.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.is_file() else {}


def _load(path: Path, loading: Mapping[str, Any]) -> Any:
    library = reading.library("ctranslate2", extra="ctranslate2")
    try:
        return library.Translator(str(path), **loading)
    except (RuntimeError, ValueError) as error:
        raise ModelMissing(f"{path} cannot be loaded: {error}") from error
