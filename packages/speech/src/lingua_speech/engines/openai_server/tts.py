"""Speech synthesis by a server: `/audio/speech`, as bare samples or as a WAV file."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from lingua_speech.engine import About, EngineError, Sound, Watch
from lingua_speech.engines import sentences
from lingua_speech.engines.openai_server.http import JSON, ApiConnection
from lingua_speech.engines.stitching import stitched
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH: Final = "/audio/speech"
# The API accepts 4096 characters. Shorter requests are answered sooner, and the engine can stop
# between two of them.
LONGEST: Final = 1500
MOST_BYTES: Final = 64 << 20
PCM: Final = 1


class VoiceSettings(NamedTuple):
    """The parameters of synthesis."""

    model: str
    form: str
    sample_rate: int
    # Language -> voice; the empty key holds the default voice.
    voices: Mapping[str, str]


class OpenAiVoice:
    """Synthesises speech with a server."""

    def __init__(
        self, connection: ApiConnection, settings: VoiceSettings, languages: tuple[str, ...]
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._languages = languages

    def about(self) -> About:
        """Return the abilities that the operator declared for the server."""
        return About(
            engine="openai-tts",
            model=self._settings.model,
            device="remote",
            languages=self._languages,
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Speak a text, in pieces of a few sentences."""
        if language not in self._languages and base_of(language) not in self._languages:
            raise EngineError("UNSUPPORTED_FEATURE", f"no voice was declared for {language!r}")
        rate = self._settings.sample_rate
        pieces = []
        for piece in _packed(text):
            sound = self._synthesise(piece, language, watch)
            rate = sound.sample_rate
            pieces.append(sound.pcm)
        return stitched(pieces, rate)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _synthesise(self, text: str, language: str, watch: Watch) -> Sound:
        voices = self._settings.voices
        request = {
            "model": self._settings.model,
            "input": text,
            "voice": voices.get(language) or voices.get(base_of(language)) or voices[""],
            "response_format": self._settings.form,
        }
        body = json.dumps(request, ensure_ascii=False).encode()
        content = self._connection.post(PATH, body, JSON, watch, MOST_BYTES)
        if self._settings.form == "pcm":
            return Sound(content[: len(content) // 2 * 2], self._settings.sample_rate)
        return wav(content)


def wav(content: bytes) -> Sound:
    """Read a WAV file of 16-bit mono; a streamed one may lack its length."""
    form: tuple[int, ...] | None = None
    for name, part in _chunks(content):
        if name == b"fmt " and len(part) >= 16:
            form = struct.unpack("<HHIIHH", part[:16])
        elif name == b"data" and form is not None:
            kind, channels, rate, _, _, bits = form
            if (kind, channels, bits) != (PCM, 1, 16):
                raise EngineError("PROCESSING_ERROR", "the server's WAV is not 16-bit mono")
            return Sound(part[: len(part) // 2 * 2], rate)
    raise EngineError("PROCESSING_ERROR", "the server's answer is not a WAV file")


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        return
    at = 12
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        if name == b"data" and size == 0:
            size = len(content) - at - 8
        yield name, content[at + 8 : at + 8 + size]
        at += 8 + size + size % 2


def _packed(text: str) -> Iterator[str]:
    """Cut a text into pieces of whole sentences."""
    piece = ""
    for sentence in sentences.split(sentences.plain(text), LONGEST):
        if piece and len(piece) + len(sentence) >= LONGEST:
            yield piece
            piece = ""
        piece = f"{piece} {sentence}".strip()
    if sentences.is_speakable(piece):
        yield piece
