"""Kokoro: a natural voice in English, Spanish, French, Italian and Portuguese (tts=kokoro).

Licence: Apache-2.0 (weights and voices); its phonemes come from espeak-ng (GPL-3.0-or-later), a
shared library in the worker process. Needs `pip install 'lingua-scheduler[speech]'` and
`lingua models install natural`. 24 kHz, some 300 MB, two thirds of real time on one core.

| option | default | what it is |
|---|---|---|
| dir | | the model's folder (default: where `lingua models` puts it) |
| languages | | only these, as `pt+es`; empty: all it has |
| voice.LANG | | the voice of a language: `voice.pt=pm_alex`; what is in the folder may be named |
| speed | 1 | how fast, 0.5 to 2 |
| chars_max | 240 | a longer text is left to the next voice of the language, if there is one |
| threads | 0 | of the network; 0: as many as the machine has cores, 4 at most |
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

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.languages import base_of
from lingua_scheduler.models import ModelNotInstalled, default_store
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import About, EngineError, ModelMissing, Sound, Watch
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.engines import sentences
from lingua_scheduler.speech.engines.espeak import shared_library
from lingua_scheduler.speech.engines.kokoro import phonemes
from lingua_scheduler.speech.engines.stitching import stitched
from lingua_scheduler.speech.sound import pcm16

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lingua_scheduler.speech.engines.espeak import Library

KNOWN: Final = {"dir": "", "languages": "", "speed": "1", "chars_max": "240", "threads": "0"}
THREADS_MAX: Final = 4
RATE_HZ: Final = 24_000
MODEL: Final = "kokoro"
NETWORK: Final = "kokoro.onnx"
ALPHABET: Final = "tokenizer.json"
# Language -> Kokoro's voice, and espeak-ng's whose phonemes that was trained on.
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
# The network's context holds 512 letters, of which the first and the last are its own; a voice has
# a manner of speaking for each length up to 510.
LETTERS_MAX: Final = 510
MANNER_SIZE: Final = 256
# A shorter piece is ready sooner, and stopping waits for no longer one.
PIECE_CHARS: Final = 200

Manners = npt.NDArray[np.float32]


class Speaker(NamedTuple):
    """Who speaks a language, and how its words are spelt."""

    manners: Manners
    espeak: str
    spelling: phonemes.Spelling


class _Tokens(msgspec.Struct):
    vocab: dict[str, int]


class _Alphabet(msgspec.Struct):
    model: _Tokens


def make(options: Mapping[str, str]) -> Kokoro:
    """Load the network and the voices."""
    others, named = reading.family(options, "voice")
    taken = plugins.take(others, KNOWN)
    speed = reading.real(taken, "speed", 0.5, 2)
    threads = reading.whole(taken, "threads", 0, 64)
    chars_max = reading.whole(taken, "chars_max", 0, 1_000_000)
    wanted = _wanted(reading.listed(taken, "languages"))
    folder = _folder(taken["dir"])
    library = shared_library()
    speakers = {code: _speaker(folder, library, code, named) for code in wanted}
    return Kokoro(Network(folder, speed, threads or _cores()), library, speakers, chars_max)


class Network:
    """The loaded model: letters and a manner in, samples out."""

    def __init__(self, folder: Path, speed: float, threads: int) -> None:
        self._session = _session(folder / NETWORK, threads)
        self._speed = np.array([speed], np.float32)
        self.vocabulary = _vocabulary(folder / ALPHABET)

    def spoken(self, numbers: list[int], manners: Manners) -> bytes:
        """Say some letters aloud."""
        fed = {
            "input_ids": np.array([[0, *numbers, 0]], np.int64),
            "style": manners[min(len(numbers), len(manners)) - 1][None],
            "speed": self._speed,
        }
        (samples,) = self._session.run(["waveform"], fed)
        return pcm16(samples[0])


class Kokoro:
    """A natural voice in a few languages."""

    def __init__(
        self, network: Network, library: Library, speakers: Mapping[str, Speaker], chars_max: int
    ) -> None:
        self._network = network
        self._library = library
        self._speakers = dict(speakers)
        self._chars_max = chars_max

    def about(self) -> About:
        """Tell what it is and can do."""
        return About(
            engine="kokoro",
            version=f"onnxruntime {ort.__version__}",
            model="kokoro-82m-q8",
            licence="Apache-2.0; phonemes: GPL-3.0-or-later",
            languages=tuple(sorted(self._speakers)),
            chars_max=self._chars_max,
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Say it aloud, sentence by sentence; stops between two of them."""
        speaker = self._speakers.get(language) or self._speakers.get(base_of(language))
        if speaker is None:
            raise EngineError("UNSUPPORTED_FEATURE", f"kokoro has no voice for {language!r}")
        return stitched(self._spoken(speaker, text, watch), RATE_HZ)

    def close(self) -> None:
        """Let go of the voices."""
        self._speakers.clear()

    def _spoken(self, speaker: Speaker, text: str, watch: Watch) -> Iterator[bytes]:
        for sentence in sentences.split(sentences.plain(text), PIECE_CHARS):
            if not sentences.is_speakable(sentence):
                continue
            for piece in phonemes.pieces(
                sentence, LETTERS_MAX, lambda part: len(self._letters(speaker, part))
            ):
                watch.check()
                if letters := self._letters(speaker, piece)[:LETTERS_MAX]:
                    yield self._network.spoken(letters, speaker.manners)

    def _letters(self, speaker: Speaker, text: str) -> list[int]:
        def say(words: str) -> str:
            return self._library.phonemes(speaker.espeak, words, phonemes.TIE)

        spelt = phonemes.spelt(text, say, speaker.spelling)
        return phonemes.numbers(spelt, self._network.vocabulary)


def _cores() -> int:
    return min(len(os.sched_getaffinity(0)), THREADS_MAX)


def _wanted(named: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [code for code in named if code not in VOICES]
    if unknown:
        there = ", ".join(VOICES)
        raise ConfigError("engines", f"kokoro has no voice for {unknown[0]!r}; it has {there}")
    return tuple(code for code in VOICES if not named or code in named or base_of(code) in named)


def _folder(named: str) -> Path:
    if named:
        return Path(named).expanduser()
    try:
        return default_store().path(MODEL)
    except ModelNotInstalled as error:
        raise ModelMissing(str(error)) from error


def _speaker(folder: Path, library: Library, code: str, named: Mapping[str, str]) -> Speaker:
    usual, espeak = VOICES[code]
    name = named.get(code) or named.get(base_of(code)) or usual
    manners = _manners(folder / "voices" / f"{name}.bin")
    return Speaker(manners, library.voices[espeak], phonemes.spelling_of(espeak))


def _manners(path: Path) -> Manners:
    """Read a voice: rows of numbers, one for each length of a text in letters."""
    if not path.is_file():
        there = ", ".join(sorted(file.stem for file in path.parent.glob("*.bin"))) or "none"
        raise ModelMissing(
            f"kokoro has no voice {path.stem!r} in {path.parent}; there are: {there}"
        )
    try:
        return np.fromfile(path, "<f4").reshape(-1, MANNER_SIZE)
    except ValueError as error:
        raise ModelMissing(f"{path} is no voice of kokoro: {error}") from error


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
        raise ModelMissing(f"{path} is no network that can be loaded: {error}") from error
