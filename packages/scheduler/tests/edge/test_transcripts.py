"""A room's captions as a file: times from the first, names, and how long each is shown."""

from __future__ import annotations

import pytest

from lingua_scheduler.edge.transcripts import (
    SHOWN_MS_MAX,
    SHOWN_MS_MIN,
    timed_captions,
    transcript,
    with_names,
)
from lingua_scheduler.state.caption_scripts import StoredCaption

pytestmark = pytest.mark.unit

T0 = 1_763_000_000_000


def said(after_ms: int, text: str, name: str = "Ann", speaker: str = "s-a") -> StoredCaption:
    return StoredCaption(T0 + after_ms, speaker, name, 0, text)


def test_times_begin_with_the_first_and_no_caption_covers_the_next() -> None:
    rows = timed_captions(with_names([said(0, "a"), said(500, "b"), said(20_000, "x" * 900)]))
    assert [(row.start_ms, row.end_ms) for row in rows] == [
        (0, 500),
        (500, 500 + SHOWN_MS_MIN),
        (20_000, 20_000 + SHOWN_MS_MAX),
    ]


def test_who_had_left_has_the_name_of_its_other_captions() -> None:
    rows = with_names([said(0, "a"), said(1, "b", name=""), said(2, "c", "", "s-b")])
    assert [name for _, name in rows] == ["Ann", "Ann", ""]


def test_a_clock_that_went_back_makes_no_negative_time() -> None:
    rows = timed_captions(with_names([said(1000, "a"), said(0, "b")]))
    assert [row.start_ms for row in rows] == [0, 0]
    assert all(row.end_ms >= row.start_ms for row in rows)


def test_text_has_a_line_for_each_whatever_was_said() -> None:
    text = transcript([said(0, "one\ntwo"), said(3_725_000, "x", name="")], "txt")
    assert text == "[00:00:00] Ann: one two\n[01:02:05] Ann: x\n"


def test_without_captions_files_are_valid_and_empty() -> None:
    assert transcript([], "srt") == ""
    assert transcript([], "txt") == ""
    assert transcript([], "vtt").startswith("WEBVTT")
