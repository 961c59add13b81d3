"""The content of a result as the store keeps it, until every listener has it.

It is a list, not the client's message: the texts come first, where the scripts of captions find
them, and instances of two releases that share a store read each other's lists.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lingua_wire.shared import (  # noqa: TC001 msgspec reads them at run time
    ExtraResult,
    NetworkTimings,
    ServiceTimings,
    Timeline,
)
from lingua_wire.to_client import TranslationResult


class ResultFormat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The items of the list; a release may add more at its end."""

    text_asr: str
    text_translated: str
    tts_audio: bytes
    tts_format: str
    trace_id: str
    extra: ExtraResult | None = None
    timings: ServiceTimings | None = None
    network: NetworkTimings | None = None
    quality: tuple[str | None, tuple[str, ...] | None, float | None, int | None, Any] | None = None
    # For listeners, whose owner did not see the job run: where the time went, and when the job was
    # settled by the wall clock.
    timeline: Timeline | None = None
    settled_at_ms: int = 0
    # Of how many parts the audio consists, if parts were sent before.
    audio_parts: int | None = None


# The quality of a report that says nothing about it.
UNJUDGED = (None,) * 5
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ResultFormat).decode


def encode_result(message: TranslationResult) -> bytes:
    """Return the content of a message that has no place yet, for the store."""
    quality = (
        message.asr_quality_level,
        message.reason_codes,
        message.quality_score,
        message.rerun_count,
        message.segments_meta,
    )
    # In the order of `ResultFormat`.
    return _encode(
        (
            message.text_asr,
            message.text_translated,
            message.tts_audio,
            message.tts_format,
            message.trace_id,
            message.extra,
            message.service_timings,
            message.network_timings,
            quality if quality != UNJUDGED else None,
            message.timeline,
            message.scheduler_sent_at_ms or 0,
            message.tts_parts,
        )
    )


def decode_result(payload: bytes) -> TranslationResult:
    """Return the message whose content the store kept."""
    kept = _decode(payload)
    level, codes, score, reruns, segments = kept.quality or UNJUDGED
    return TranslationResult(
        session_id="",
        utterance_index=0,
        job_id="",
        text_asr=kept.text_asr,
        text_translated=kept.text_translated,
        tts_audio=kept.tts_audio,
        tts_format=kept.tts_format,
        extra=kept.extra,
        trace_id=kept.trace_id,
        service_timings=kept.timings,
        network_timings=kept.network,
        scheduler_sent_at_ms=kept.settled_at_ms or None,
        asr_quality_level=level,
        reason_codes=codes,
        quality_score=score,
        rerun_count=reruns,
        segments_meta=segments,
        timeline=kept.timeline,
        tts_parts=kept.audio_parts,
    )
