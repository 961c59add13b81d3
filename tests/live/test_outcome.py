"""A node's report: judged, kept, and turned into the message that ends its utterance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lingua_scheduler.live.outcome import (
    REASONS,
    Shown,
    StoredResult,
    Verdict,
    decode_heard,
    decode_result,
    encode_heard,
    encode_result,
    missing_message,
    result_message,
    stored,
    stored_message,
    verdict_of,
)
from lingua_scheduler.messages.codes import RETRYABLE_NODE_ERRORS
from lingua_scheduler.messages.from_node import JobResult
from lingua_scheduler.messages.shared import (
    ErrorDetail,
    ExtraResult,
    NetworkTimings,
    ServiceTimings,
    Timeline,
)
from lingua_scheduler.messages.to_client import MissingResult, TranslationResult
from live.stand_ins import EPOCH, Scene, released

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


@pytest.mark.parametrize("code", ["UNSUPPORTED_FEATURE", "INVALID_MESSAGE", "a code of its own"])
def test_any_other_error_ends_the_job(code: str) -> None:
    failed = report(success=False, error=ErrorDetail(code=code))
    assert verdict_of(failed) == Verdict("failed", code, retryable=False)


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


# What is kept.


def test_everything_a_client_is_told_survives_the_store() -> None:
    timings = ServiceTimings(asr_ms=1.5, nmt_ms=2.5, tts_ms=3.5, total_ms=9)
    extra = ExtraResult(emotion={"joy": 0.5}, service_timings=timings, language_probability=0.9)
    network = NetworkTimings(web_to_scheduler_ms=4)
    kept = stored(
        report(
            text_asr="ni hao", text_translated="hello", tts_audio=b"\x00\xff", tts_format="opus",
            extra=extra, asr_quality_level="good", reason_codes=("a", "b"), quality_score=0.5,
            rerun_count=0, segments_meta={"count": 2, "list": [1, None, "x"]},
        ),
        "t1", network,
    )  # fmt: skip
    assert decode_result(encode_result(kept)) == kept
    assert kept == StoredResult(
        "ni hao", "hello", b"\x00\xff", "opus", "t1", extra, timings, network,
        ("good", ("a", "b"), 0.5, 0, {"count": 2, "list": [1, None, "x"]}),
    )  # fmt: skip


def test_what_a_report_leaves_out_has_a_plain_value() -> None:
    kept = stored(report(text_translated="hello"), "t1", None)
    assert kept == StoredResult("", "hello", b"", "pcm16", "t1")
    assert decode_result(encode_result(kept)) == kept


def test_a_node_that_gives_only_its_total_time_is_believed_that() -> None:
    kept = stored(report(text_asr="a", processing_time_ms=12.5), "t1", None)
    assert kept.timings == ServiceTimings(total_ms=12.5)


def test_times_of_the_stages_win_over_the_total() -> None:
    timings = ServiceTimings(asr_ms=1)
    extra = ExtraResult(service_timings=timings)
    kept = stored(report(text_asr="a", extra=extra, processing_time_ms=12.5), "t1", None)
    assert kept.timings is timings


@pytest.mark.parametrize("given", [{"rerun_count": 0}, {"quality_score": 0.0}], ids=str)
def test_a_quality_of_zero_is_kept(given: dict[str, Any]) -> None:
    assert stored(report(text_asr="a", **given), "t1", None).quality is not None


# The message.


def test_a_result_says_whose_which_and_where_it_stands() -> None:
    kept = StoredResult(
        "ni hao", "hello", b"sound", "opus", "t2", None, ServiceTimings(asr_ms=1),
        NetworkTimings(scheduler_to_node_ms=2), ("good", ("a",), 0.5, 1, {"count": 1}),
    )  # fmt: skip
    shown = Shown(Timeline(total_ms=7), "group_1", 3)
    outcome = released(9, 4, lane="en~zh", job="job-1")
    message = result_message("s1", EPOCH, outcome, kept, shown=shown, sent_at_ms=99)
    assert message == TranslationResult(
        session_id="s1", utterance_index=4, job_id="job-1", text_asr="ni hao",
        text_translated="hello", tts_audio=b"sound", tts_format="opus", trace_id="t2",
        group_id="group_1", part_index=3, service_timings=ServiceTimings(asr_ms=1),
        network_timings=NetworkTimings(scheduler_to_node_ms=2), scheduler_sent_at_ms=99,
        asr_quality_level="good", reason_codes=("a",), quality_score=0.5, rerun_count=1,
        segments_meta={"count": 1}, tgt_lang="en~zh", epoch=EPOCH, seq=9,
        timeline=Timeline(total_ms=7),
    )  # fmt: skip


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
        session_id="s1", utterance_index=4, reason=told, created_at_ms=99, trace_id="t1",
        job_id="job-1", detail=detail, tgt_lang="en", epoch=EPOCH, seq=9,
    )  # fmt: skip


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


@pytest.mark.parametrize(
    "said",
    [
        TranslationResult(
            session_id="s9", utterance_index=2, job_id="j9", text_asr="bonjour",
            text_translated="hello", tts_audio=b"\0\xff", tts_format="opus", trace_id="t9",
            epoch="e9", seq=77, timeline=Timeline(total_ms=7),
            extra=ExtraResult(reason="SOMETHING_ELSE"),
        ),
        MissingResult(
            session_id="s9", utterance_index=2, reason="failed", created_at_ms=5, epoch="e9",
            seq=77, detail="NMT_TIMEOUT",
        ),
    ],
    ids=["a result", "none"],
)  # fmt: skip
def test_what_others_said_survives_the_store_with_the_listeners_own_position(
    said: TranslationResult | MissingResult,
) -> None:
    entry = released(3, 2, kind="heard", job="s9", payload=encode_heard(said))
    expected = msgspec.structs.replace(said, epoch=EPOCH, seq=3)
    assert decode_heard(entry, EPOCH) == expected
    assert stored_message("s1", entry, EPOCH, 99) == expected


def test_every_kind_of_the_store_has_a_reason_of_the_protocol() -> None:
    assert set(REASONS) | {"completed"} == set(Scene().board.ended)
    assert set(REASONS.values()) == {
        "silence_detected", "failed", "expired", "cancelled", "gap_timeout",
    }  # fmt: skip
