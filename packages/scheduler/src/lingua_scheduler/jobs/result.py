"""Outcomes, from a node's report to the client's message.

A report is judged (`verdict_of`) and becomes the client's message at once (`message_of`), which
says nothing of the outcome's place yet. Its content is kept in the store (`result_format.py`). The
place is added when the outcome is released (`result_message`). Nothing here sends anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from lingua_scheduler.jobs.result_format import decode_result
from lingua_scheduler.state.records import AS_SPOKEN, speaker_of
from lingua_wire.codes import NODE_ERRORS, RETRYABLE_NODE_ERRORS, ErrorCode
from lingua_wire.shared import ServiceTimings, Timeline
from lingua_wire.to_client import MissingResult, OutcomePassed, TranslationResult

if TYPE_CHECKING:
    from lingua_scheduler.state.records import Released
    from lingua_wire.from_node import JobResult
    from lingua_wire.shared import NetworkTimings

EMPTY_REASONS = frozenset({"NO_TEXT_ASSIGNED", "ASR_EMPTY"})
# The outcome kinds of the store -> the reasons that clients are sent.
REASONS = {
    "completed_no_text": "silence_detected",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
    "missing": "gap_timeout",
}


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What a report means for its job."""

    kind: str
    reason: str = "-"
    retryable: bool = False


COMPLETED: Final = Verdict("completed")


class Shown(msgspec.Struct, frozen=True, gc=False):
    """What the instance adds to a result when it delivers it."""

    timeline: Timeline | None = None
    group_id: str | None = None
    part_index: int | None = None


# The kind of an outcome of another speaker, in a listener's outbox.
HEARD = "heard"


def verdict_of(report: JobResult) -> Verdict:
    """Judge a report: a result, silence, or a failure that another node may or may not have.

    A code that is not in the catalogue is replaced here, because clients read the reason.
    """
    if not report.success:
        code = report.error.code if report.error is not None else "PROCESSING_ERROR"
        known = code if code in NODE_ERRORS else ErrorCode.PROCESSING_ERROR.value
        return Verdict("failed", known, code in RETRYABLE_NODE_ERRORS)
    reason = report.extra.reason if report.extra is not None else None
    has_text = (report.text_asr and not report.text_asr.isspace()) or (
        report.text_translated and not report.text_translated.isspace()
    )
    if reason is not None and reason in EMPTY_REASONS:
        return Verdict("completed_no_text", reason)
    if not has_text and not report.tts_audio:
        return Verdict("completed_no_text", "blank")
    return COMPLETED


def message_of(
    report: JobResult, trace_id: str, network: NetworkTimings | None
) -> TranslationResult:
    """Return what clients are sent of a report, without the place of the outcome."""
    timings = report.extra.service_timings if report.extra is not None else None
    if timings is None and report.processing_time_ms is not None:
        timings = ServiceTimings(total_ms=report.processing_time_ms)
    return TranslationResult(
        session_id="",
        utterance_index=0,
        job_id="",
        text_asr=report.text_asr or "",
        text_translated=report.text_translated or "",
        tts_audio=report.tts_audio or b"",
        tts_format=report.tts_format or "pcm16",
        extra=report.extra,
        trace_id=trace_id,
        service_timings=timings,
        network_timings=network,
        asr_quality_level=report.asr_quality_level,
        reason_codes=report.reason_codes,
        quality_score=report.quality_score,
        rerun_count=report.rerun_count,
        segments_meta=report.segments_meta,
        tts_parts=report.audio_parts,
    )


def for_listeners(
    message: TranslationResult, timeline: Timeline, settled_at_ms: int
) -> TranslationResult:
    """Add what the owners of listeners cannot know: where the time went until it was settled."""
    return msgspec.structs.replace(message, timeline=timeline, scheduler_sent_at_ms=settled_at_ms)


def without_sound(message: TranslationResult) -> TranslationResult:
    """Return a result without its audio, for members who read it."""
    return msgspec.structs.replace(message, tts_audio=b"")


def heard_message(
    outcome: Released, epoch: str, kept: TranslationResult | None, *, shown: Shown, at_ms: int
) -> TranslationResult | MissingResult:
    """Return another speaker's outcome at its place in the listener's own order, without audio.

    A listener who needs no translation gets the recognised text. A result that is not kept any more
    is reported as missing.
    """
    kind, _, heard_id = outcome.payload.decode().partition(" ")
    speaker = speaker_of(heard_id)
    if kind != "completed" or kept is None:
        reason = outcome.reason if kind != "completed" else "no_longer_kept"
        told = "failed" if kind == "completed" else kind
        missing = msgspec.structs.replace(outcome, kind=told, reason=reason)
        absence = missing_message(speaker, missing, epoch, trace_id="", at_ms=at_ms)
        if outcome.lane == AS_SPOKEN:
            return msgspec.structs.replace(absence, tgt_lang=None)
        return absence
    message = result_message(
        speaker, epoch, outcome, without_sound(kept), shown=shown, sent_at_ms=at_ms
    )
    if outcome.lane != AS_SPOKEN:
        return message
    return msgspec.structs.replace(
        message, text_translated=message.text_asr, tgt_lang=None, timeline=None
    )


def heard_timeline(kept: TranslationResult, at_ms: int) -> Timeline | None:
    """Return where the time went until a listener gets a result, across two clocks if needed."""
    if kept.timeline is None:
        return None
    settled_at_ms = kept.scheduler_sent_at_ms
    waited_ms = max(0, at_ms - settled_at_ms) if settled_at_ms else 0
    parts = kept.timeline
    return msgspec.structs.replace(
        parts, order_wait_ms=parts.order_wait_ms + waited_ms, total_ms=parts.total_ms + waited_ms
    )


def stored_message(
    session: str, outcome: Released, epoch: str, at_ms: int
) -> TranslationResult | MissingResult:
    """Return the message of a session's own outcome from its stored record alone."""
    if outcome.kind != "completed":
        return missing_message(session, outcome, epoch, trace_id="", at_ms=at_ms)
    kept = decode_result(outcome.payload)
    return result_message(session, epoch, outcome, kept, shown=Shown(), sent_at_ms=at_ms)


def passed_message(session: str, outcome: Released, epoch: str) -> OutcomePassed:
    """Return what a speaker is sent of an outcome that its listeners have: its position."""
    return OutcomePassed(
        session_id=session,
        utterance_index=outcome.utterance,
        tgt_lang=outcome.lane,
        epoch=epoch,
        seq=outcome.seq,
    )


def result_message(
    session: str,
    epoch: str,
    outcome: Released,
    kept: TranslationResult,
    *,
    shown: Shown,
    sent_at_ms: int,
) -> TranslationResult:
    """Return the message of a completed outcome: its content, and now its place."""
    return msgspec.structs.replace(
        kept,
        session_id=session,
        utterance_index=outcome.utterance,
        job_id=outcome.job.lstrip("="),
        tgt_lang=outcome.lane,
        epoch=epoch,
        seq=outcome.seq,
        timeline=shown.timeline,
        group_id=shown.group_id,
        part_index=shown.part_index,
        scheduler_sent_at_ms=sent_at_ms,
    )


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
        session_id=session,
        utterance_index=outcome.utterance,
        reason=reason,
        created_at_ms=at_ms,
        trace_id=trace_id or None,
        job_id=outcome.job.lstrip("=") if outcome.job != "-" else None,
        detail=detail,
        tgt_lang=outcome.lane,
        epoch=epoch,
        seq=outcome.seq,
    )
