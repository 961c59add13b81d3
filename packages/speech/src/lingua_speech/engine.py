"""The engine interface: one small protocol for each role, and the values they exchange.

An engine is created once, by `plugins.make(spec)`, in a worker process. Its methods are called one
at a time there and may block. It raises `EngineError` when it cannot do what is requested; any
other exception is a fault of the engine. Languages are the codes of `lingua_wire.languages` (`en`,
`es`, `pt-br`); audio is 16-bit little-endian mono.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Protocol

import msgspec

from lingua_wire.errors import LinguaError

Role = Literal["asr", "mt", "tts", "vad", "lid", "file"]
# The configurable roles; the file reader is always present.
ROLES: tuple[Role, ...] = ("asr", "mt", "tts", "vad", "lid")


class EngineError(LinguaError):
    """An engine cannot do what is requested; the code is an error code of the node protocol."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


class ModelMissing(EngineError):
    """The model, program or library of an engine is missing; the message says how to get it."""

    def __init__(self, message: str) -> None:
        super().__init__("MODEL_NOT_AVAILABLE", message)


class Stopped(EngineError):
    """The call was cancelled; raised by `Watch.check`."""

    def __init__(self) -> None:
        super().__init__("CANCELLED", "the job was cancelled")


class Watch(Protocol):
    """The connection of an engine to its caller during a call."""

    def partial(self, text: str) -> None:
        """Report the text so far; may be called at any rate."""

    def check(self) -> None:
        """Raise `Stopped` if the call was cancelled; cheap enough for loops."""


class Unwatched:
    """A watch without effect, for tests, warm-up and measurements."""

    def partial(self, text: str) -> None:
        """Do nothing."""

    def check(self) -> None:
        """Do nothing."""


class Sound(msgspec.Struct, frozen=True, array_like=True):
    """A piece of audio: 16-bit little-endian mono."""

    pcm: bytes
    sample_rate: Annotated[int, msgspec.Meta(ge=4000, le=192_000)]

    @property
    def duration_ms(self) -> float:
        """Return the duration."""
        return len(self.pcm) * 500 / self.sample_rate


class SpeechSpan(NamedTuple):
    """A part of a sound that contains speech."""

    start_ms: int
    end_ms: int


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The identity and abilities of an engine; a node declares these, so they must be true."""

    # The name and version of the engine, and the name of its model.
    engine: str
    version: str = ""
    model: str = ""
    licence: str = ""
    device: str = "cpu"
    # asr, tts, vad, lid: its languages; empty means any.
    languages: tuple[str, ...] = ()
    # tts: a slow voice; a longer text, or one that would have to wait, goes to another voice if
    # there is one. 0: not slow.
    chars_max: int = 0
    # mt: its directions. asr: directions that it can return in addition to the transcript.
    pairs: tuple[tuple[str, str], ...] = ()


class Hint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Known facts about speech before its recognition."""

    # The language spoken; empty: to be detected, among `allowed` if that is given.
    language: str = ""
    allowed: tuple[str, ...] = ()
    # The preceding speech in the same turn or session.
    context: str = ""
    # The speech continues the context in mid-sentence (a slice of a longer turn).
    continues: bool = False
    # Also translate into this language, if `About.pairs` contains it.
    translate_to: str = ""
    # The transcript is shown for a moment and then replaced: an engine may save time. It may
    # also take these words, which were heard before, for its beginning. Never for a job.
    is_draft: bool = False
    known: str = ""


class HeardWord(NamedTuple):
    """A word of a transcript, and how probable it is."""

    text: str
    probability: float


class Transcript(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Recognised speech; an empty text means that nothing was said."""

    text: str
    # The language spoken, and the probability of each candidate if it was detected.
    language: str = ""
    scores: dict[str, float] = {}
    # The confidence in the text, 0 to 1; None if unknown.
    confidence: float | None = None
    # The translation requested by `Hint.translate_to`, otherwise empty.
    translation: str = ""
    # Why the text may be worse than usual, e.g. "repetition_cut".
    remarks: tuple[str, ...] = ()
    # The words of the text, if the engine knows how probable each is.
    words: tuple[HeardWord, ...] = ()


class Rendered(msgspec.Struct, frozen=True, array_like=True):
    """A translation with details."""

    text: str
    # The route it took, if the engine has several.
    route: str = ""
    # Why the text may be worse than usual, e.g. "mt_numbers_changed".
    remarks: tuple[str, ...] = ()


class Engine(Protocol):
    """The methods of all engines."""

    def about(self) -> About:
        """Return the identity and abilities of the loaded engine."""

    def close(self) -> None:
        """Release child processes, files and other resources."""


class Recogniser(Engine, Protocol):
    """Speech to text (asr)."""

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        """Return the transcript of a sound."""


class Translator(Engine, Protocol):
    """Text to text (mt)."""

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str | Rendered:
        """Return the text in another language."""


class Synthesiser(Engine, Protocol):
    """Text to speech (tts)."""

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Return the spoken text."""


class SpeechDetector(Engine, Protocol):
    """Voice activity detection (vad)."""

    def spans(self, sound: Sound, watch: Watch) -> tuple[SpeechSpan, ...]:
        """Return the parts with speech, in order and without overlap."""


class LanguageDetector(Engine, Protocol):
    """Language identification of text (lid), for recognisers that do not report a language."""

    def identify(self, text: str, allowed: tuple[str, ...], watch: Watch) -> dict[str, float]:
        """Return language -> probability of the allowed languages; empty means all it knows."""


class FileReader(Engine, Protocol):
    """Audio files to sound (file)."""

    def read(self, data: bytes, watch: Watch) -> Sound:
        """Decode a file."""


def text_of(translation: str | Rendered) -> str:
    """Return the text of a translator's answer."""
    return translation.text if isinstance(translation, Rendered) else translation


# The method of each role.
METHODS: dict[Role, str] = {
    "asr": "recognise",
    "mt": "translate",
    "tts": "speak",
    "vad": "spans",
    "lid": "identify",
    "file": "read",
}
