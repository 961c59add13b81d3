"""A report as files: captions of each language, everything as JSON, the translated speech as audio.

Captions have the times of the voice. Speech is placed on the timeline of the source: each piece
begins where its utterance does, or when the piece before it has ended, with silence between; it is
written as it comes and never in memory as a whole.
"""

from __future__ import annotations

import json
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from lingua_translate.report import STAGES, languages_of, quantile
from lingua_wire.captions import Caption
from lingua_wire.recording import WavWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lingua_translate.report import InterpretationReport, Rendition, TranslatedUtterance

PARTS: Final = (0.5, 0.95)
# Silence between two pieces is written so much at a time.
SILENCE_FRAMES: Final = 1 << 19


def captions_of(report: InterpretationReport, target: str = "") -> list[Caption]:
    """Return captions, in one language or in any; a missing translation is marked as missing."""
    return [
        Caption(
            said.start_ms,
            said.voice_end_ms or said.end_ms,
            one.text if not one.reason else f"[missing: {one.reason}]",
        )
        for said, one in _renditions(report, target)
        if not one.is_silent
    ]


def as_json(report: InterpretationReport, source: str) -> str:
    """Return everything but the audio, as one JSON object."""
    whole = {
        "source": source,
        "targets": languages_of(report.utterances),
        "utterances": [_utterance(said) for said in report.utterances],
        "summary": summary(report),
    }
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"


def summary(report: InterpretationReport) -> dict[str, Any]:
    """Return the account of the speech, and how long it took."""
    coverage = report.coverage
    latencies = {
        name: {f"p{100 * part:.0f}_ms": round(quantile(values, part), 1) for part in PARTS}
        for name, values in report.latencies_ms().items()
        if values
    }
    return {
        "audio_ms": round(report.audio_ms),
        "took_ms": round(1000 * report.took_s),
        "utterances": len(report.utterances),
        "coverage": {name: getattr(coverage, name) for name in type(coverage).__struct_fields__}
        if coverage is not None
        else None,
        "lost_ms": round(report.lost_ms),
        "failures": report.failures,
        "resumes": report.resumes,
        "latency": latencies,
        "error": str(report.error) if report.error is not None else None,
    }


class SpeechFile:
    """Translated speech as a WAV file, created with the first piece and complete after each."""

    def __init__(self, target: Path | BinaryIO) -> None:
        self._target = target
        # Set to the rate of the first piece.
        self._wav: WavWriter | None = None

    @property
    def duration_ms(self) -> float:
        """Return how long it is so far."""
        return 1000 * self._wav.frames / self._wav.sample_rate if self._wav is not None else 0.0

    def add(self, start_ms: float, rendition: Rendition) -> None:
        """Append the speech of an utterance that began there; OSError if it cannot be written."""
        if not rendition.pcm:
            return
        if self._wav is None:
            self._wav = WavWriter(self._target, rendition.sample_rate)
        rate = self._wav.sample_rate
        gap = round(start_ms * rate / 1000) - self._wav.frames
        while gap > 0:
            self._wav.write(bytes(2 * min(gap, SILENCE_FRAMES)))
            gap -= SILENCE_FRAMES
        self._wav.write(resampled(rendition.pcm, rendition.sample_rate, rate))

    def close(self) -> None:
        """Close the file."""
        if self._wav is not None:
            self._wav.close()


def path_for(path: Path, target: str, targets: Sequence[str]) -> Path:
    """Return the file of one language: as named, or with the language before the extension."""
    if len(targets) == 1 or path == Path("-"):
        return path
    return path.with_name(f"{path.stem}.{target}{path.suffix}")


def resampled(pcm: bytes, rate: int, wanted: int) -> bytes:
    """Return samples at another rate, interpolated linearly: engines have several rates."""
    if rate == wanted or not pcm:
        return pcm
    samples = array("h", pcm)
    if sys.byteorder == "big":
        samples.byteswap()
    last, step = len(samples) - 1, rate / wanted
    out = array("h")
    for number in range(len(samples) * wanted // rate):
        at = number * step
        left = int(at)
        right = min(left + 1, last)
        out.append(round(samples[left] + (samples[right] - samples[left]) * (at - left)))
    if sys.byteorder == "big":
        out.byteswap()
    return out.tobytes()


def _renditions(
    report: InterpretationReport, target: str
) -> Iterator[tuple[TranslatedUtterance, Rendition]]:
    for said in report.utterances:
        for code, one in said.renditions.items():
            if not target or code == target:
                yield said, one


def _utterance(said: TranslatedUtterance) -> dict[str, Any]:
    return {
        "index": said.index,
        "start_ms": round(said.start_ms),
        "end_ms": round(said.end_ms),
        "voice_end_ms": round(said.voice_end_ms),
        "text": said.text_asr,
        "renditions": {code: _rendition(one) for code, one in said.renditions.items()},
    }


def _rendition(one: Rendition) -> dict[str, Any]:
    took = one.stages_ms()
    shown: dict[str, Any] = {"text": one.text}
    if one.reason:
        shown |= {"reason": one.reason, "detail": one.detail}
    if one.latency_ms is not None:
        shown["latency_ms"] = round(one.latency_ms)
    shown |= {f"{name}_ms": round(took[name], 1) for name in STAGES if name in took}
    if one.timeline is not None:
        fields = type(one.timeline).__struct_fields__
        shown["timeline"] = {name: getattr(one.timeline, name) for name in fields}
    if one.languages:
        shown["languages"] = one.languages
    return shown
