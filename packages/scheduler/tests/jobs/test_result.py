"""A node's report: its verdict, what the store keeps, and the message that ends its utterance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lingua_scheduler.jobs.result import (
    REASONS,
    Shown,
    Verdict,
    for_listeners,
    heard_message,
    heard_timeline,
    message_of,
    missing_message,
    passed_message,
    result_message,
    stored_message,
    verdict_of,
    without_sound,
)
from lingua_scheduler.jobs.result_format import decode_result, encode_result
from lingua_scheduler.state.records import AS_SPOKEN
from lingua_wire.codes import RETRYABLE_NODE_ERRORS
from lingua_wire.from_node import JobResult
from lingua_wire.shared import (
    ErrorDetail,
    ExtraResult,
    NetworkTimings,
    ServiceTimings,
    Timeline,
)
from lingua_wire.to_client import MissingResult, OutcomePassed, TranslationResult
from runtime.stand_ins import EPOCH, Scene, content, heard, passed, released

pytestmark = pytest.mark.unit


def report(**given: Any) -> JobResult:
    return JobResult(job_id="j", **({"success": True} | given))


# The verdict.


@pytest.mark.parametrize(
    "given",
    [
        {"text_asr": "ni hao", "text_translated": "hello"},
        {"text_asr": "ni hao"},
        {"text_translated": "hello"},
        {"text_asr": " ", "text_translated": "hello"},
        {"tts_audio": b"sound"},
        {"text_asr": "a", "extra": ExtraResult(reason="SOMETHING_ELSE")},
        {"text_asr": "a", "error": ErrorDetail(code="PROCESSING_ERROR")},
    ],
    ids=str,
)
def test_text_or_sound_is_a_result(given: dict[str, Any]) -> None:
    assert verdict_of(report(**given)) == Verdict("completed")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text_asr": "", "text_translated": ""},
        {"text_asr": " \t\n\u3000", "text_translated": "\u00a0"},
        {"tts_audio": b""},
        {"extra": ExtraResult(reason="SOMETHING_ELSE")},
    ],
    ids=str,
)
def test_neither_text_nor_sound_is_silence(given: dict[str, Any]) -> None:
    assert verdict_of(report(**given)) == Verdict("completed_no_text", "blank")


@pytest.mark.parametrize("reason", ["NO_TEXT_ASSIGNED", "ASR_EMPTY"])
@pytest.mark.parametrize("given", [{}, {"text_asr": "leftover", "tts_audio": b"x"}], ids=str)
def test_a_node_may_say_that_nothing_was_said(reason: str, given: dict[str, Any]) -> None:
    verdict = verdict_of(report(extra=ExtraResult(reason=reason), **given))
    assert verdict == Verdict("completed_no_text", reason)


@pytest.mark.parametrize("code", sorted(RETRYABLE_NODE_ERRORS))
def test_an_error_that_another_node_may_not_have_is_retryable(code: str) -> None:
    failed = report(success=False, error=ErrorDetail(code=code))
    assert verdict_of(failed) == Verdict("failed", code, retryable=True)


@pytest.mark.parametrize("code", ["UNSUPPORTED_FEATURE", "UNSUPPORTED_LANGUAGE"])
def test_any_other_error_ends_the_job(code: str) -> None:
    failed = report(success=False, error=ErrorDetail(code=code))
    assert verdict_of(failed) == Verdict("failed", code, retryable=False)


@pytest.mark.parametrize("code", ["SESSION_CLOSED", "UNAUTHORIZED", "he said: good morning"])
def test_a_code_that_is_not_a_nodes_to_give_reaches_nobody(code: str) -> None:
    failed = report(success=False, error=ErrorDetail(code=code))
    assert verdict_of(failed) == Verdict("failed", "PROCESSING_ERROR", retryable=False)


def test_a_failure_without_a_code_counts_as_a_processing_error() -> None:
    assert verdict_of(report(success=False)) == Verdict(
        "failed", "PROCESSING_ERROR", retryable=True
    )


def test_a_failure_is_one_whatever_text_it_carries() -> None:
    failed = report(success=False, text_asr="a", extra=ExtraResult(reason="ASR_EMPTY"))
    assert verdict_of(failed).kind == "failed"


@pytest.mark.parametrize("code", ["MODEL_NOT_AVAILABLE", "NODE_OVERLOADED", "INTERNAL_ERROR"])
def test_what_the_promise_names_is_retryable(code: str) -> None:
    assert code in RETRYABLE_NODE_ERRORS


# What the store keeps.


def test_everything_a_client_is_told_survives_the_store() -> None:
    timings = ServiceTimings(asr_ms=1.5, nmt_ms=2.5, tts_ms=3.5, total_ms=9)
    extra = ExtraResult(emotion={"joy": 0.5}, service_timings=timings, language_probability=0.9)
    network = NetworkTimings(web_to_scheduler_ms=4)
    kept = message_of(
        report(
            text_asr="ni hao",
            text_translated="hello",
            tts_audio=b"\x00\xff",
            tts_format="opus",
            extra=extra,
            asr_quality_level="good",
            reason_codes=("a", "b"),
            quality_score=0.5,
            rerun_count=0,
            segments_meta={"count": 2, "list": [1, None, "x"]},
        ),
        "t1",
        network,
    )
    assert decode_result(encode_result(kept)) == kept
    assert kept == content(
        "ni hao",
        "hello",
        b"\x00\xff",
        "opus",
        extra=extra,
        service_timings=timings,
        network_timings=network,
        asr_quality_level="good",
        reason_codes=("a", "b"),
        quality_score=0.5,
        rerun_count=0,
        segments_meta={"count": 2, "list": [1, None, "x"]},
    )


def test_what_a_report_leaves_out_has_a_plain_value() -> None:
    kept = message_of(report(text_translated="hello"), "t1", None)
    assert kept == content("", "hello")
    assert decode_result(encode_result(kept)) == kept


def test_a_node_that_gives_only_its_total_time_is_believed_that() -> None:
    kept = message_of(report(text_asr="a", processing_time_ms=12.5), "t1", None)
    assert kept.service_timings == ServiceTimings(total_ms=12.5)


def test_times_of_the_stages_win_over_the_total() -> None:
    timings = ServiceTimings(asr_ms=1)
    extra = ExtraResult(service_timings=timings)
    kept = message_of(report(text_asr="a", extra=extra, processing_time_ms=12.5), "t1", None)
    assert kept.service_timings is timings


@pytest.mark.parametrize("given", [{"rerun_count": 0}, {"quality_score": 0.0}], ids=str)
def test_a_quality_of_zero_is_kept(given: dict[str, Any]) -> None:
    kept = message_of(report(text_asr="a", **given), "t1", None)
    assert decode_result(encode_result(kept)) == kept
    assert [getattr(kept, name) for name in given] == [0]


# The message.


def test_a_result_says_whose_which_and_where_it_stands() -> None:
    kept = content(
        "ni hao",
        "hello",
        b"sound",
        "opus",
        "t2",
        service_timings=ServiceTimings(asr_ms=1),
        network_timings=NetworkTimings(scheduler_to_node_ms=2),
        asr_quality_level="good",
        reason_codes=("a",),
        quality_score=0.5,
        rerun_count=1,
        segments_meta={"count": 1},
    )
    shown = Shown(Timeline(total_ms=7), "group_1", 3)
    outcome = released(9, 4, lane="en~zh", job="job-1")
    message = result_message("s1", EPOCH, outcome, kept, shown=shown, sent_at_ms=99)
    assert message == TranslationResult(
        session_id="s1",
        utterance_index=4,
        job_id="job-1",
        text_asr="ni hao",
        text_translated="hello",
        tts_audio=b"sound",
        tts_format="opus",
        trace_id="t2",
        group_id="group_1",
        part_index=3,
        service_timings=ServiceTimings(asr_ms=1),
        network_timings=NetworkTimings(scheduler_to_node_ms=2),
        scheduler_sent_at_ms=99,
        asr_quality_level="good",
        reason_codes=("a",),
        quality_score=0.5,
        rerun_count=1,
        segments_meta={"count": 1},
        tgt_lang="en~zh",
        epoch=EPOCH,
        seq=9,
        timeline=Timeline(total_ms=7),
    )


@pytest.mark.parametrize(
    ("kind", "reason", "told", "detail"),
    [
        ("completed_no_text", "ASR_EMPTY", "silence_detected", "ASR_EMPTY"),
        ("completed_no_text", "-", "silence_detected", None),
        ("failed", "NMT_TIMEOUT", "failed", "NMT_TIMEOUT"),
        ("expired", "pending_timeout", "expired", "pending_timeout"),
        ("cancelled", "-", "cancelled", None),
        ("missing", "gap_timeout", "gap_timeout", "gap_timeout"),
        ("missing", "refused", "failed", "refused"),
    ],
)
def test_an_outcome_without_a_translation_says_why(
    kind: str, reason: str, told: str, detail: str | None
) -> None:
    outcome = released(9, 4, kind=kind, reason=reason, job="job-1")
    assert missing_message("s1", outcome, EPOCH, trace_id="t1", at_ms=99) == MissingResult(
        session_id="s1",
        utterance_index=4,
        reason=told,
        created_at_ms=99,
        trace_id="t1",
        job_id="job-1",
        detail=detail,
        tgt_lang="en",
        epoch=EPOCH,
        seq=9,
    )


def test_a_place_that_no_job_ever_had_names_none() -> None:
    outcome = released(9, 4, kind="missing", reason="gap_timeout")
    message = missing_message("s1", outcome, EPOCH, trace_id="", at_ms=99)
    assert (message.job_id, message.trace_id) == (None, None)


@pytest.mark.parametrize("kind", sorted(REASONS))
def test_of_an_outcome_that_only_the_store_knows_the_same_is_told(kind: str) -> None:
    outcome = released(9, 4, kind=kind, reason="gap_timeout", job="job-1")
    expected = missing_message("s1", outcome, EPOCH, trace_id="", at_ms=99)
    assert stored_message("s1", outcome, EPOCH, 99) == expected


def test_of_a_result_that_only_the_store_knows_all_but_its_timeline_is_told() -> None:
    outcome = released(9, 4, job="job-1")
    kept = decode_result(outcome.payload)
    message = stored_message("s1", outcome, EPOCH, 99)
    assert message == result_message("s1", EPOCH, outcome, kept, shown=Shown(), sent_at_ms=99)
    assert isinstance(message, TranslationResult)
    assert (message.text_asr, message.timeline) == ("ni hao", None)


# Outcomes of other speakers.


KEPT = for_listeners(
    content("bonjour", "hello", b"\0\xff", "opus", extra=ExtraResult(reason="SOMETHING_ELSE")),
    Timeline(settle_ms=2, total_ms=7),
    settled_at_ms=1000,
)


def test_what_others_said_has_the_speakers_name_and_the_listeners_own_position() -> None:
    entry, shown = heard(3, 2, lane="en"), Shown(Timeline(total_ms=9), "group_1", 3)
    message = heard_message(entry, EPOCH, KEPT, shown=shown, at_ms=99)
    own = result_message("s9", EPOCH, entry, without_sound(KEPT), shown=shown, sent_at_ms=99)
    assert message == own
    assert isinstance(message, TranslationResult)
    # Its sound is sent along, encoded once for all receivers.
    assert (message.seq, message.tts_audio, message.tgt_lang) == (3, b"", "en")


def test_who_needs_no_translation_reads_what_was_recognised() -> None:
    shown = Shown(Timeline(total_ms=9), "group_1", 3)
    entry = heard(3, 2, lane=AS_SPOKEN)
    message = heard_message(entry, EPOCH, KEPT, shown=shown, at_ms=99)
    assert isinstance(message, TranslationResult)
    assert (message.text_asr, message.text_translated) == ("bonjour", "bonjour")
    assert (message.tgt_lang, message.timeline, message.tts_audio) == (None, None, b"")
    assert (message.group_id, message.part_index) == ("group_1", 3)


@pytest.mark.parametrize("lane", ["en", AS_SPOKEN])
@pytest.mark.parametrize("kind", sorted(REASONS))
def test_what_others_said_without_a_translation_says_why(kind: str, lane: str) -> None:
    entry = heard(3, 2, kind=kind, lane=lane, reason="gap_timeout")
    message = heard_message(entry, EPOCH, None, shown=Shown(), at_ms=99)
    expected = missing_message(
        "s9", msgspec.structs.replace(entry, kind=kind), EPOCH, trace_id="", at_ms=99
    )
    named = None if lane == AS_SPOKEN else lane
    assert message == msgspec.structs.replace(expected, tgt_lang=named)


def test_a_result_that_is_not_kept_any_more_is_said_to_be_missing() -> None:
    message = heard_message(heard(3, 2), EPOCH, None, shown=Shown(), at_ms=99)
    assert isinstance(message, MissingResult)
    assert (message.reason, message.detail) == ("failed", "no_longer_kept")
    assert (message.session_id, message.epoch, message.seq) == ("s9", EPOCH, 3)


def test_the_time_since_it_was_settled_is_the_wait_of_a_listener() -> None:
    line = heard_timeline(KEPT, 1030)
    assert line == Timeline(settle_ms=2, order_wait_ms=30, total_ms=37)
    # Clocks of two machines may disagree, and a stored result may be of an older release.
    assert heard_timeline(KEPT, 990) == KEPT.timeline
    unknown = msgspec.structs.replace(KEPT, scheduler_sent_at_ms=None)
    assert heard_timeline(unknown, 1030) == KEPT.timeline
    assert heard_timeline(msgspec.structs.replace(KEPT, timeline=None), 1030) is None


def test_where_the_time_went_survives_the_store() -> None:
    assert decode_result(encode_result(KEPT)) == KEPT
    assert without_sound(KEPT) == msgspec.structs.replace(KEPT, tts_audio=b"")


def test_a_speaker_is_told_where_it_stands_that_others_have_it() -> None:
    assert passed_message("s1", passed(4, 2), EPOCH) == OutcomePassed(
        session_id="s1", utterance_index=2, tgt_lang="en", epoch=EPOCH, seq=4
    )


def test_every_kind_of_the_store_has_a_reason_of_the_protocol() -> None:
    assert set(REASONS) | {"completed"} == set(Scene().effects.counts.ended)
    assert set(REASONS.values()) == {
        "silence_detected",
        "failed",
        "expired",
        "cancelled",
        "gap_timeout",
    }
