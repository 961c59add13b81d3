"""Kokoro: a natural voice in English, Spanish, French, Italian and Portuguese (tts=kokoro).

Licence: Apache-2.0 (weights and voices); its phonemes come from espeak-ng (GPL-3.0-or-later), a
shared library in the worker process. Needs `pip install 'lingua-speech[engines]'` and
`lingua models install natural`. 24 kHz, about 300 MB, two thirds of real time on one core.

| option | default | what it is |
|---|---|---|
| dir | | the model's folder (default: where `lingua models` puts it) |
| languages | | only these, as `pt+es`; empty: all of Kokoro |
| voice.LANG | | the voice of a language: `voice.pt=pm_alex`, any voice in the folder |
| speed | 1 | speed of speech, 0.5 to 2 |
| chars_max | 240 | a longer text goes to the next voice of the language, if there is one |
| threads | 0 | threads of the network; 0: one per core of the machine, at most 4 |
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as broken

from lingua_speech import plugins
from lingua_speech.engine import About, EngineError, ModelMissing, Sound, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_speech.engines.espeak import shared_library
from lingua_speech.engines.kokoro import phonemes
from lingua_speech.engines.stitching import stitched
from lingua_speech.models import ModelNotInstalled, default_store
from lingua_speech.sound import pcm16
from lingua_wire.errors import ConfigError
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lingua_speech.engines.espeak import EspeakLibrary

KNOWN: Final = {"dir": "", "languages": "", "speed": "1", "chars_max": "240", "threads": "0"}
THREADS_MAX: Final = 4
RATE_HZ: Final = 24_000
MODEL: Final = "kokoro"
NETWORK: Final = "kokoro.onnx"
ALPHABET: Final = "tokenizer.json"
# Language -> Kokoro's voice, and the espeak-ng voice whose phonemes it was trained on.
VOICES: Final = {
    "en": ("af_heart", "en-us"),
    "en-us": ("af_heart", "en-us"),
    "en-gb": ("bf_emma", "en-gb"),
    "es": ("ef_dora", "es"),
    "fr": ("ff_siwis", "fr"),
    "it": ("if_sara", "it"),
    "pt": ("pf_dora", "pt-br"),
    "pt-br": ("pf_dora", "pt-br"),
}
# The network's context holds 512 letters, of which the first and the last are padding; a voice has
# a style vector for each length up to 510.
LETTERS_MAX: Final = 510
STYLE_SIZE: Final = 256
# Short pieces are ready sooner, and the engine can stop between two of them.
PIECE_CHARS: Final = 200

Styles = npt.NDArray[np.float32]


class KokoroVoice(NamedTuple):
    """A voice of Kokoro, and how the phonemes of its language are spelt."""

    styles: Styles
    espeak: str
    spelling: phonemes.Spelling


class _Tokens(msgspec.Struct):
    vocab: dict[str, int]


class _Alphabet(msgspec.Struct):
    model: _Tokens


def make(options: Mapping[str, str]) -> Kokoro:
    """Load the network and the voices."""
    others, named = reading.family(options, "voice")
    chosen = plugins.take(others, KNOWN)
    speed = reading.real(chosen, "speed", 0.5, 2)
    threads = reading.whole(chosen, "threads", 0, 64)
    chars_max = reading.whole(chosen, "chars_max", 0, 1_000_000)
    wanted = _wanted(reading.listed(chosen, "languages"))
    folder = _folder(chosen["dir"])
    library = shared_library()
    voices = {code: _voice(folder, library, code, named) for code in wanted}
    return Kokoro(KokoroNetwork(folder, speed, threads or _cores()), library, voices, chars_max)


class KokoroNetwork:
    """The loaded model: letters and a style in, samples out."""

    def __init__(self, folder: Path, speed: float, threads: int) -> None:
        self._session = _session(folder / NETWORK, threads)
        self._speed = np.array([speed], np.float32)
        self.vocabulary = _vocabulary(folder / ALPHABET)

    def synthesise(self, numbers: list[int], styles: Styles) -> bytes:
        """Return the samples of some letters."""
        fed = {
            "input_ids": np.array([[0, *numbers, 0]], np.int64),
            "style": styles[min(len(numbers), len(styles)) - 1][None],
            "speed": self._speed,
        }
        (samples,) = self._session.run(["waveform"], fed)
        return pcm16(samples[0])


class Kokoro:
    """The engine: natural voices in a few languages."""

    def __init__(
        self,
        network: KokoroNetwork,
        library: EspeakLibrary,
        voices: Mapping[str, KokoroVoice],
        chars_max: int,
    ) -> None:
        self._network = network
        self._library = library
        self._voices = dict(voices)
        self._chars_max = chars_max

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="kokoro",
            version=f"onnxruntime {ort.__version__}",
            model="kokoro-82m-q8",
            licence="Apache-2.0; phonemes: GPL-3.0-or-later",
            languages=tuple(sorted(self._voices)),
            chars_max=self._chars_max,
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Speak a text sentence by sentence; it can be stopped between two of them."""
        voice = self._voices.get(language) or self._voices.get(base_of(language))
        if voice is None:
            raise EngineError("UNSUPPORTED_FEATURE", f"kokoro has no voice for {language!r}")
        return stitched(self._synthesised(voice, text, watch), RATE_HZ)

    def close(self) -> None:
        """Free the voices."""
        self._voices.clear()

    def _synthesised(self, voice: KokoroVoice, text: str, watch: Watch) -> Iterator[bytes]:
        for sentence in sentences.split(sentences.plain(text), PIECE_CHARS):
            if not sentences.is_speakable(sentence):
                continue
            for piece in phonemes.pieces(
                sentence, LETTERS_MAX, lambda part: len(self._letters(voice, part))
            ):
                watch.check()
                if letters := self._letters(voice, piece)[:LETTERS_MAX]:
                    yield self._network.synthesise(letters, voice.styles)

    def _letters(self, voice: KokoroVoice, text: str) -> list[int]:
        def sounds(words: str) -> str:
            return self._library.phonemes(voice.espeak, words, phonemes.TIE)

        spelt = phonemes.spelt(text, sounds, voice.spelling)
        return phonemes.numbers(spelt, self._network.vocabulary)


def _cores() -> int:
    return min(len(os.sched_getaffinity(0)), THREADS_MAX)


def _wanted(named: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [code for code in named if code not in VOICES]
    if unknown:
        known = ", ".join(VOICES)
        raise ConfigError("engines", f"kokoro has no voice for {unknown[0]!r}; it has {known}")
    return tuple(code for code in VOICES if not named or code in named or base_of(code) in named)


def _folder(named: str) -> Path:
    if named:
        return Path(named).expanduser()
    try:
        return default_store().path(MODEL)
    except ModelNotInstalled as error:
        raise ModelMissing(str(error)) from error


def _voice(
    folder: Path, library: EspeakLibrary, code: str, named: Mapping[str, str]
) -> KokoroVoice:
    usual, espeak = VOICES[code]
    name = named.get(code) or named.get(base_of(code)) or usual
    styles = _styles(folder / "voices" / f"{name}.bin")
    return KokoroVoice(styles, library.voices[espeak], phonemes.spelling_of(espeak))


def _styles(path: Path) -> Styles:
    """Read a voice: one style vector for each length of a text in letters."""
    if not path.is_file():
        found = ", ".join(sorted(file.stem for file in path.parent.glob("*.bin"))) or "none"
        raise ModelMissing(f"kokoro has no voice {path.stem!r} in {path.parent}; found: {found}")
    try:
        return np.fromfile(path, "<f4").reshape(-1, STYLE_SIZE)
    except ValueError as error:
        raise ModelMissing(f"{path} is not a voice of kokoro: {error}") from error


def _vocabulary(path: Path) -> dict[str, int]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Alphabet).model.vocab
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelMissing(f"kokoro's alphabet cannot be read: {path}: {error}") from error


def _session(path: Path, threads: int) -> Any:
    if not path.is_file():
        raise ModelMissing(f"{path.parent} has no {path.name}: lingua models install natural")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (RuntimeError, broken.Fail, broken.InvalidProtobuf, broken.InvalidGraph) as error:
        raise ModelMissing(f"{path} cannot be loaded as a network: {error}") from error
