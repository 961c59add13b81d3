"""Sentences, and their letters in Kokoro's alphabet by the real phonemes of espeak-ng."""

from __future__ import annotations

from lingua_speech.engines import espeak
from lingua_speech.engines.kokoro import VOICES
from lingua_speech.engines.kokoro.phonemes import TIE, spelling_of, spelt

SENTENCES = {
    "en": "The judge chose a day; I know now, boy!",
    "en-gb": "There is no water here.",
    "es": "¿Dónde está el jefe, muchacho?",
    "fr": "Un grand garçon « bon » est là.",
    "it": "Ragazzi, che pizza!",
    "pt": "A tia não tem pães de hoje.",
}


def written(text: str, language: str) -> str:
    library = espeak.shared_library()
    name = library.voices[VOICES[language][1]]
    return spelt(text, lambda part: library.phonemes(name, part, TIE), spelling_of(language))
