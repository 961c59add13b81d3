"""The recogniser: a sound in pieces, each heard, decoded and doubted; then joined.

sound ──► pieces ──► encoder ──► language? ──► tokens ──► a circle? again, in a wider window
                                                    └───► noise? an echo? ──► text
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import onnxruntime as ort

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.languages import base_of
from lingua_scheduler.models import ModelNotInstalled, default_store
from lingua_scheduler.speech import sound as audio
from lingua_scheduler.speech.engine import About, EngineError, Heard, ModelMissing
from lingua_scheduler.speech.engines.whisper import guards, windows
from lingua_scheduler.speech.engines.whisper.catalogue import LANGUAGES
from lingua_scheduler.speech.engines.whisper.decoding import Decoder
from lingua_scheduler.speech.engines.whisper.network import Network
from lingua_scheduler.speech.engines.whisper.tokens import Vocabulary
from lingua_scheduler.speech.plugins import take

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.speech.engine import Hint, Sound, Watch
    from lingua_scheduler.speech.engines.whisper.decoding import Opening, Said
    from lingua_scheduler.speech.sound import Samples

KNOWN: Final = {
    "model": "base",
    "dir": "",
    "threads": "1",
    "window": "short",
    "translate": "yes",
    # Tell Whisper the text before. Measured on slices of sentences: 6 % of words wrong without,
    # 8 % with it, and no better capitals; hence not the default.
    "context": "no",
    # Which languages to offer, `en+nl`, in place of the list for the model's size.
    "languages": "",
}
CHOICES: Final = {
    "model": tuple(LANGUAGES),
    "window": ("short", "full"),
    "translate": ("yes", "no"),
    "context": ("yes", "no"),
}
FILES: Final = ("vocab.json", "added_tokens.json", "generation_config.json")
# Whisper's names of what we call otherwise.
RENAMED: Final = {"nb": "no", "jv": "jw", "iw": "he", "fil": "tl"}

# How often a piece is halved in which something was left out.
SPLITS_MAX: Final = 2
# A sound shorter than this holds no word.
SHORTEST_S: Final = 0.1
# How much of the text before is told.
CONTEXT_TOKENS: Final = 60
# Nothing was said if the network is lost (mean logarithm of its tokens' probabilities), or unsure
# while it finds it this probable that there is no speech. Measured on noise, hum, clicks, tones:
# -1.6 to -3.9 and 0.5 to 0.9; on single words: -1.5 to -0.1 and 0 to 0.7.
LOST_LOG: Final = -1.6
UNSURE: Final = ((0.6, -1.2), (0.75, -0.7))
# Nor if it says what it always says of noise and is not quite sure, or the sound is very quiet.
STOCK_LOG: Final = -0.5
STOCK_NO_SPEECH: Final = 0.3
STOCK_LEVEL_DB: Final = -45.0
# A language less probable than this is tried along with the second; what then counts beside the
# probability is the mean logarithm of each text's tokens, so many times.
SURE_OF_LANGUAGE: Final = 0.9
FIT_WEIGHT: Final = 8.0

Tell = Callable[[list[int]], None]


class Manner(NamedTuple):
    """How to listen."""

    window: windows.Window = "short"
    threads: int = 1
    has_context: bool = False


class Attempt(NamedTuple):
    """One piece heard and decoded once."""

    opening: Opening
    said: Said
    text: str
    no_speech: float
    scores: dict[str, float]


class Whisper:
    """One loaded model; listens to one sound at a time."""

    def __init__(self, directory: Path, about: About, manner: Manner) -> None:
        self._about = about
        self._manner = manner
        self._network = Network(directory, manner.window, manner.threads)
        self._vocabulary = Vocabulary(directory)
        self._decoder = Decoder(self._network, self._vocabulary)
        # What was spoken last: the first guess for the next sound.
        self._guess = "en"

    def about(self) -> About:
        """Tell what it is and can do."""
        return self._about

    def close(self) -> None:
        """Let go of nothing: the model goes with the process."""

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Heard:
        """Tell what is said."""
        transcript = _Transcript(self._candidates(hint), hint, is_told=self._manner.has_context)
        samples = audio.trim(audio.hearing(sound))
        if len(samples) >= SHORTEST_S * audio.HEARING_RATE:
            for piece in windows.pieces(samples):
                self._hear(piece, transcript, watch)
        return transcript.heard()

    def _candidates(self, hint: Hint) -> dict[str, str]:
        """Return Whisper's code -> ours, of the languages that it may be."""
        wanted = (hint.language,) if hint.language else hint.allowed or self._about.languages
        named = {_its(code): code for code in wanted}
        known = {name: code for name, code in named.items() if name in self._vocabulary.languages}
        if not known:
            raise EngineError("MODEL_NOT_AVAILABLE", f"Whisper knows none of {', '.join(wanted)}")
        return known

    def _hear(
        self, piece: Samples, transcript: _Transcript, watch: Watch, splits: int = SPLITS_MAX
    ) -> None:
        def tell(tokens: list[int]) -> None:
            watch.check()
            watch.partial(transcript.with_more(self._vocabulary.text(tokens)))

        watch.check()
        best = self._believed(piece, transcript, tell)
        transcript.note_languages(best)
        if _is_nothing(best, piece):
            return
        if splits and guards.fell_short(len(best.said.tokens), windows.spoken_s(piece)):
            # It lost its way: in shorter pieces it finds it.
            for part in windows.halves(piece):
                self._hear(part, transcript, watch, splits - 1)
            return
        translation = ""
        if transcript.is_translated(self._about, best.opening.language):
            translation = self._translated(best.opening, piece, watch)
        transcript.add(best, translation)

    def _believed(self, piece: Samples, transcript: _Transcript, tell: Tell) -> Attempt:
        """Hear it in the chosen window; again in another way if that went wrong."""
        attempt = self._attempt(piece, transcript, tell, self._manner.window)
        if transcript.before and guards.is_echo(attempt.text, transcript.before):
            transcript.before = ""
            attempt = self._attempt(piece, transcript, tell, self._manner.window)
        if self._manner.window == "full" or not _went_round(attempt) or _is_nothing(attempt, piece):
            return attempt
        return self._attempt(piece, transcript, tell, "wide")

    def _attempt(
        self, piece: Samples, transcript: _Transcript, tell: Tell, window: windows.Window
    ) -> Attempt:
        hidden = self._network.listen(piece, windows.frames_for(piece, window))
        before = self._vocabulary.encode(" " + transcript.before) if transcript.before else []
        names = transcript.candidates
        guess = self._guess if self._guess in names else next(iter(names))
        opening = self._decoder.open(hidden, guess, before[-CONTEXT_TOKENS:])
        scores = self._decoder.languages(opening, names)
        said_in = self._say(opening, scores, guards.room(windows.spoken_s(piece)), tell)
        scores = _weighed(scores, said_in)
        self._guess = max(said_in, key=scores.__getitem__)
        opening, said = said_in[self._guess]
        text = guards.without_sounds(self._vocabulary.text(said.tokens))
        return Attempt(opening, said, text, self._decoder.no_speech(opening), scores)

    def _say(
        self, opening: Opening, scores: dict[str, float], room: guards.Room, tell: Tell
    ) -> dict[str, tuple[Opening, Said]]:
        """Decode in the likeliest language; if that is in doubt, in the second as well."""
        first, *others = sorted(scores, key=scores.__getitem__, reverse=True)
        tried = [first, *others[:1]] if scores[first] < SURE_OF_LANGUAGE else [first]
        said_in = {}
        for name in tried:
            turned = self._decoder.turn(opening, name, "transcribe")
            said_in[name] = (turned, self._decoder.say(turned, room, tell))
        return said_in

    def _translated(self, opening: Opening, piece: Samples, watch: Watch) -> str:
        turned = self._decoder.turn(opening, opening.language, "translate")
        room = guards.room(windows.spoken_s(piece))
        said = self._decoder.say(turned, room, lambda _: watch.check())
        return guards.without_sounds(self._vocabulary.text(said.tokens))


def _its(code: str) -> str:
    """Return Whisper's name of a language."""
    return RENAMED.get(base_of(code), base_of(code))


def _weighed(
    scores: dict[str, float], said_in: dict[str, tuple[Opening, Said]]
) -> dict[str, float]:
    """Return the languages' scores, weighed by how well the text in each fits."""
    fits = {
        name: scores[name] * exp(FIT_WEIGHT * said.mean_log) for name, (_, said) in said_in.items()
    }
    shared, fit = sum(scores[name] for name in fits), sum(fits.values())
    if len(fits) == 1 or not fit:
        return scores
    return scores | {name: shared * one / fit for name, one in fits.items()}


def _went_round(attempt: Attempt) -> bool:
    text = attempt.text
    return bool(attempt.said.cut) or guards.is_round(text) or guards.is_squeezable(text)


def _is_nothing(attempt: Attempt, piece: Samples) -> bool:
    """Tell whether to believe that nothing was said."""
    mean = attempt.said.mean_log
    if not guards.words_of(attempt.text) or mean < LOST_LOG:
        return True
    if any(attempt.no_speech > silent and mean < unsure for silent, unsure in UNSURE):
        return True
    if not guards.is_stock(attempt.text):
        return False
    is_quiet = audio.level_db(piece) < STOCK_LEVEL_DB
    return is_quiet or attempt.no_speech > STOCK_NO_SPEECH or mean < STOCK_LOG


class _Transcript:
    """What was made of a sound so far, piece by piece."""

    def __init__(self, candidates: dict[str, str], hint: Hint, *, is_told: bool) -> None:
        # Whisper's code -> ours; only one is left once it is known.
        self.candidates = candidates
        # What Whisper is told was said before the next piece, if it is.
        self.before = hint.context if is_told and hint.continues else ""
        self._is_told = is_told
        self._hint = hint
        self._texts: list[str] = []
        self._translations: list[str] = []
        self._scores: dict[str, float] = {}
        self._remarks: dict[str, None] = {}
        # Of what is in the texts: the logarithms of probabilities, and how many.
        self._logs = 0.0
        self._tokens = 0

    def with_more(self, text: str) -> str:
        return " ".join([*self._texts, guards.without_sounds(text)]).strip()

    def is_translated(self, about: About, spoken: str) -> bool:
        target = self._hint.translate_to
        return bool(target) and any(
            target == into and _its(source) == spoken for source, into in about.pairs
        )

    def add(self, attempt: Attempt, translation: str) -> None:
        # Nobody changes the language in mid-sentence.
        spoken = attempt.opening.language
        self.candidates = {spoken: self.candidates[spoken]}
        self._texts.append(attempt.text)
        self._translations.append(translation)
        self.before = attempt.text if self._is_told else ""
        if attempt.said.cut:
            self._remarks[attempt.said.cut] = None
        count = len(attempt.said.tokens) + 1
        self._logs += attempt.said.mean_log * count
        self._tokens += count

    def note_languages(self, attempt: Attempt) -> None:
        if not self._texts and not self._hint.language:
            named = {self.candidates[name]: score for name, score in attempt.scores.items()}
            self._scores = named

    def heard(self) -> Heard:
        language = self._hint.language
        if not language and self._scores:
            language = max(self._scores, key=self._scores.__getitem__)
        return Heard(
            text=" ".join(self._texts),
            language=language,
            scores=self._scores,
            confidence=exp(self._logs / self._tokens) if self._tokens else None,
            translation=" ".join(filter(None, self._translations)),
            remarks=tuple(self._remarks),
        )


def make(options: Mapping[str, str]) -> Whisper:
    """Load a model; options are those of `KNOWN`."""
    chosen = take(options, KNOWN)
    for key, allowed in CHOICES.items():
        if chosen[key] not in allowed:
            raise ConfigError("engines", f"whisper: {key} is {' or '.join(allowed)}")
    if not chosen["threads"].isdecimal() or not 1 <= int(chosen["threads"]) <= 64:
        raise ConfigError("engines", "whisper: threads is a number from 1 to 64")
    directory = _directory(chosen)
    manner = Manner(
        "full" if chosen["window"] == "full" else "short",
        int(chosen["threads"]),
        chosen["context"] == "yes",
    )
    return Whisper(directory, _about(chosen), manner)


def _directory(chosen: Mapping[str, str]) -> Path:
    if chosen["dir"]:
        directory = Path(chosen["dir"]).expanduser()
    else:
        directory = _installed(f"whisper-{chosen['model']}")
    missing = [name for name in FILES if not (directory / name).is_file()]
    if missing:
        raise ModelMissing(f"{directory} has no {missing[0]}: lingua models install whisper-base")
    return directory


def _installed(name: str) -> Path:
    try:
        return default_store().path(name)
    except ModelNotInstalled as error:
        raise ModelMissing(str(error)) from error


def _about(chosen: Mapping[str, str]) -> About:
    size = chosen["model"]
    named = tuple(filter(None, chosen["languages"].split("+")))
    languages = named or LANGUAGES[size]
    others = [code for code in languages if base_of(code) != "en"]
    return About(
        engine="whisper",
        version=f"onnxruntime {ort.__version__}",
        model=f"whisper-{size}",
        licence="MIT",
        languages=languages,
        pairs=tuple((code, "en") for code in others) if chosen["translate"] == "yes" else (),
    )
