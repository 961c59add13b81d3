"""An outcome between a node's report and the client's message.

A report is judged (`verdict_of`), kept in the store as a `StoredResult`, and becomes the message
that ends its utterance (`message_of`). Nothing here sends anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from lingua_scheduler.messages.codes import NODE_ERRORS, RETRYABLE_NODE_ERRORS, ErrorCode
from lingua_scheduler.messages.shared import (
    ExtraResult,
    NetworkTimings,
    ServiceTimings,
    Timeline,
)
from lingua_scheduler.messages.to_client import MissingResult, OutcomePassed, TranslationResult
from lingua_scheduler.state.records import AS_SPOKEN, speaker_of

if TYPE_CHECKING:
    from lingua_scheduler.messages.from_node import JobResult
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
    # For listeners, whose owner knows nothing of the way here: where the time went, and when by the
    # wall clock it was settled.
    timeline: Timeline | None = None
    settled_at_ms: int = 0


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


# The kind of what somebody else said, in a listener's outbox.
HEARD = "heard"
encode_result = msgspec.msgpack.Encoder().encode
decode_result = msgspec.msgpack.Decoder(StoredResult).decode


def verdict_of(report: JobResult) -> Verdict:
    """Judge a report: a result, silence, a failure, or a failure another node may not have.

    A code that is none of the catalogue's goes no further than here: clients read the reason.
    """
    if not report.success:
        code = report.error.code if report.error is not None else "PROCESSING_ERROR"
        told = code if code in NODE_ERRORS else ErrorCode.PROCESSING_ERROR.value
        return Verdict("failed", told, code in RETRYABLE_NODE_ERRORS)
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


def without_sound(result: StoredResult) -> StoredResult:
    """Return what is kept of a report for those who read."""
    return msgspec.structs.replace(result, tts_audio=b"")


def heard_message(
    outcome: Released, epoch: str, kept: StoredResult | None, *, shown: Shown, at_ms: int
) -> TranslationResult | MissingResult:
    """Return what somebody else said, at its place in the listener's own order, without its sound.

    Whoever needs no translation reads what was recognised. A result that is not kept any more is
    said to be missing.
    """
    kind, _, heard_id = outcome.payload.decode().partition(" ")
    speaker = speaker_of(heard_id)
    if kind != "completed" or kept is None:
        reason = outcome.reason if kind != "completed" else "no_longer_kept"
        missing = outcome._replace(kind="failed" if kind == "completed" else kind, reason=reason)
        message = missing_message(speaker, missing, epoch, trace_id="", at_ms=at_ms)
        if outcome.lane == AS_SPOKEN:
            return msgspec.structs.replace(message, tgt_lang=None)
        return message
    said = result_message(
        speaker, epoch, outcome, without_sound(kept), shown=shown, sent_at_ms=at_ms
    )
    if outcome.lane != AS_SPOKEN:
        return said
    return msgspec.structs.replace(
        said, text_translated=said.text_asr, tgt_lang=None, timeline=None
    )


def heard_timeline(kept: StoredResult, at_ms: int) -> Timeline | None:
    """Return where the time went until a listener gets it; by two machines' clocks if need be."""
    if kept.timeline is None:
        return None
    waited_ms = max(0, at_ms - kept.settled_at_ms) if kept.settled_at_ms else 0
    parts = kept.timeline
    return msgspec.structs.replace(
        parts, order_wait_ms=parts.order_wait_ms + waited_ms, total_ms=parts.total_ms + waited_ms
    )


def stored_message(
    session: str, outcome: Released, epoch: str, at_ms: int
) -> TranslationResult | MissingResult:
    """Return the message of a session's own outcome of which nothing but its record is known."""
    if outcome.kind != "completed":
        return missing_message(session, outcome, epoch, trace_id="", at_ms=at_ms)
    kept = decode_result(outcome.payload)
    return result_message(session, epoch, outcome, kept, shown=Shown(), sent_at_ms=at_ms)


def passed_message(session: str, outcome: Released, epoch: str) -> OutcomePassed:
    """Return what a speaker is told of an outcome that others have heard: its position."""
    return OutcomePassed(
        session_id=session, utterance_index=outcome.utterance, tgt_lang=outcome.lane, epoch=epoch,
        seq=outcome.seq,
    )  # fmt: skip


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
        session_id=session, utterance_index=outcome.utterance, job_id=outcome.job.lstrip("="),
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
        trace_id=trace_id or None,
        job_id=outcome.job.lstrip("=") if outcome.job != "-" else None,
        detail=detail, tgt_lang=outcome.lane, epoch=epoch, seq=outcome.seq,
    )  # fmt: skip
