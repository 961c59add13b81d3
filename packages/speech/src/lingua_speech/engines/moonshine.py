"""Moonshine tiny: recognition of English on a small processor (asr=moonshine).

Licence: MIT (the English model). Needs `pip install 'lingua-speech[moonshine]'`: exactly 0.0.73,
the last release that contains its weights (later ones fetch them). Needs glibc 2.34. It takes about
a twelfth of a sentence's duration and makes more errors than Whisper base.

| option | default | what it is |
|---|---|---|
| model | | another folder of a Moonshine model; empty: the one in the package |
| arch | tiny | the size of that model: tiny or base |
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lingua_cli.extras import install_command
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
from lingua_speech.sound import (
    FRAME_MS,
    HEARING_RATE,
    Samples,
    frame_levels_db,
    hearing,
    trim,
)
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"model": "", "arch": "tiny"}
LANGUAGE: Final = "en"
# Its speech detector keeps its state from one recording to the next and so finds a word ("You") in
# the first tenth of a second; without it the whole sound is one line. The audio that it would
# return is not needed.
SETTINGS: Final = {"vad_threshold": "0.0", "return_audio_data": "false"}
# It finds words even in pure silence, so shorter sounds are not passed to it.
SHORTEST_S: Final = 0.1
# Its time grows with the square of the length, and beyond half a minute it omits words. A longer
# sound is cut at the quietest moment of the last seconds.
LONGEST_S: Final = 20
SEARCHED_S: Final = 6


def make(options: Mapping[str, str]) -> Moonshine:
    """Load the model."""
    taken = plugins.take(options, KNOWN)
    arch = reading.one_of(taken, "arch", ("tiny", "base"))
    library = reading.library("moonshine_voice", extra="moonshine")
    model = Path(taken["model"] or library.get_model_path("tiny-en")).expanduser()
    if not (model / "encoder_model.ort").is_file():
        command = install_command("lingua-speech", "moonshine")
        hint = f"{command} (moonshine-voice 0.0.73 has the weights)"
        raise ModelMissing(f"{model} has no encoder_model.ort; run: {hint}")
    inner = reading.library("moonshine_voice.transcriber", extra="moonshine")
    try:
        transcriber = inner.Transcriber(model, library.ModelArch[arch.upper()], options=SETTINGS)
    except library.MoonshineError as error:
        raise ModelMissing(f"{model} cannot be loaded: {error}") from error
    return Moonshine(transcriber, library.MoonshineError, model.name)


class Moonshine:
    """Recognises English."""

    def __init__(self, transcriber: Any, failure: type[Exception], model: str) -> None:
        self._transcriber = transcriber
        # The exception of its library.
        self._failure = failure
        self._model = model

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="moonshine",
            version=version("moonshine-voice"),
            model=self._model,
            licence="MIT",
            languages=(LANGUAGE,),
        )

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        """Return the transcript of a sound; it can be stopped between pieces."""
        if hint.language and base_of(hint.language) != LANGUAGE:
            raise EngineError(
                "UNSUPPORTED_FEATURE", f"moonshine cannot recognise {hint.language!r}"
            )
        watch.check()
        samples = trim(hearing(sound))
        if len(samples) < SHORTEST_S * HEARING_RATE:
            return Transcript(text="", language=hint.language or LANGUAGE)
        texts: list[str] = []
        for piece in _pieces(samples):
            texts.extend(self._lines(piece))
            watch.check()
            watch.partial(" ".join(texts))
        return Transcript(text=" ".join(texts), language=hint.language or LANGUAGE)

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
        # Averaged over a tenth of a second, to find a gap between words and not inside a consonant.
        quiet = np.convolve(levels, np.ones(10), "valid").argmin() + 5
        cut = start + int(quiet) * frame
        yield samples[:cut]
        samples = samples[cut:]
    yield samples
