"""The recogniser: a sound is cut into pieces; each is encoded, decoded and checked; then joined.

sound ──► pieces ──► encoder ──► language? ──► tokens ──► a loop? again, in a wider window
                                                    └───► noise? an echo? ──► text
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import onnxruntime as ort

from lingua_speech import sound as audio
from lingua_speech.engine import About, EngineError, HeardWord, ModelMissing, Transcript
from lingua_speech.engines.whisper import guards, windows
from lingua_speech.engines.whisper.decoding import Decoder
from lingua_speech.engines.whisper.languages import LANGUAGES
from lingua_speech.engines.whisper.network import WhisperNetwork
from lingua_speech.engines.whisper.tokens import Vocabulary
from lingua_speech.models import ModelNotInstalled, default_store
from lingua_speech.plugins import take
from lingua_wire.errors import ConfigError
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_speech.engine import Hint, Sound, Watch
    from lingua_speech.engines.whisper.decoding import DecodedText, DecodingStart
    from lingua_speech.sound import Samples

KNOWN: Final = {
    "model": "base",
    "dir": "",
    "threads": "1",
    "window": "short",
    "translate": "yes",
    # Give Whisper the text before. Measured on slices of sentences: 6 % of words wrong without
    # it, 8 % with it, and no better capitals; so it is not the default.
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
# Languages whose code in Whisper differs from ours.
RENAMED: Final = {"nb": "no", "jv": "jw", "iw": "he", "fil": "tl"}

# How often a piece is halved if its text is incomplete.
SPLITS_MAX: Final = 2
# A sound shorter than this contains no word.
SHORTEST_S: Final = 0.1
# How much of the text before is given as context.
CONTEXT_TOKENS: Final = 60
# There was no speech if the mean logarithm of the tokens' probabilities is very low, or if it is
# low and the probability of no speech is high. Measured on noise, hum, clicks, tones: -1.6 to -3.9
# and 0.5 to 0.9; on single words: -1.5 to -0.1 and 0 to 0.7.
LOST_LOG: Final = -1.6
UNSURE: Final = ((0.6, -1.2), (0.75, -0.7))
# Nor if the text is one that noise often produces and it is uncertain, or the sound very quiet.
STOCK_LOG: Final = -0.5
STOCK_NO_SPEECH: Final = 0.3
STOCK_LEVEL_DB: Final = -45.0
# If the first language is less probable than this, the second is decoded as well. Each probability
# is then multiplied by exp(weight * mean logarithm of the text's tokens).
SURE_OF_LANGUAGE: Final = 0.9
FIT_WEIGHT: Final = 8.0

ReportTokens = Callable[[list[int]], None]


class WhisperSettings(NamedTuple):
    """The options of recognition."""

    window: windows.Window = "short"
    threads: int = 1
    has_context: bool = False


class DecodingAttempt(NamedTuple):
    """One piece, encoded and decoded once."""

    start: DecodingStart
    decoded: DecodedText
    text: str
    no_speech: float
    scores: dict[str, float]


class Whisper:
    """One loaded model; recognises one sound at a time."""

    def __init__(self, directory: Path, about: About, settings: WhisperSettings) -> None:
        self._about = about
        self._settings = settings
        self._network = WhisperNetwork(directory, settings.window, settings.threads)
        self._vocabulary = Vocabulary(directory)
        self._decoder = Decoder(self._network, self._vocabulary)
        # The language of the last sound: the first guess for the next one.
        self._guess = "en"

    def about(self) -> About:
        """Return the description of the engine."""
        return self._about

    def close(self) -> None:
        """Do nothing: the model is freed with the process."""

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        """Return the transcript of a sound."""
        transcript = _Transcript(
            self._candidates(hint), hint, has_context=self._settings.has_context
        )
        samples = audio.trim(audio.hearing(sound))
        if len(samples) >= SHORTEST_S * audio.HEARING_RATE:
            for piece in windows.pieces(samples):
                self._recognise_piece(piece, transcript, watch)
        return transcript.heard()

    def _candidates(self, hint: Hint) -> dict[str, str]:
        """Return Whisper's code -> ours, of the possible languages."""
        wanted = (hint.language,) if hint.language else hint.allowed or self._about.languages
        named = {_whisper_code(code): code for code in wanted}
        known = {name: code for name, code in named.items() if name in self._vocabulary.languages}
        if not known:
            raise EngineError("MODEL_NOT_AVAILABLE", f"Whisper knows none of {', '.join(wanted)}")
        return known

    def _recognise_piece(
        self, piece: Samples, transcript: _Transcript, watch: Watch, splits: int = SPLITS_MAX
    ) -> None:
        def report(tokens: list[int]) -> None:
            watch.check()
            watch.partial(transcript.with_more(self._vocabulary.text(tokens)))

        watch.check()
        best = self._best_attempt(piece, transcript, report)
        transcript.note_languages(best)
        if _is_no_speech(best, piece):
            return
        if splits and guards.has_too_few_tokens(len(best.decoded.tokens), windows.spoken_s(piece)):
            # Part of the speech is missing; shorter pieces are recognised more completely.
            for part in windows.halves(piece):
                self._recognise_piece(part, transcript, watch, splits - 1)
            return
        translation = ""
        if transcript.is_translated(self._about, best.start.language):
            translation = self._translated(best.start, piece, watch)
        decoded = best.decoded
        words = self._vocabulary.words(decoded.tokens, decoded.logs)
        transcript.add(best, translation, words)

    def _best_attempt(
        self, piece: Samples, transcript: _Transcript, report: ReportTokens
    ) -> DecodingAttempt:
        """Recognise a piece in the chosen window; retry in another way if the result is bad."""
        attempt = self._attempt(piece, transcript, report, self._settings.window)
        if transcript.before and guards.is_echo(attempt.text, transcript.before):
            transcript.before = ""
            attempt = self._attempt(piece, transcript, report, self._settings.window)
        if (
            self._settings.window == "full"
            or not _is_looping(attempt)
            or _is_no_speech(attempt, piece)
            # It ends before its repetition; the next draft comes as soon as another try would.
            or (transcript.is_draft and attempt.decoded.cut == "repetition_cut")
        ):
            return attempt
        return self._attempt(piece, transcript, report, "wide")

    def _attempt(
        self, piece: Samples, transcript: _Transcript, report: ReportTokens, window: windows.Window
    ) -> DecodingAttempt:
        hidden = self._network.encode(piece, windows.frames_for(piece, window))
        before = self._vocabulary.encode(" " + transcript.before) if transcript.before else []
        names = transcript.candidates
        guess = self._guess if self._guess in names else next(iter(names))
        known = self._vocabulary.encode(f" {transcript.known}") if transcript.known else []
        # Only once: what is recognised again is searched as a whole.
        transcript.known = ""
        start = self._decoder.start(hidden, guess, before[-CONTEXT_TOKENS:], known)
        if start.is_known_improbable:
            start = self._decoder.start(hidden, guess, before[-CONTEXT_TOKENS:])
        scores = self._decoder.languages(start, names)
        decoded_by_language = self._decode(
            start, scores, guards.token_budget(windows.spoken_s(piece)), report
        )
        scores = _weighted(scores, decoded_by_language)
        self._guess = max(decoded_by_language, key=scores.__getitem__)
        start, decoded = decoded_by_language[self._guess]
        text = guards.without_sounds(self._vocabulary.text(decoded.tokens))
        return DecodingAttempt(start, decoded, text, self._decoder.no_speech(start), scores)

    def _decode(
        self,
        start: DecodingStart,
        scores: dict[str, float],
        budget: guards.TokenBudget,
        report: ReportTokens,
    ) -> dict[str, tuple[DecodingStart, DecodedText]]:
        """Decode in the most probable language; if that is uncertain, in the second as well."""
        first, *others = sorted(scores, key=scores.__getitem__, reverse=True)
        tried = [first, *others[:1]] if scores[first] < SURE_OF_LANGUAGE else [first]
        decoded_by_language = {}
        for name in tried:
            switched = self._decoder.switch(start, name, "transcribe")
            decoded_by_language[name] = (switched, self._decoder.decode(switched, budget, report))
        return decoded_by_language

    def _translated(self, start: DecodingStart, piece: Samples, watch: Watch) -> str:
        switched = self._decoder.switch(start, start.language, "translate")
        budget = guards.token_budget(windows.spoken_s(piece))
        decoded = self._decoder.decode(switched, budget, lambda _: watch.check())
        return guards.without_sounds(self._vocabulary.text(decoded.tokens))


def _whisper_code(code: str) -> str:
    """Return Whisper's code of a language."""
    return RENAMED.get(base_of(code), base_of(code))


def _weighted(
    scores: dict[str, float], decoded_by_language: dict[str, tuple[DecodingStart, DecodedText]]
) -> dict[str, float]:
    """Return the scores of the languages, weighted by the probability of each text."""
    fits = {
        name: scores[name] * exp(FIT_WEIGHT * decoded.mean_log)
        for name, (_, decoded) in decoded_by_language.items()
    }
    shared, fit = sum(scores[name] for name in fits), sum(fits.values())
    if len(fits) == 1 or not fit:
        return scores
    return scores | {name: shared * one / fit for name, one in fits.items()}


def _is_looping(attempt: DecodingAttempt) -> bool:
    text = attempt.text
    return bool(attempt.decoded.cut) or guards.is_loop(text) or guards.is_compressible(text)


def _is_no_speech(attempt: DecodingAttempt, piece: Samples) -> bool:
    """Tell whether the piece probably contains no speech."""
    mean = attempt.decoded.mean_log
    if not guards.words_of(attempt.text) or mean < LOST_LOG:
        return True
    if any(attempt.no_speech > silent and mean < unsure for silent, unsure in UNSURE):
        return True
    if not guards.is_stock_phrase(attempt.text):
        return False
    is_quiet = audio.level_db(piece) < STOCK_LEVEL_DB
    return is_quiet or attempt.no_speech > STOCK_NO_SPEECH or mean < STOCK_LOG


class _Transcript:
    """The result so far, piece by piece."""

    def __init__(self, candidates: dict[str, str], hint: Hint, *, has_context: bool) -> None:
        # Whisper's code -> ours; only one remains once the language is known.
        self.candidates = candidates
        # The text before the next piece, if Whisper is given it as context.
        self.before = hint.context if has_context and hint.continues else ""
        self._has_context = has_context
        # The first words, if they and their language are known.
        self.known = hint.known if hint.language else ""
        self.is_draft = hint.is_draft
        self._hint = hint
        self._texts: list[str] = []
        self._words: list[HeardWord] = []
        self._translations: list[str] = []
        self._scores: dict[str, float] = {}
        self._remarks: dict[str, None] = {}
        # The sum of the logarithms of the tokens' probabilities, and the number of tokens.
        self._logs = 0.0
        self._tokens = 0

    def with_more(self, text: str) -> str:
        return " ".join([*self._texts, guards.without_sounds(text)]).strip()

    def is_translated(self, about: About, spoken: str) -> bool:
        target = self._hint.translate_to
        return bool(target) and any(
            target == into and _whisper_code(source) == spoken for source, into in about.pairs
        )

    def add(self, attempt: DecodingAttempt, translation: str, words: list[HeardWord]) -> None:
        # The language does not change within one sound.
        spoken = attempt.start.language
        self.candidates = {spoken: self.candidates[spoken]}
        self._texts.append(attempt.text)
        self._translations.append(translation)
        self._words += words
        self.before = attempt.text if self._has_context else ""
        if attempt.decoded.cut:
            self._remarks[attempt.decoded.cut] = None
        count = len(attempt.decoded.tokens) + 1
        self._logs += attempt.decoded.mean_log * count
        self._tokens += count

    def note_languages(self, attempt: DecodingAttempt) -> None:
        if not self._texts and not self._hint.language:
            named = {self.candidates[name]: score for name, score in attempt.scores.items()}
            self._scores = named

    def heard(self) -> Transcript:
        language = self._hint.language
        if not language and self._scores:
            language = max(self._scores, key=self._scores.__getitem__)
        text = " ".join(self._texts)
        is_same = text.split() == [word.text for word in self._words]
        return Transcript(
            text=text,
            language=language,
            scores=self._scores,
            confidence=exp(self._logs / self._tokens) if self._tokens else None,
            translation=" ".join(filter(None, self._translations)),
            remarks=tuple(self._remarks),
            # Not if something was removed from the text.
            words=tuple(self._words) if is_same else (),
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
    settings = WhisperSettings(
        "full" if chosen["window"] == "full" else "short",
        int(chosen["threads"]),
        chosen["context"] == "yes",
    )
    return Whisper(directory, _about(chosen), settings)


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
