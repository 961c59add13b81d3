"""faster-whisper: Whisper of any size on a CPU or a GPU (asr=faster-whisper).

Licence: MIT (Whisper's weights too). Needs `pip install 'lingua-scheduler[faster-whisper]'` and a
model folder in CTranslate2's form (model.bin, config.json, tokenizer.json, vocabulary.*); nothing
is ever fetched from a hub. Multilingual models also translate into English.

| option | default | what it is |
|---|---|---|
| model | | the folder |
| device | auto | auto, cpu or cuda |
| compute_type | default | int8, int8_float16, float16, float32 ... |
| threads | 1 | threads on a CPU |
| beam | 1 | width of the search, 1 to 16 |
| retries | 2 | how often an improbable or repetitive text is heard again with more chance, 0 to 3 |
| context | 200 | how many characters of what was said before it is shown, 0 to 800 |
"""

from __future__ import annotations

import math
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_scheduler.languages import base_of
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import (
    About,
    EngineError,
    Heard,
    Hint,
    ModelMissing,
    Sound,
    Watch,
)
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.sound import Samples, hearing

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
# Whisper's own code for Javanese is none of the standard's; others have two.
OUR_CODES: Final = {"jw": "jv"}
ITS_CODES: Final = {"jv": "jw", "nb": "no", "iw": "he", "fil": "tl"}
# Tried in turn when the text repeats itself or is improbable.
TEMPERATURES: Final = (0.0, 0.4, 0.8, 1.0)
# A text that packs better than this repeats itself (Whisper's own threshold).
REPETITIVE: Final = 2.4


class Rules(NamedTuple):
    """How it listens."""

    beam: int
    context_chars: int
    temperatures: tuple[float, ...]


def make(options: Mapping[str, str]) -> FasterWhisper:
    """Load the model."""
    taken = plugins.take(options, KNOWN)
    device = reading.one_of(taken, "device", ("auto", "cpu", "cuda"))
    threads = reading.whole(taken, "threads", 1, 256)
    rules = Rules(
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
    return FasterWhisper(model, path.name, rules)


class FasterWhisper:
    """Hears what its Whisper hears."""

    def __init__(self, model: Any, name: str, rules: Rules) -> None:
        self._model = model
        self._name = name
        self._rules = rules
        self._is_multilingual = bool(model.model.is_multilingual)
        codes = set(model.supported_languages if self._is_multilingual else [ENGLISH])
        also = {code for code, its in ITS_CODES.items() if its in codes}
        self._languages = tuple(sorted({OUR_CODES.get(code, code) for code in codes} | also))

    def about(self) -> About:
        """Tell what it is and can do."""
        return About(
            engine="faster-whisper",
            version=version("faster-whisper"),
            model=self._name,
            licence="MIT",
            device=str(self._model.model.device),
            languages=self._languages,
            pairs=tuple((code, ENGLISH) for code in self._languages if code != ENGLISH),
        )

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Heard:
        """Tell what is said, and in English too if that is asked for."""
        watch.check()
        samples = hearing(sound)
        if not len(samples):
            return Heard(text="", language=hint.language)
        scores = {} if hint.language else self._scores(samples, hint.allowed)
        language = hint.language or max(scores, key=scores.__getitem__)
        self._check(language)
        watch.check()
        heard = self._said(samples, language, hint, watch)
        translation = ""
        if heard.text and self._is_wanted_in_english(language, hint):
            translation = self._said(samples, language, hint, watch, task="translate").text
        return Heard(
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
            raise EngineError("UNSUPPORTED_FEATURE", f"{self._name} cannot hear {language!r}")

    def _is_wanted_in_english(self, language: str, hint: Hint) -> bool:
        wanted = base_of(hint.translate_to) == ENGLISH and base_of(language) != ENGLISH
        return wanted and self._is_multilingual

    def _scores(self, samples: Samples, allowed: tuple[str, ...]) -> dict[str, float]:
        """Tell how probable each language is, among those allowed."""
        if not self._is_multilingual:
            return {next((code for code in allowed if base_of(code) == ENGLISH), ENGLISH): 1.0}
        _, _, found = self._model.detect_language(samples)
        every = {code: float(score) for code, score in found}
        if not allowed:
            return {OUR_CODES.get(code, code): score for code, score in every.items()}
        scores = {code: every[_its(code)] for code in allowed if _its(code) in every}
        if not scores:
            self._check(allowed[0])
        total = sum(scores.values())
        return {
            code: score / total if total > 0 else 1 / len(scores) for code, score in scores.items()
        }

    def _said(
        self, samples: Samples, language: str, hint: Hint, watch: Watch, task: str = "transcribe"
    ) -> Heard:
        shown = self._rules.context_chars
        context = hint.context[-shown:].strip() if shown and task == "transcribe" else ""
        segments, _ = self._model.transcribe(
            samples,
            language=_its(language),
            task=task,
            beam_size=self._rules.beam,
            temperature=self._rules.temperatures,
            best_of=2,
            condition_on_previous_text=False,
            initial_prompt=context or None,
        )
        is_shown = task == "transcribe"
        return _gathered(segments, watch, is_shown=is_shown)


def _its(code: str) -> str:
    """Return Whisper's name of a language."""
    return ITS_CODES.get(base_of(code), base_of(code))


def _gathered(segments: Iterable[Any], watch: Watch, *, is_shown: bool) -> Heard:
    """Put segments together as they come; between two of them it can be stopped."""
    texts: list[str] = []
    tokens, log_probability, is_repetitive = 0, 0.0, False
    try:
        for segment in segments:
            watch.check()
            texts.append(segment.text.strip())
            tokens += len(segment.tokens)
            log_probability += segment.avg_logprob * len(segment.tokens)
            is_repetitive = is_repetitive or segment.compression_ratio > REPETITIVE
            if is_shown:
                watch.partial(" ".join(filter(None, texts)))
    except RuntimeError as error:
        raise EngineError("PROCESSING_ERROR", f"faster-whisper: {error}") from error
    text = " ".join(filter(None, texts))
    return Heard(
        text=text,
        confidence=math.exp(log_probability / tokens) if tokens else None,
        remarks=("repetition",) if is_repetitive else (),
    )
