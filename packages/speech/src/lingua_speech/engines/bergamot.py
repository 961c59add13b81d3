"""Bergamot: the small neural models that Firefox translates with, on a CPU (mt=bergamot).

Licence: MPL-2.0, library (`fxtranslate`) and models. A direction is a folder with `model.*.bin`,
`vocab.*.spm` (or `srcvocab.*.spm` and `trgvocab.*.spm`) and, for speed, `lex.*.bin`. A translator
is bound to the thread that made it; all calls of an engine come from one thread. A model drops or
replaces characters that its vocabulary lacks (`@`, `#`, emoji, other scripts); `router` keeps them.

| option | default | what it is |
|---|---|---|
| dir | | a folder with one folder for each direction (`en-pt`), instead of the model store |
| dir.A-B | | the folder of one direction: `dir.en-es=/models/enes` |
| pairs | | only these of the directions found: `en-pt+pt-en` |
"""

from __future__ import annotations

import struct
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lingua_speech import plugins
from lingua_speech.engine import About, EngineError, ModelMissing, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_speech.engines.language_pairs import matching_pairs
from lingua_speech.models import default_store
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"dir": "", "pairs": ""}
MODELS: Final = ("bergamot-eng-por",)
MISSING: Final = "no Bergamot model was found; run: lingua models install bergamot-eng-por"
# Translated once at loading: a damaged vocabulary loads, but then every translation is empty.
PROBE: Final = "Taxi, hotel, radio 1, 2, 3."
# The header of a lexical shortlist: a mark, a checksum, two counts, the lengths of its two tables.
LEXICON_HEAD: Final = struct.Struct("<QQQQQQ")
LEXICON_MARK: Final = 0xF11A48D5013417F5
OFFSET_BYTES, WORD_BYTES = 8, 4

Direction = tuple[str, str]


def make(options: Mapping[str, str]) -> Bergamot:
    """Load the models; raises `ModelMissing` if none is found or one is damaged."""
    others, named = reading.family(options, "dir")
    taken = plugins.take(others, KNOWN)
    folders = dict(_found(taken["dir"])) if taken["dir"] or not named else {}
    folders |= {reading.direction(name): Path(path).expanduser() for name, path in named.items()}
    if asked := reading.pairs(taken, "pairs"):
        folders = {pair: _of(folders, pair) for pair in asked}
    if not folders:
        raise ModelMissing(MISSING)
    library = reading.library("fxtranslate", extra="engines")
    return Bergamot({pair: _load(library, path) for pair, path in sorted(folders.items())})


class Bergamot:
    """Translates with one small network for each direction."""

    def __init__(self, models: Mapping[Direction, Any]) -> None:
        self._models = models

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="bergamot",
            version=version("fxtranslate"),
            model="+".join(sorted(">".join(pair) for pair in self._models)),
            licence="MPL-2.0",
            pairs=tuple(sorted(self._models)),
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Translate a text sentence by sentence."""
        model = self._model(source, target)
        translated = []
        for sentence in sentences.split(sentences.plain(text)):
            watch.check()
            has_words = sentences.is_speakable(sentence)
            translated.append(model.translate(sentence).strip() if has_words else sentence)
        return " ".join(filter(None, translated))

    def close(self) -> None:
        """Do nothing: the models are freed with the engine."""

    def _model(self, source: str, target: str) -> Any:
        for pair in matching_pairs(source, target):
            if pair in self._models:
                return self._models[pair]
        raise EngineError("UNSUPPORTED_FEATURE", f"bergamot has no {source}>{target}")


def _found(directory: str) -> Iterator[tuple[Direction, Path]]:
    """Yield every folder named as a direction, in the given directory or in the store."""
    store = default_store()
    roots = [store.path(name) for name in MODELS if store.has(name)]
    if directory:
        roots = [reading.folder({"dir": directory}, "dir")]
    for root in roots:
        for path in sorted(root.iterdir()):
            if path.is_dir() and "-" in path.name:
                yield reading.direction(path.name), path


def _of(folders: Mapping[Direction, Path], pair: Direction) -> Path:
    if pair not in folders:
        raise ModelMissing(f"no Bergamot model for {'>'.join(pair)}; {MISSING}")
    return folders[pair]


def _load(library: Any, path: Path) -> Any:
    model = _file(path, "model.*.bin").read_bytes()
    source, target = _vocabularies(path)
    lexicons = sorted(path.glob("lex.*.bin"))
    lexicon = _lexicon(lexicons[0]) if lexicons else None
    try:
        translator = library.Translator(model, source, target, lexicon)
    except ValueError as error:
        raise ModelMissing(f"{path} cannot be loaded: {error}") from error
    if not sentences.is_speakable(translator.translate(PROBE)):
        raise ModelMissing(f"{path} cannot be used: its vocabulary is damaged")
    return translator


def _vocabularies(path: Path) -> tuple[bytes, bytes]:
    """Return the vocabularies of source and target; mostly they are the same."""
    if sorted(path.glob("srcvocab.*.spm")):
        source, target = (_file(path, f"{side}vocab.*.spm") for side in ("src", "trg"))
        return source.read_bytes(), target.read_bytes()
    shared = _file(path, "vocab.*.spm").read_bytes()
    return shared, shared


def _file(path: Path, pattern: str) -> Path:
    if not path.is_dir():
        raise ModelMissing(f"{path} is not a folder; nothing is fetched from a hub")
    found = sorted(path.glob(pattern))
    if not found:
        raise ModelMissing(f"{path} has no {pattern}")
    if len(found) > 1:
        raise ConfigError("engines", f"{path} has {len(found)} files {pattern}, not one")
    return found[0]


def _lexicon(path: Path) -> bytes:
    """Read a shortlist; a truncated one would crash the library, so its size is checked."""
    data = path.read_bytes()
    if len(data) >= LEXICON_HEAD.size:
        mark, _, _, _, offsets, words = LEXICON_HEAD.unpack_from(data)
        size = LEXICON_HEAD.size + offsets * OFFSET_BYTES + words * WORD_BYTES
        if mark == LEXICON_MARK and size == len(data):
            return data
    raise ModelMissing(f"{path} is damaged; the model works without it, but more slowly")
