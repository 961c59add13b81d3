"""SVOX Pico: small, clear voices in five languages, on any machine (tts=pico).

Licence: Apache-2.0. Needs `pip install 'lingua-speech[pico]'` (ttspico, built from source: a C
compiler); the voices are in the package. 16 kHz, about 20 ms per sentence.

| option | default | what it is |
|---|---|---|
| rate | 100 | speed in percent, 20 to 500 |
| pitch | 100 | pitch in percent, 50 to 200 |
| volume | 50 | loudness in percent, 0 to 100; above 50 loud vowels are clipped |
| english | us | the voice of `en`: us or gb; `en-us` and `en-gb` always have their own |
"""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from lingua_speech import plugins
from lingua_speech.engine import About, EngineError, Sound, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_speech.engines.stitching import stitched
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"rate": "100", "pitch": "100", "volume": "50", "english": "us"}
RATE_HZ: Final = 16_000
VOICES: Final = {
    "en-us": "en-US",
    "en-gb": "en-GB",
    "es": "es-ES",
    "de": "de-DE",
    "fr": "fr-FR",
    "it": "it-IT",
}
# Pico interprets tags (`<speed level="20">`), and an unclosed one affects all later texts: no text
# may contain one.
MARKUP: Final = str.maketrans("<>\\", "   ")
# Pico hangs on a word that exceeds its buffer (about 250 bytes).
LONG_WORD = re.compile(r"\S{60}(?=\S)")
# It does not speak more than 50 digits in a row at all.
LONG_NUMBER = re.compile(r"\d{20}(?=\d)")


def make(options: Mapping[str, str]) -> Pico:
    """Load the voices."""
    taken = plugins.take(options, KNOWN)
    english = reading.one_of(taken, "english", ("us", "gb"))
    settings = {
        "rate": reading.whole(taken, "rate", 20, 500),
        "pitch": reading.whole(taken, "pitch", 50, 200),
        "volume": reading.whole(taken, "volume", 0, 100),
    }
    return Pico(f"en-{english}", settings)


class Pico:
    """The engine: voices in English, Spanish, German, French and Italian."""

    def __init__(self, english: str, settings: Mapping[str, int]) -> None:
        # Language -> voice; each takes 2.5 MB.
        self._voices: dict[str, Any] = {}
        ttspico = reading.library("ttspico", extra="pico")
        for code, name in VOICES.items():
            self._voices[code] = ttspico.TtsEngine(name)
            for setting, value in settings.items():
                self._voices[code].set_property(setting, value)
        self._voices["en"] = self._voices[english]

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="pico",
            version=version("ttspico"),
            model="svox",
            licence="Apache-2.0",
            languages=tuple(sorted(self._voices)),
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Speak a text sentence by sentence."""
        voice = self._voices.get(language) or self._voices.get(base_of(language))
        if voice is None:
            raise EngineError("UNSUPPORTED_FEATURE", f"pico has no voice for {language!r}")
        return stitched(self._spoken(voice, text, watch), RATE_HZ)

    def close(self) -> None:
        """Free the voices."""
        self._voices.clear()

    def _spoken(self, voice: Any, text: str, watch: Watch) -> Iterator[bytes]:
        for sentence in sentences.split(_pronounceable(text)):
            watch.check()
            if sentences.is_speakable(sentence):
                yield voice.speak(sentence) or b""


def _pronounceable(text: str) -> str:
    plain = sentences.plain(text.translate(MARKUP))
    return LONG_NUMBER.sub(r"\g<0> ", LONG_WORD.sub(r"\g<0> ", plain))
