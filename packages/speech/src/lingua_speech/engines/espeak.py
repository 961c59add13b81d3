"""espeak-ng: plain, robotic voices in more than a hundred languages (tts=espeak).

Licence: GPL-3.0-or-later, loaded as a shared library into the worker process. Needs `pip install
'lingua-speech[engines]'` (espeakng-loader: library and voices). 22.05 kHz, a few ms per sentence.
The library has one state per process, so the engines of a process share it and take turns.

| option | default | what it is |
|---|---|---|
| rate | 165 | words per minute, 80 to 450 |
| pitch | 50 | 0 to 99 |
| volume | 100 | loudness in percent, 0 to 200 |
| voice.LANG | | the voice of a language: `voice.en=en-gb`, `voice.es=es-419+f2` |
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_speech import plugins
from lingua_speech.engine import About, EngineError, ModelMissing, Sound, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_speech.engines.stitching import stitched
from lingua_wire.errors import ConfigError, InvalidLanguage
from lingua_wire.languages import base_of
from lingua_wire.languages import language as one_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"rate": "165", "pitch": "50", "volume": "100"}

# Constants of espeak-ng's header, speak_lib.h.
SYNCHRONOUS: Final = 2
DO_NOT_EXIT: Final = 0x8000
BUFFER_MS: Final = 100
PLAIN_UTF8: Final = 1
BY_CHARACTER: Final = 1
# Phonemes in the IPA, with the character of bits 8 to 23 between the letters of one sound.
IPA: Final = 0x02
TIED: Final = 0x80
RATE, VOLUME, PITCH = 1, 2, 3
CONTINUE, STOP = 0, 1
# The library's own choices differ: its `en` is British, its `pt` European and harder to understand.
PREFERRED: Final = {"en": "en-us", "pt": "pt-br"}


class VoiceEntry(ctypes.Structure):
    """One entry of the library's list of voices."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_void_p),
        ("identifier", ctypes.c_char_p),
        ("gender", ctypes.c_ubyte),
        ("age", ctypes.c_ubyte),
        ("variant", ctypes.c_ubyte),
        ("unused", ctypes.c_ubyte),
        ("score", ctypes.c_int),
        ("spare", ctypes.c_void_p),
    ]


class SynthArguments(NamedTuple):
    """The arguments of `espeak_Synth`, in the order of the header."""

    text: bytes
    size: int
    position: int = 0
    position_type: int = BY_CHARACTER
    end_position: int = 0
    flags: int = PLAIN_UTF8
    unique_identifier: None = None
    user_data: None = None


SYNTH_TYPES: Final = (
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_uint,
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_uint,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
SynthCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def make(options: Mapping[str, str]) -> Espeak:
    """Make the engine with the library of this process, which is loaded at most once."""
    others, named = reading.family(options, "voice")
    taken = plugins.take(others, KNOWN)
    settings = {
        RATE: reading.whole(taken, "rate", 80, 450),
        PITCH: reading.whole(taken, "pitch", 0, 99),
        VOLUME: reading.whole(taken, "volume", 0, 200),
    }
    return Espeak(shared_library(), settings, named)


class Espeak:
    """The engine: a voice in every language of espeak-ng."""

    def __init__(
        self, library: EspeakLibrary, settings: Mapping[int, int], named: Mapping[str, str]
    ) -> None:
        self._library = library
        self._settings = settings
        # Language -> the name of its voice.
        self._voices = {**library.voices, **{code.lower(): name for code, name in named.items()}}
        for name in named.values():
            if not library.has(name):
                raise ConfigError("engines", f"espeak-ng has no voice {name!r}")

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="espeak",
            version=self._library.version,
            model="espeak-ng-data",
            licence="GPL-3.0-or-later",
            languages=tuple(sorted(self._voices)),
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Speak a text sentence by sentence; it stops within a tenth of a second of audio."""
        name = self._voices.get(language) or self._voices.get(base_of(language))
        if name is None:
            raise EngineError("UNSUPPORTED_FEATURE", f"espeak-ng has no voice for {language!r}")
        return stitched(self._synthesised(name, text, watch), self._library.sample_rate)

    def close(self) -> None:
        """Do nothing: the library stays loaded in the process."""

    def _synthesised(self, name: str, text: str, watch: Watch) -> Iterator[bytes]:
        for sentence in sentences.split(sentences.plain(text)):
            watch.check()
            if sentences.is_speakable(sentence):
                yield self._library.synthesise(name, self._settings, sentence, watch)


class EspeakLibrary:
    """The shared library: one per process, one call at a time."""

    def __init__(self, path: Path, data: Path) -> None:
        self._lock = Lock()
        self._so = _load(path)
        self.sample_rate = self._so.espeak_Initialize(
            SYNCHRONOUS, BUFFER_MS, str(data).encode(), DO_NOT_EXIT
        )
        if self.sample_rate <= 0:
            raise ModelMissing(f"espeak-ng cannot use its data in {data}")
        # The current sentence: its samples, its watch, and the error that the callback caught.
        self._samples: list[bytes] = []
        self._watch: Watch | None = None
        self._raised: EngineError | None = None
        # Referenced here because it must live as long as the library may call it.
        self._callback = SynthCallback(self._collect)
        self._so.espeak_SetSynthCallback(self._callback)
        self.version = self._so.espeak_Info(None).decode()
        # Language -> the voice that espeak-ng prefers for it.
        self.voices = self._listed(data)

    def has(self, name: str) -> bool:
        """Tell whether a voice of this name exists (`en-gb`, `es-419+f2`)."""
        with self._lock:
            return bool(self._so.espeak_SetVoiceByName(name.encode()) == 0)

    def synthesise(
        self, name: str, settings: Mapping[int, int], sentence: str, watch: Watch
    ) -> bytes:
        """Return the samples of one sentence; raises the error of the watch."""
        with self._lock:
            self._samples, self._watch, self._raised = [], watch, None
            # The voice first, because choosing one resets the settings.
            problem = self._so.espeak_SetVoiceByName(name.encode())
            for setting, value in settings.items():
                self._so.espeak_SetParameter(setting, value, 0)
            problem = problem or self._run(sentence.encode())
            if self._raised is not None:
                raise self._raised
            if problem:
                raise EngineError("PROCESSING_ERROR", f"espeak-ng failed with {problem} ({name})")
            return b"".join(self._samples)

    def phonemes(self, name: str, text: str, tie: str) -> str:
        """Return the phonemes of a text in the IPA, without punctuation."""
        with self._lock:
            if problem := self._so.espeak_SetVoiceByName(name.encode()):
                raise EngineError("PROCESSING_ERROR", f"espeak-ng failed with {problem} ({name})")
            rest = ctypes.c_char_p(text.encode())
            clauses = []
            # One clause per call; the library advances the pointer, at the end to null.
            while rest:
                said = self._so.espeak_TextToPhonemes(
                    ctypes.byref(rest), PLAIN_UTF8, IPA | TIED | ord(tie) << 8
                )
                clauses.append((said or b"").decode())
            return " ".join(" ".join(clauses).split())

    def _run(self, text: bytes) -> int:
        # The size counts the NUL byte that ends the text.
        arguments = SynthArguments(text=text, size=len(text) + 1)
        return int(self._so.espeak_Synth(*arguments))

    def _collect(self, samples: int | None, count: int, _events: Any) -> int:
        try:
            if self._watch is not None:
                self._watch.check()
        except EngineError as error:
            self._raised = error
            return STOP
        if samples and count > 0:
            self._samples.append(ctypes.string_at(samples, 2 * count))
        return CONTINUE

    def _listed(self, data: Path) -> dict[str, str]:
        best: dict[str, tuple[int, str]] = {}
        for entry in self._entries():
            tags = [(rank, code) for rank, tag in _tags(entry.languages) if (code := _code(tag))]
            # A few voices come without a dictionary and would be silent.
            if not any((data / f"{base_of(code)}_dict").is_file() for _, code in tags):
                continue
            for rank, code in tags:
                best[code] = min(best.get(code, (256, "")), (rank, entry.identifier.decode()))
        voices = {code: name for code, (_, name) in best.items()}
        preferred = {code: voices[ours] for code, ours in PREFERRED.items() if ours in voices}
        return voices | preferred

    def _entries(self) -> Iterator[VoiceEntry]:
        entries = self._so.espeak_ListVoices(None)
        index = 0
        while entries[index]:
            yield entries[index].contents
            index += 1


def _load(path: Path) -> ctypes.CDLL:
    """Load the shared library and declare the types of the functions that are not plain `int`."""
    library = ctypes.CDLL(str(path))
    library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(VoiceEntry))
    library.espeak_Info.restype = ctypes.c_char_p
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_Synth.argtypes = SYNTH_TYPES
    return library


# Loaded for the first engine of the process, shared by the others.
_loaded: list[EspeakLibrary] = []


def shared_library() -> EspeakLibrary:
    """Return the library of this process; the first call loads it."""
    if not _loaded:
        loader = reading.library("espeakng_loader", extra="engines")
        _loaded.append(EspeakLibrary(Path(loader.get_library_path()), Path(loader.get_data_path())))
    return _loaded[0]


def _tags(address: int) -> Iterator[tuple[int, str]]:
    """Read the languages of a voice: a byte of rank and a text ending with NUL, until rank 0."""
    while rank := ctypes.c_ubyte.from_address(address).value:
        tag = ctypes.string_at(address + 1)
        yield rank, tag.decode()
        address += len(tag) + 2


def _code(tag: str) -> str:
    """Return a tag as one of our codes; empty if it is not valid (`chr-US-Qaaa-x-west`)."""
    try:
        return one_form(tag)
    except InvalidLanguage:
        return ""
