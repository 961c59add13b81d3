"""The response for a transcribed or translated recording: JSON, text, SRT, WebVTT or events.

Pure: made from the utterances of the recording. The fields are those that the official clients
read; values that nodes do not report (tokens, probabilities) are neutral. Missing parts are marked
in an additional field and header, which those clients ignore.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

import msgspec

from lingua_scheduler.edge.answers import ApiAnswer
from lingua_wire.captions import Caption, to_srt, to_vtt
from lingua_wire.languages import AUTO
from lingua_wire.text_joints import is_unspaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.edge.openai.form import RecordingRequest
    from lingua_scheduler.runtime.file_session import FileUtterance

PLAIN = "text/plain; charset=utf-8"
VTT = "text/vtt; charset=utf-8"
JSON = "application/json"
# For a language that neither the request nor a node named: ISO 639's code for undetermined.
UNDETERMINED = "und"
# Replaces a part that no node could process; the same in all languages.
OMITTED = "[…]"


class AudioUsage(ApiAnswer, frozen=True, kw_only=True):
    """The length of the audio."""

    type: Literal["duration"] = "duration"
    seconds: int


class Segment(ApiAnswer, frozen=True, kw_only=True):
    """One utterance; of the last five fields only `compression_ratio` has a real value."""

    id: int
    start: float
    end: float
    text: str
    seek: int
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float = 0.0
    compression_ratio: float = 1.0
    no_speech_prob: float = 0.0


class MissingPart(ApiAnswer, frozen=True, kw_only=True):
    """A part of the recording whose text is missing, and the reason."""

    start: float
    end: float
    reason: str


class TranscriptionAnswer(ApiAnswer, frozen=True, kw_only=True, omit_defaults=True):
    """The text; `missing` is an addition to OpenAI's format."""

    text: str
    usage: AudioUsage
    missing: tuple[MissingPart, ...] = ()


class VerboseAnswer(ApiAnswer, frozen=True, kw_only=True):
    """The text with its segments; `missing` is an addition to OpenAI's format."""

    task: Literal["transcribe", "translate"]
    language: str
    duration: float
    text: str
    segments: tuple[Segment, ...]
    usage: AudioUsage
    missing: tuple[MissingPart, ...] = ()


class TextDelta(
    ApiAnswer, frozen=True, kw_only=True, tag_field="type", tag="transcript.text.delta"
):
    """The next piece of the text."""

    delta: str


class TextDone(
    ApiAnswer,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="transcript.text.done",
    omit_defaults=True,
):
    """The whole text; `missing` is an addition to OpenAI's format."""

    text: str
    missing: tuple[MissingPart, ...] = ()


class ModelAnswer(ApiAnswer, frozen=True, kw_only=True):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class ModelList(ApiAnswer, frozen=True, kw_only=True):
    """The models."""

    object: Literal["list"] = "list"
    data: tuple[ModelAnswer, ...]


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """The utterances of a whole recording, for one request."""

    request: RecordingRequest
    spoken: Sequence[FileUtterance]
    duration_ms: int

    def text_of(self, part: FileUtterance) -> str:
        """Return the text of an utterance in the requested language."""
        return text_of(self.request, part)

    @property
    def text(self) -> str:
        """Return the whole text."""
        return joined([self.text_of(part) for part in self.spoken])

    @property
    def missing(self) -> tuple[MissingPart, ...]:
        """Return the parts whose text is missing."""
        return tuple(
            MissingPart(start=part.start_ms / 1000, end=part.end_ms / 1000, reason=part.missing)
            for part in self.spoken
            if part.missing
        )

    @property
    def has_text(self) -> bool:
        """Tell whether any utterance has a text."""
        return any(self.text_of(part) for part in self.spoken if not part.missing)

    @property
    def missing_ms(self) -> int:
        """Return the total length of the missing parts."""
        return sum(part.end_ms - part.start_ms for part in self.spoken if part.missing)

    @property
    def language(self) -> str:
        """Return the language of the text; if it was detected, the one with the most speech."""
        if self.request.target or self.request.source != AUTO:
            return self.request.target or self.request.source
        lengths: dict[str, int] = {}
        for part in self.spoken:
            if part.language and part.text_asr:
                known = lengths.get(part.language, 0)
                lengths[part.language] = known + part.end_ms - part.start_ms
        return max(lengths, key=lambda code: lengths[code], default=UNDETERMINED)

    @property
    def usage(self) -> AudioUsage:
        """Return the length of the audio, in whole seconds as these clients expect."""
        return AudioUsage(seconds=ceil(self.duration_ms / 1000))


def text_of(request: RecordingRequest, part: FileUtterance) -> str:
    """Return the text of an utterance in the requested language, or the mark for missing text."""
    if part.missing:
        return OMITTED
    return (part.text_translated if request.is_translated else part.text_asr).strip()


def render(result: RecordingResult) -> tuple[bytes, str]:
    """Return the body in the requested format, and its content type."""
    shape = result.request.format
    if shape == "text":
        return f"{result.text}\n".encode(), PLAIN
    if shape in ("srt", "vtt"):
        captions = [
            Caption(part.start_ms, part.end_ms, text)
            for part in result.spoken
            if (text := result.text_of(part))
        ]
        if shape == "srt":
            return to_srt(captions).encode(), PLAIN
        return to_vtt(captions).encode(), VTT
    return msgspec.json.encode(
        _verbose(result) if shape == "verbose_json" else _plain(result)
    ), JSON


def _plain(result: RecordingResult) -> TranscriptionAnswer:
    return TranscriptionAnswer(text=result.text, usage=result.usage, missing=result.missing)


def _verbose(result: RecordingResult) -> VerboseAnswer:
    with_text = [(part, text) for part in result.spoken if (text := result.text_of(part))]
    return VerboseAnswer(
        task="translate" if result.request.target else "transcribe",
        language=result.language,
        duration=result.duration_ms / 1000,
        text=result.text,
        segments=tuple(
            Segment(
                id=number,
                start=part.start_ms / 1000,
                end=part.end_ms / 1000,
                # In hundredths of a second, as Whisper counts frames.
                seek=part.start_ms // 10,
                text=text,
                temperature=result.request.temperature,
                compression_ratio=_compression(text),
            )
            for number, (part, text) in enumerate(with_text)
        ),
        usage=result.usage,
        missing=result.missing,
    )


def _compression(text: str) -> float:
    data = text.encode()
    return round(len(data) / len(zlib.compress(data)), 3)


def joined(texts: Sequence[str]) -> str:
    """Join texts, with spaces where their script has them."""
    whole = ""
    for text in texts:
        whole += spaced(whole, text)
    return whole


def spaced(before: str, text: str) -> str:
    """Return a text as it follows another: with a space before it, unless its script has none."""
    if not before or not text:
        return text
    return text if is_unspaced(before[-1]) and is_unspaced(text[0]) else f" {text}"
