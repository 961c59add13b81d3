"""faster-whisper: Whisper of any size on a CPU or a GPU (asr=faster-whisper).

Licence: MIT (Whisper's weights too). Needs `pip install 'lingua-speech[faster-whisper]'` and a
model folder in CTranslate2's form (model.bin, config.json, tokenizer.json, vocabulary.*); nothing
is ever fetched from a hub. Multilingual models also translate into English.

| option | default | what it is |
|---|---|---|
| model | | the folder |
| device | auto | auto, cpu or cuda |
| compute_type | default | int8, int8_float16, float16, float32 ... |
| threads | 1 | threads on a CPU |
| beam | 1 | width of the search, 1 to 16 |
| retries | 2 | retries, with more randomness, of an improbable or repetitive text, 0 to 3 |
| context | 200 | how many characters of the text before are given as context, 0 to 800 |
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_speech import plugins
from lingua_speech.engine import (
    About,
    EngineError,
    Hint,
    ModelMissing,
    Sound,
    Transcript,
    Watch,
)
from lingua_speech.engines import options as reading
from lingua_speech.sound import Samples, hearing
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KNOWN: Final = {
    "model": "",
    "device": "auto",
    "compute_type": "default",
    "threads": "1",
    "beam": "1",
    "retries": "2",
    "context": "200",
}
ENGLISH: Final = "en"
# Whisper's code for Javanese is not a standard one; some languages have two codes.
OUR_CODES: Final = {"jw": "jv"}
WHISPER_CODES: Final = {"jv": "jw", "nb": "no", "iw": "he", "fil": "tl"}
# Tried in turn if the text repeats itself or is improbable.
TEMPERATURES: Final = (0.0, 0.4, 0.8, 1.0)
# A text that compresses better than this repeats itself (Whisper's own threshold).
REPETITIVE: Final = 2.4


class FasterWhisperSettings(NamedTuple):
    """The options of recognition."""

    beam: int
    context_chars: int
    temperatures: tuple[float, ...]


def make(options: Mapping[str, str]) -> FasterWhisper:
    """Load the model."""
    taken = plugins.take(options, KNOWN)
    device = reading.one_of(taken, "device", ("auto", "cpu", "cuda"))
    threads = reading.whole(taken, "threads", 1, 256)
    settings = FasterWhisperSettings(
        beam=reading.whole(taken, "beam", 1, 16),
        context_chars=reading.whole(taken, "context", 0, 800),
        temperatures=TEMPERATURES[: 1 + reading.whole(taken, "retries", 0, 3)],
    )
    # Without tokenizer.json the library would ask a hub for one.
    path = reading.folder(taken, "model", "model.bin", "tokenizer.json")
    library = reading.library("faster_whisper", extra="faster-whisper")
    try:
        model = library.WhisperModel(
            str(path),
            device=device,
            compute_type=taken["compute_type"],
            cpu_threads=threads,
            local_files_only=True,
        )
    except (RuntimeError, ValueError) as error:
        raise ModelMissing(f"{path} cannot be loaded: {error}") from error
    return FasterWhisper(model, path.name, settings)


class FasterWhisper:
    """Recognises speech with a Whisper model in CTranslate2's format."""

    def __init__(self, model: Any, name: str, settings: FasterWhisperSettings) -> None:
        self._model = model
        self._name = name
        self._settings = settings
        self._is_multilingual = bool(model.model.is_multilingual)
        codes = set(model.supported_languages if self._is_multilingual else [ENGLISH])
        also = {code for code, its in WHISPER_CODES.items() if its in codes}
        self._languages = tuple(sorted({OUR_CODES.get(code, code) for code in codes} | also))

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="faster-whisper",
            version=version("faster-whisper"),
            model=self._name,
            licence="MIT",
            device=str(self._model.model.device),
            languages=self._languages,
            pairs=tuple((code, ENGLISH) for code in self._languages if code != ENGLISH),
        )

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        """Return the transcript of a sound, and its English translation if one is wanted."""
        watch.check()
        samples = hearing(sound)
        if not len(samples):
            return Transcript(text="", language=hint.language)
        scores = {} if hint.language else self._scores(samples, hint.allowed)
        language = hint.language or max(scores, key=scores.__getitem__)
        self._check(language)
        watch.check()
        heard = self._transcribe(samples, language, hint, watch)
        translation = ""
        if heard.text and self._is_wanted_in_english(language, hint):
            translation = self._transcribe(samples, language, hint, watch, task="translate").text
        return Transcript(
            text=heard.text,
            language=language,
            scores=scores,
            confidence=heard.confidence,
            translation=translation,
            remarks=heard.remarks,
        )

    def close(self) -> None:
        """Free the model."""
        self._model.model.unload_model()

    def _check(self, language: str) -> None:
        if base_of(language) not in self._languages:
            raise EngineError("UNSUPPORTED_FEATURE", f"{self._name} cannot recognise {language!r}")

    def _is_wanted_in_english(self, language: str, hint: Hint) -> bool:
        wanted = base_of(hint.translate_to) == ENGLISH and base_of(language) != ENGLISH
        return wanted and self._is_multilingual

    def _scores(self, samples: Samples, allowed: tuple[str, ...]) -> dict[str, float]:
        """Return the probability of each allowed language."""
        if not self._is_multilingual:
            return {next((code for code in allowed if base_of(code) == ENGLISH), ENGLISH): 1.0}
        _, _, found = self._model.detect_language(samples)
        every = {code: float(score) for code, score in found}
        if not allowed:
            return {OUR_CODES.get(code, code): score for code, score in every.items()}
        scores = {
            code: every[_whisper_code(code)] for code in allowed if _whisper_code(code) in every
        }
        if not scores:
            self._check(allowed[0])
        total = sum(scores.values())
        return {
            code: score / total if total > 0 else 1 / len(scores) for code, score in scores.items()
        }

    def _transcribe(
        self, samples: Samples, language: str, hint: Hint, watch: Watch, task: str = "transcribe"
    ) -> Transcript:
        chars = self._settings.context_chars
        context = hint.context[-chars:].strip() if chars and task == "transcribe" else ""
        segments, _ = self._model.transcribe(
            samples,
            language=_whisper_code(language),
            task=task,
            beam_size=self._settings.beam,
            temperature=self._settings.temperatures,
            best_of=2,
            condition_on_previous_text=False,
            initial_prompt=context or None,
        )
        reports_partials = task == "transcribe"
        return _joined(segments, watch, reports_partials=reports_partials)


def _whisper_code(code: str) -> str:
    """Return Whisper's code of a language."""
    return WHISPER_CODES.get(base_of(code), base_of(code))


def _joined(segments: Iterable[Any], watch: Watch, *, reports_partials: bool) -> Transcript:
    """Join segments as they arrive; recognition can be stopped between two of them."""
    texts: list[str] = []
    tokens, log_probability, is_repetitive = 0, 0.0, False
    try:
        for segment in segments:
            watch.check()
            texts.append(segment.text.strip())
            tokens += len(segment.tokens)
            log_probability += segment.avg_logprob * len(segment.tokens)
            is_repetitive = is_repetitive or segment.compression_ratio > REPETITIVE
            if reports_partials:
                watch.partial(" ".join(filter(None, texts)))
    except RuntimeError as error:
        raise EngineError("PROCESSING_ERROR", f"faster-whisper: {error}") from error
    text = " ".join(filter(None, texts))
    return Transcript(
        text=text,
        confidence=math.exp(log_probability / tokens) if tokens else None,
        remarks=("repetition",) if is_repetitive else (),
    )
