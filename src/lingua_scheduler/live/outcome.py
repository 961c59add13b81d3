"""An outcome between a node's report and the client's message.

A report is judged (`verdict_of`), kept in the store as a `StoredResult`, and becomes the message
that ends its utterance (`message_of`). Nothing here sends anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.messages.codes import RETRYABLE_NODE_ERRORS
from lingua_scheduler.messages.shared import (
    ExtraResult,
    NetworkTimings,
    ServiceTimings,
)
from lingua_scheduler.messages.to_client import MissingResult, TranslationResult

if TYPE_CHECKING:
    from lingua_scheduler.messages.from_node import JobResult
    from lingua_scheduler.messages.shared import Timeline
    from lingua_scheduler.state.records import Released

EMPTY_REASONS = frozenset({"NO_TEXT_ASSIGNED", "ASR_EMPTY"})
# The outcome kinds of the store -> reasons a client is told.
REASONS = {
    "completed_no_text": "silence_detected",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "missing": "gap_timeout",
}


class StoredResult(msgspec.Struct, frozen=True, array_like=True):
    """What must survive of a node's report until every listener has it."""

    text_asr: str
    text_translated: str
    tts_audio: bytes
    tts_format: str
    trace_id: str
    extra: ExtraResult | None = None
    timings: ServiceTimings | None = None
    network: NetworkTimings | None = None
    quality: tuple[str | None, tuple[str, ...] | None, float | None, int | None, Any] | None = None


class Verdict(NamedTuple):
    """What a report means for its job."""

    kind: str
    reason: str = "-"
    retryable: bool = False


class Shown(NamedTuple):
    """What the instance adds to a result when it delivers it."""

    timeline: Timeline | None = None
    group_id: str | None = None
    part_index: int | None = None


Heard = TranslationResult | MissingResult
# What somebody else said, as it lies in a listener's outbox.
encode_heard = msgspec.msgpack.Encoder().encode
_decode_heard = msgspec.msgpack.Decoder(Heard).decode
encode_result = msgspec.msgpack.Encoder().encode
decode_result = msgspec.msgpack.Decoder(StoredResult).decode


def verdict_of(report: JobResult) -> Verdict:
    """Judge a report: a result, silence, a failure, or a failure another node may not have."""
    if not report.success:
        code = report.error.code if report.error is not None else "PROCESSING_ERROR"
        return Verdict("failed", code, code in RETRYABLE_NODE_ERRORS)
    reason = report.extra.reason if report.extra is not None else None
    has_text = (report.text_asr and not report.text_asr.isspace()) or (
        report.text_translated and not report.text_translated.isspace()
    )
    if reason in EMPTY_REASONS:
        return Verdict("completed_no_text", reason)
    if not has_text and not report.tts_audio:
        return Verdict("completed_no_text", "blank")
    return Verdict("completed")


def stored(report: JobResult, trace_id: str, network: NetworkTimings | None) -> StoredResult:
    """Return what is kept of a report."""
    timings = report.extra.service_timings if report.extra is not None else None
    if timings is None and report.processing_time_ms is not None:
        timings = ServiceTimings(total_ms=report.processing_time_ms)
    quality = (
        report.asr_quality_level, report.reason_codes, report.quality_score, report.rerun_count,
        report.segments_meta,
    )  # fmt: skip
    return StoredResult(
        report.text_asr or "", report.text_translated or "", report.tts_audio or b"",
        report.tts_format or "pcm16", trace_id, report.extra, timings, network,
        quality if any(item is not None for item in quality) else None,
    )  # fmt: skip


def decode_heard(outcome: Released, epoch: str) -> TranslationResult | MissingResult:
    """Return what somebody else said, at its position in the listener's own order."""
    message: Heard = _decode_heard(outcome.payload)
    return msgspec.structs.replace(message, epoch=epoch, seq=outcome.seq)


def stored_message(
    session: str, outcome: Released, epoch: str, at_ms: int
) -> TranslationResult | MissingResult:
    """Return the message of an outcome of which nothing but its record is known."""
    if outcome.kind == "heard":
        return decode_heard(outcome, epoch)
    if outcome.kind != "completed":
        return missing_message(session, outcome, epoch, trace_id="", at_ms=at_ms)
    kept = decode_result(outcome.payload)
    return result_message(session, epoch, outcome, kept, shown=Shown(), sent_at_ms=at_ms)


def result_message(
    session: str,
    epoch: str,
    outcome: Released,
    kept: StoredResult,
    *,
    shown: Shown,
    sent_at_ms: int,
) -> TranslationResult:
    """Return the message of a completed outcome."""
    level, codes, score, reruns, segments = kept.quality or (None, None, None, None, None)
    return TranslationResult(
        session_id=session, utterance_index=outcome.utterance, job_id=outcome.job,
        text_asr=kept.text_asr, text_translated=kept.text_translated, tts_audio=kept.tts_audio,
        tts_format=kept.tts_format, extra=kept.extra, trace_id=kept.trace_id,
        group_id=shown.group_id, part_index=shown.part_index, service_timings=kept.timings,
        network_timings=kept.network, scheduler_sent_at_ms=sent_at_ms, asr_quality_level=level,
        reason_codes=codes, quality_score=score, rerun_count=reruns, segments_meta=segments,
        tgt_lang=outcome.lane, epoch=epoch, seq=outcome.seq, timeline=shown.timeline,
    )  # fmt: skip


def missing_message(
    session: str, outcome: Released, epoch: str, *, trace_id: str, at_ms: int
) -> MissingResult:
    """Return the message of an outcome without a translation."""
    detail = outcome.reason if outcome.reason != "-" else None
    reason = REASONS[outcome.kind]
    if outcome.kind == "missing" and detail != "gap_timeout":
        # Refused by the store, or left open when the session ended.
        reason = "failed" if detail == "refused" else "cancelled"
    return MissingResult(
        session_id=session, utterance_index=outcome.utterance, reason=reason, created_at_ms=at_ms,
        trace_id=trace_id or None, job_id=outcome.job if outcome.job != "-" else None,
        detail=detail, tgt_lang=outcome.lane, epoch=epoch, seq=outcome.seq,
    )  # fmt: skip
