"""Speech recognition by a server: `/audio/transcriptions` and `/audio/translations`."""

from __future__ import annotations

import io
import math
import secrets
import wave
from typing import TYPE_CHECKING, Any, Final

from lingua_speech.engine import About, EngineError, Hint, Sound, Transcript, Watch
from lingua_speech.engines.openai_server.http import ApiConnection, RequestRefused
from lingua_speech.engines.openai_server.language_names import code_of
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

TRANSCRIBE: Final = "/audio/transcriptions"
TRANSLATE: Final = "/audio/translations"
FULL, SHORT = "verbose_json", "json"
# The statuses of a server that does not support `verbose_json`.
NOT_SUPPORTED: Final = frozenset({400, 415, 422})
CONTEXT_CHARS: Final = 400


class OpenAiRecogniser:
    """Recognises speech with a server."""

    def __init__(
        self,
        connection: ApiConnection,
        model: str,
        languages: tuple[str, ...],
        pairs: tuple[tuple[str, str], ...],
    ) -> None:
        self._connection = connection
        self._model = model
        self._languages = languages
        self._pairs = pairs
        # `verbose_json` includes the language; it is not requested again from a server that
        # refused it once.
        self._form = FULL

    def about(self) -> About:
        """Return the abilities that the operator declared for the server."""
        return About(
            engine="openai-asr",
            model=self._model,
            device="remote",
            languages=self._languages,
            pairs=self._pairs,
        )

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        """Return the server's transcript of a sound, and its translation if one is wanted."""
        if not sound.pcm:
            return Transcript(text="", language=hint.language)
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
        return Transcript(
            text=heard.text,
            language=heard.language,
            confidence=heard.confidence,
            translation=_text(english),
        )

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _is_translated(self, spoken: str, into: str) -> bool:
        """Tell whether the operator declared this translation, with or without the region."""
        return (spoken, into) in self._pairs or (base_of(spoken), into) in self._pairs

    def _ask(self, path: str, fields: Mapping[str, str], recording: bytes, watch: Watch) -> Any:
        try:
            return self._answer(path, fields, recording, watch)
        except RequestRefused as refused:
            if refused.status not in NOT_SUPPORTED or self._form == SHORT:
                raise
        self._form = SHORT
        try:
            return self._answer(path, fields, recording, watch)
        except EngineError:
            # The server refused the request for another reason.
            self._form = FULL
            raise

    def _answer(self, path: str, fields: Mapping[str, str], recording: bytes, watch: Watch) -> Any:
        body, kind = form({**fields, "response_format": self._form}, recording)
        return self._connection.read(self._connection.post(path, body, kind, watch))


def form(fields: Mapping[str, str], recording: bytes) -> tuple[bytes, str]:
    """Return a form with a recording as `multipart/form-data`, and its content type."""
    # Random, so that no part can contain it.
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


def _heard(answer: Any, hint: Hint) -> Transcript:
    spoken = answer.get("language") if isinstance(answer, dict) else None
    language = hint.language or _among(code_of(spoken), hint.allowed)
    return Transcript(text=_text(answer), language=language, confidence=_confidence(answer))


def _among(language: str, allowed: tuple[str, ...]) -> str:
    """Return the allowed code of a language: `en-us` for `en` if that is what is allowed."""
    return next((code for code in allowed if language and base_of(code) == language), language)


def _text(answer: Any) -> str:
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise EngineError("PROCESSING_ERROR", "the server's answer has no text")
    return text.strip()


def _confidence(answer: Any) -> float | None:
    """Return the mean probability of a token, if the segments include it."""
    try:
        found = [float(segment["avg_logprob"]) for segment in answer["segments"]]
    except (KeyError, TypeError, ValueError):
        return None
    return math.exp(min(0.0, sum(found) / len(found))) if found else None
