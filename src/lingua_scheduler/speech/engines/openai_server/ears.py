"""Speech to text by a server: `/audio/transcriptions` and `/audio/translations`."""

from __future__ import annotations

import io
import math
import secrets
import wave
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.languages import base_of
from lingua_scheduler.speech.engine import About, EngineError, Heard, Hint, Sound, Watch
from lingua_scheduler.speech.engines.openai_server.line import Line, Refused
from lingua_scheduler.speech.engines.openai_server.names import code_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSCRIBE: Final = "/audio/transcriptions"
TRANSLATE: Final = "/audio/translations"
FULL, SHORT = "verbose_json", "json"
# How a server says that it does not know the fuller form of answer.
NOT_KNOWN: Final = frozenset({400, 415, 422})
CONTEXT_CHARS: Final = 400


class Ears:
    """Has a server listen."""

    def __init__(
        self,
        line: Line,
        model: str,
        languages: tuple[str, ...],
        pairs: tuple[tuple[str, str], ...],
    ) -> None:
        self._line = line
        self._model = model
        self._languages = languages
        self._pairs = pairs
        # The fuller form tells the language; a server that refuses it once is not asked again.
        self._form = FULL

    def about(self) -> About:
        """Tell what the operator says that the server can do."""
        return About(
            engine="openai-asr",
            model=self._model,
            device="remote",
            languages=self._languages,
            pairs=self._pairs,
        )

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Heard:
        """Tell what the server hears."""
        if not sound.pcm:
            return Heard(text="", language=hint.language)
        recording = _as_wav(sound)
        fields = {"model": self._model, "temperature": "0"}
        if hint.context:
            fields["prompt"] = hint.context[-CONTEXT_CHARS:]
        language = {"language": base_of(hint.language)} if hint.language else {}
        answer = self._ask(TRANSCRIBE, {**fields, **language}, recording, watch)
        heard = _heard(answer, hint)
        if not heard.text or not self._is_translated(heard.language, hint.translate_to):
            return heard
        english = self._ask(TRANSLATE, {"model": self._model}, recording, watch)
        return Heard(
            text=heard.text,
            language=heard.language,
            confidence=heard.confidence,
            translation=_text(english),
        )

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def _is_translated(self, spoken: str, into: str) -> bool:
        """Tell whether it was declared, for the language or for the one of its region."""
        return (spoken, into) in self._pairs or (base_of(spoken), into) in self._pairs

    def _ask(self, path: str, fields: Mapping[str, str], recording: bytes, watch: Watch) -> Any:
        try:
            return self._answer(path, fields, recording, watch)
        except Refused as refused:
            if refused.status not in NOT_KNOWN or self._form == SHORT:
                raise
        self._form = SHORT
        try:
            return self._answer(path, fields, recording, watch)
        except EngineError:
            # It was something else that the server did not like.
            self._form = FULL
            raise

    def _answer(self, path: str, fields: Mapping[str, str], recording: bytes, watch: Watch) -> Any:
        body, kind = form({**fields, "response_format": self._form}, recording)
        return self._line.read(self._line.post(path, body, kind, watch))


def form(fields: Mapping[str, str], recording: bytes) -> tuple[bytes, str]:
    """Return a form with a recording as `multipart/form-data`, and its content type."""
    # Random, so that nothing within the parts can end them.
    boundary = f"lingua-{secrets.token_hex(16)}"
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="speech.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    )
    body = b"".join([*parts, head.encode(), recording, f"\r\n--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}"


def _as_wav(sound: Sound) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setnchannels(1)
        recording.setsampwidth(2)
        recording.setframerate(sound.sample_rate)
        recording.writeframes(sound.pcm[: len(sound.pcm) // 2 * 2])
    return file.getvalue()


def _heard(answer: Any, hint: Hint) -> Heard:
    spoken = answer.get("language") if isinstance(answer, dict) else None
    language = hint.language or _among(code_of(spoken), hint.allowed)
    return Heard(text=_text(answer), language=language, confidence=_confidence(answer))


def _among(language: str, allowed: tuple[str, ...]) -> str:
    """Return the language as the asker calls it: `en-us` if that is what is allowed."""
    return next((code for code in allowed if language and base_of(code) == language), language)


def _text(answer: Any) -> str:
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise EngineError("PROCESSING_ERROR", "the server's answer has no text")
    return text.strip()


def _confidence(answer: Any) -> float | None:
    """Take the mean probability of a token, if the segments have it."""
    try:
        found = [float(segment["avg_logprob"]) for segment in answer["segments"]]
    except (KeyError, TypeError, ValueError):
        return None
    return math.exp(min(0.0, sum(found) / len(found))) if found else None
