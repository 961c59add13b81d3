"""What a transcribed or translated recording is told as: JSON, text, SRT, WebVTT, events.

Pure: made from the utterances of a visit. The fields are those the official clients read; what
nodes do not tell (tokens, probabilities) has neutral values. What is missing is marked, in a field
and a header of our own that those clients pass over.
"""

from __future__ import annotations

import unicodedata
import zlib
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

import msgspec

from lingua_scheduler.captions import Caption, to_srt, to_vtt
from lingua_scheduler.languages import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.edge.openai.form import Wish
    from lingua_scheduler.live.visitor import Spoken

PLAIN = "text/plain; charset=utf-8"
VTT = "text/vtt; charset=utf-8"
JSON = "application/json"
# A language that nobody named and no node told: ISO 639's word for undetermined.
UNDETERMINED = "und"
# What stands in a text for a part that no node could do; the same in all languages.
OMITTED = "[…]"
# Scripts that put no space between words.
UNSPACED = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "FULLWIDTH",
    "IDEOGRAPHIC",
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Any answer of this surface."""


class Usage(Answer, frozen=True, kw_only=True):
    """How much audio it was."""

    type: Literal["duration"] = "duration"
    seconds: int


class Segment(Answer, frozen=True, kw_only=True):
    """One utterance; the last five fields say nothing here but `compression_ratio`."""

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


class Missing(Answer, frozen=True, kw_only=True):
    """A part of the recording that has no text though it should, and why."""

    start: float
    end: float
    reason: str


class TranscriptionAnswer(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The text; `missing` is an addition."""

    text: str
    usage: Usage
    missing: tuple[Missing, ...] = ()


class VerboseAnswer(Answer, frozen=True, kw_only=True):
    """The text with its segments; `missing` is an addition."""

    task: Literal["transcribe", "translate"]
    language: str
    duration: float
    text: str
    segments: tuple[Segment, ...]
    usage: Usage
    missing: tuple[Missing, ...] = ()


class TextDelta(Answer, frozen=True, kw_only=True, tag_field="type", tag="transcript.text.delta"):
    """One more piece of the text."""

    delta: str


class TextDone(
    Answer,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="transcript.text.done",
    omit_defaults=True,
):
    """All of the text; `missing` is an addition."""

    text: str
    missing: tuple[Missing, ...] = ()


class ModelAnswer(Answer, frozen=True, kw_only=True):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str


class ModelList(Answer, frozen=True, kw_only=True):
    """The models."""

    object: Literal["list"] = "list"
    data: tuple[ModelAnswer, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a whole recording."""

    wish: Wish
    spoken: Sequence[Spoken]
    duration_ms: int

    def text_of(self, part: Spoken) -> str:
        """Return the text of an utterance in the wanted language."""
        return text_of(self.wish, part)

    @property
    def text(self) -> str:
        """Return all of the text."""
        return joined([self.text_of(part) for part in self.spoken])

    @property
    def missing(self) -> tuple[Missing, ...]:
        """Return the parts without text that should have one."""
        return tuple(
            Missing(start=part.start_ms / 1000, end=part.end_ms / 1000, reason=part.missing)
            for part in self.spoken
            if part.missing
        )

    @property
    def has_text(self) -> bool:
        """Tell whether there is any text that somebody said."""
        return any(self.text_of(part) for part in self.spoken if not part.missing)

    @property
    def missing_ms(self) -> int:
        """Return how long these are together."""
        return sum(part.end_ms - part.start_ms for part in self.spoken if part.missing)

    @property
    def language(self) -> str:
        """Return the language of the text, by the longest speech if it was recognised."""
        if self.wish.target or self.wish.source != AUTO:
            return self.wish.target or self.wish.source
        lengths: dict[str, int] = {}
        for part in self.spoken:
            if part.language and part.text_asr:
                known = lengths.get(part.language, 0)
                lengths[part.language] = known + part.end_ms - part.start_ms
        return max(lengths, key=lambda code: lengths[code], default=UNDETERMINED)

    @property
    def usage(self) -> Usage:
        """Return how much audio it was, in whole seconds as these clients are used to."""
        return Usage(seconds=ceil(self.duration_ms / 1000))


def text_of(wish: Wish, part: Spoken) -> str:
    """Return the text of an utterance in the wanted language, or the mark that it is missing."""
    if part.missing:
        return OMITTED
    return (part.text_translated if wish.is_translated else part.text_asr).strip()


def rendered(told: Told) -> tuple[bytes, str]:
    """Return the answer in the wanted format, and its content type."""
    shape = told.wish.format
    if shape == "text":
        return f"{told.text}\n".encode(), PLAIN
    if shape in ("srt", "vtt"):
        captions = [
            Caption(part.start_ms, part.end_ms, text)
            for part in told.spoken
            if (text := told.text_of(part))
        ]
        if shape == "srt":
            return to_srt(captions).encode(), PLAIN
        return to_vtt(captions).encode(), VTT
    return msgspec.json.encode(_verbose(told) if shape == "verbose_json" else _plain(told)), JSON


def _plain(told: Told) -> TranscriptionAnswer:
    return TranscriptionAnswer(text=told.text, usage=told.usage, missing=told.missing)


def _verbose(told: Told) -> VerboseAnswer:
    with_text = [(part, text) for part in told.spoken if (text := told.text_of(part))]
    return VerboseAnswer(
        task="translate" if told.wish.target else "transcribe",
        language=told.language,
        duration=told.duration_ms / 1000,
        text=told.text,
        segments=tuple(
            Segment(
                id=number,
                start=part.start_ms / 1000,
                end=part.end_ms / 1000,
                # In hundredths of a second, as Whisper counts frames.
                seek=part.start_ms // 10,
                text=text,
                temperature=told.wish.temperature,
                compression_ratio=_compression(text),
            )
            for number, (part, text) in enumerate(with_text)
        ),
        usage=told.usage,
        missing=told.missing,
    )


def _compression(text: str) -> float:
    data = text.encode()
    return round(len(data) / len(zlib.compress(data)), 3)


def joined(texts: Sequence[str]) -> str:
    """Return texts as one, with spaces where their script has them."""
    whole = ""
    for text in texts:
        whole += spaced(whole, text)
    return whole


def spaced(before: str, text: str) -> str:
    """Return a text as it follows another: after a space, unless its script has none."""
    if not before or not text:
        return text
    return text if _is_unspaced(before[-1]) and _is_unspaced(text[0]) else f" {text}"


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").startswith(UNSPACED)
