"""Moonshine tiny: English speech to text on a small processor (asr=moonshine).

Licence: MIT (the English model). Needs `pip install 'lingua-scheduler[moonshine]'`: exactly 0.0.73,
the last release that carries its weights (later ones fetch them). Needs glibc 2.34. It hears a
sentence in about a twelfth of its length and understands less than Whisper base does.

| option | default | what it is |
|---|---|---|
| model | | another folder of a Moonshine model; empty: the one in the package |
| arch | tiny | what that model is: tiny or base |
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lingua_scheduler.extras import install_command
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
from lingua_scheduler.speech.sound import (
    FRAME_MS,
    HEARING_RATE,
    Samples,
    frame_levels_db,
    hearing,
    trim,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"model": "", "arch": "tiny"}
LANGUAGE: Final = "en"
# Its own detector of speech keeps its state from one recording to the next and so hears a word
# ("You") in the first tenth of a second; without it the whole sound is one line. The audio that
# it would hand back is of no use to us.
SETTINGS: Final = {"vad_threshold": "0.0", "return_audio_data": "false"}
# It hears a word in pure silence too: that is not asked of it.
SHORTEST_S: Final = 0.1
# Its time grows with the square of the length and beyond half a minute it leaves words out: a
# longer sound is cut at the quietest moment of the last seconds.
LONGEST_S: Final = 20
SEARCHED_S: Final = 6


def make(options: Mapping[str, str]) -> Moonshine:
    """Load the model."""
    taken = plugins.take(options, KNOWN)
    arch = reading.one_of(taken, "arch", ("tiny", "base"))
    library = reading.library("moonshine_voice", extra="moonshine")
    model = Path(taken["model"] or library.get_model_path("tiny-en")).expanduser()
    if not (model / "encoder_model.ort").is_file():
        hint = f"{install_command('moonshine')} (moonshine-voice 0.0.73 has the weights)"
        raise ModelMissing(f"{model} has no encoder_model.ort; run: {hint}")
    inner = reading.library("moonshine_voice.transcriber", extra="moonshine")
    try:
        transcriber = inner.Transcriber(model, library.ModelArch[arch.upper()], options=SETTINGS)
    except library.MoonshineError as error:
        raise ModelMissing(f"{model} cannot be loaded: {error}") from error
    return Moonshine(transcriber, library.MoonshineError, model.name)


class Moonshine:
    """Hears English."""

    def __init__(self, transcriber: Any, failure: type[Exception], model: str) -> None:
        self._transcriber = transcriber
        # What its library raises.
        self._failure = failure
        self._model = model

    def about(self) -> About:
        """Tell what it is and can do."""
        return About(
            engine="moonshine",
            version=version("moonshine-voice"),
            model=self._model,
            licence="MIT",
            languages=(LANGUAGE,),
        )

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Heard:
        """Tell what is said; it can be stopped between pieces."""
        if hint.language and base_of(hint.language) != LANGUAGE:
            raise EngineError("UNSUPPORTED_FEATURE", f"moonshine cannot hear {hint.language!r}")
        watch.check()
        samples = trim(hearing(sound))
        if len(samples) < SHORTEST_S * HEARING_RATE:
            return Heard(text="", language=hint.language or LANGUAGE)
        texts: list[str] = []
        for piece in _pieces(samples):
            texts.extend(self._lines(piece))
            watch.check()
            watch.partial(" ".join(texts))
        return Heard(text=" ".join(texts), language=hint.language or LANGUAGE)

    def _lines(self, samples: Samples) -> list[str]:
        try:
            found = self._transcriber.transcribe_without_streaming(samples.tolist(), HEARING_RATE)
        except self._failure as error:
            raise EngineError("PROCESSING_ERROR", f"moonshine: {error}") from error
        return [text for line in found.lines if (text := line.text.strip())]

    def close(self) -> None:
        """Free the model."""
        self._transcriber.close()


def _pieces(samples: Samples) -> Iterator[Samples]:
    """Cut a long sound at quiet moments."""
    frame = HEARING_RATE * FRAME_MS // 1000
    while len(samples) > LONGEST_S * HEARING_RATE:
        start = (LONGEST_S - SEARCHED_S) * HEARING_RATE
        levels = frame_levels_db(samples[start : LONGEST_S * HEARING_RATE])
        # Over a tenth of a second: between two words, not inside a consonant.
        quiet = np.convolve(levels, np.ones(10), "valid").argmin() + 5
        cut = start + int(quiet) * frame
        yield samples[:cut]
        samples = samples[cut:]
    yield samples
