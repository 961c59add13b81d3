"""What an engine is: small interfaces, one for each role, and what goes through them.

An engine is made once, by `plugins.make(spec)`, inside a worker process; there its methods are
called one at a time. It may block for as long as it works. It raises `EngineError` when it cannot
do what it is asked; anything else it raises is a fault of the engine. Languages are the codes of
`lingua_scheduler.languages` (`en`, `es`, `pt-br`), audio is 16-bit little-endian mono.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Protocol

import msgspec

from lingua_scheduler.errors import LinguaError

Role = Literal["asr", "mt", "tts", "vad", "lid", "file"]
# Those that are configured; who reads files is always there.
ROLES: tuple[Role, ...] = ("asr", "mt", "tts", "vad", "lid")


class EngineError(LinguaError):
    """An engine cannot do this; the code is one a node may report."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{code}: {message}")


class ModelMissing(EngineError):
    """An engine lacks its model, its program or its library; the message says how to get it."""

    def __init__(self, message: str) -> None:
        super().__init__("MODEL_NOT_AVAILABLE", message)


class Stopped(EngineError):
    """Nobody wants the answer any more; raised by `Watch.check`."""

    def __init__(self) -> None:
        super().__init__("CANCELLED", "the job was cancelled")


class Watch(Protocol):
    """An engine's line to whoever asked, while it works."""

    def partial(self, text: str) -> None:
        """Tell what is known so far; may be called at any rate."""

    def check(self) -> None:
        """Raise `Stopped` if nobody wants the answer any more; cheap, to be called in loops."""


class Unwatched:
    """A watch that nobody looks at: for tests, warm-up and measuring."""

    def partial(self, text: str) -> None:
        """Tell nobody."""

    def check(self) -> None:
        """Go on."""


class Sound(msgspec.Struct, frozen=True, array_like=True):
    """A piece of audio: 16-bit little-endian mono."""

    pcm: bytes
    sample_rate: Annotated[int, msgspec.Meta(ge=4000, le=192_000)]

    @property
    def duration_ms(self) -> float:
        """Return how long it lasts."""
        return len(self.pcm) * 500 / self.sample_rate


class Span(NamedTuple):
    """Where there is speech."""

    start_ms: int
    end_ms: int


class About(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an engine is and can do; what a node declares is made of these, so it must be true."""

    # The engine's name and version, and its model's name.
    engine: str
    version: str = ""
    model: str = ""
    licence: str = ""
    device: str = "cpu"
    # asr, tts, vad, lid: the languages it knows; none means any.
    languages: tuple[str, ...] = ()
    # tts: it takes its time, so a longer text, or one that would wait, is better said by another
    # voice, if there is one; 0: it is quick.
    chars_max: int = 0
    # mt: the directions it translates. asr: those it can give beside the transcript.
    pairs: tuple[tuple[str, str], ...] = ()


class Hint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of speech before it is heard."""

    # The language spoken; empty: find out, among `allowed` if that is given.
    language: str = ""
    allowed: tuple[str, ...] = ()
    # What was said just before, in the same turn or session.
    context: str = ""
    # The speech goes on from the context in mid-sentence (a slice of a longer turn).
    continues: bool = False
    # Also give a translation into this language, if `About.pairs` has it.
    translate_to: str = ""


class Heard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was recognised; an empty text means that nothing was said."""

    text: str
    # The language spoken, and how probable each candidate was if the engine had to find out.
    language: str = ""
    scores: dict[str, float] = {}
    # 0 to 1, how sure the engine is of the text; None if it cannot tell.
    confidence: float | None = None
    # What `Hint.translate_to` asked for; empty if it was not given.
    translation: str = ""
    # Why it may be worse than usual, e.g. "repetition_cut".
    remarks: tuple[str, ...] = ()


class Rendered(msgspec.Struct, frozen=True, array_like=True):
    """A translation of which there is more to tell than its text."""

    text: str
    # Which way it went, if the engine has several.
    route: str = ""
    # Why it may be worse than usual, e.g. "mt_numbers_changed".
    remarks: tuple[str, ...] = ()


class Engine(Protocol):
    """What all engines have in common."""

    def about(self) -> About:
        """Tell what it is and can do, once it is loaded."""

    def close(self) -> None:
        """Let go of what it holds: child processes, files."""


class Recogniser(Engine, Protocol):
    """Speech to text (asr)."""

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Heard:
        """Tell what is said."""


class Translator(Engine, Protocol):
    """Text to text (mt)."""

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str | Rendered:
        """Say it in another language."""


class Voice(Engine, Protocol):
    """Text to speech (tts)."""

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Say it aloud."""


class SpeechFinder(Engine, Protocol):
    """Where there is speech at all (vad)."""

    def spans(self, sound: Sound, watch: Watch) -> tuple[Span, ...]:
        """Tell where there is speech, in order and apart from each other."""


class LanguageFinder(Engine, Protocol):
    """Which language a text is in (lid); for recognisers that cannot tell themselves."""

    def identify(self, text: str, allowed: tuple[str, ...], watch: Watch) -> dict[str, float]:
        """Return language -> probability, of those allowed; of all it knows if none are given."""


class FileReader(Engine, Protocol):
    """Sound out of a file that says what it is (file)."""

    def read(self, data: bytes, watch: Watch) -> Sound:
        """Decode it."""


def text_of(translation: str | Rendered) -> str:
    """Return the text of what a translator gave."""
    return translation.text if isinstance(translation, Rendered) else translation


# What is asked of an engine in each role.
METHODS: dict[Role, str] = {
    "asr": "recognise",
    "mt": "translate",
    "tts": "speak",
    "vad": "spans",
    "lid": "identify",
    "file": "read",
}
