"""Readers of the speaker's own language: every utterance once, in order, with the first text."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_scheduler.live.transcripts import Transcripts, as_spoken
from lingua_scheduler.messages.shared import Timeline
from lingua_scheduler.messages.to_client import MissingResult, TranslationResult
from lingua_scheduler.state.room_store import Origin
from live.stand_ins import released

pytestmark = pytest.mark.unit

Outcome = TranslationResult | MissingResult


class Readers:
    """Stands for the hall: keeps who was sent what."""

    def __init__(self) -> None:
        self.heard: list[tuple[tuple[str, ...], Outcome]] = []
        self.origins: list[Origin] = []

    def send_to(self, listeners: tuple[str, ...], message: Outcome, origin: Origin) -> None:
        self.heard.append((listeners, message))
        self.origins.append(origin)

    @property
    def texts(self) -> list[str]:
        """Return what was read, in order: the text, or why there is none."""
        return [
            message.text_translated if isinstance(message, TranslationResult) else message.reason
            for _, message in self.heard
        ]


class Reading:
    """A speaker's transcripts and those who read them."""

    def __init__(self) -> None:
        self.readers = Readers()
        self.transcripts = Transcripts(cast("Any", self.readers))

    def expect(
        self, index: int, lanes: int = 1, *readers: str, holes: tuple[int, ...] = ()
    ) -> None:
        self.transcripts.expect(index, lanes, readers or ("r1",), holes)

    def text(self, index: int, lane: str = "en") -> list[str]:
        """One language of an utterance has a text; return all that was read so far."""
        outcome = released(index + 1, index, lane=lane)
        self.transcripts.outcome(outcome, result(index, lane))
        return self.readers.texts

    def missing(self, index: int, reason: str = "failed") -> list[str]:
        """One language of an utterance has none."""
        outcome = released(index + 1, index, kind="failed")
        message = MissingResult(
            session_id="s1", utterance_index=index, reason=reason, created_at_ms=0
        )
        self.transcripts.outcome(outcome, message)
        return self.readers.texts


def result(index: int, lane: str = "en") -> TranslationResult:
    return TranslationResult(
        session_id="s1", utterance_index=index, job_id=f"job-{index}-{lane}",
        text_asr=f"said {index}", text_translated=f"{lane} {index}", tts_audio=b"sound",
        tts_format="pcm16", trace_id="t1", tgt_lang=lane, timeline=Timeline(total_ms=1),
        epoch="e1", seq=index + 1,
    )  # fmt: skip


def test_a_text_is_read_as_it_was_spoken_without_sound_language_and_timeline() -> None:
    spoken = as_spoken(result(3))
    assert spoken == msgspec.structs.replace(
        result(3), text_translated="said 3", tts_audio=b"", tgt_lang=None, timeline=None
    )


def test_an_outcome_without_text_is_passed_on_as_it_is() -> None:
    message = MissingResult(session_id="s1", utterance_index=0, reason="failed", created_at_ms=0)
    assert as_spoken(message) is message


def test_each_reader_of_an_utterance_gets_its_text() -> None:
    reading = Reading()
    reading.expect(0, 1, "r1", "r2")
    reading.expect(1, 1, "r2", "r3")
    reading.text(0)
    reading.text(1)
    assert [who for who, _ in reading.readers.heard] == [("r1", "r2"), ("r2", "r3")]
    assert reading.readers.texts == ["said 0", "said 1"]


def test_the_language_that_is_done_first_brings_the_text_and_the_others_nothing() -> None:
    reading = Reading()
    reading.expect(0, lanes=3)
    assert reading.text(0, "de") == ["said 0"]
    assert reading.text(0, "en") == ["said 0"]
    assert reading.missing(0) == ["said 0"]


def test_one_language_without_text_is_not_told_while_another_may_have_some() -> None:
    reading = Reading()
    reading.expect(0, lanes=2)
    assert reading.missing(0) == []
    assert reading.text(0) == ["said 0"]


def test_if_no_language_has_text_that_is_told_once() -> None:
    reading = Reading()
    reading.expect(0, lanes=2)
    assert reading.missing(0, "expired") == []
    assert reading.missing(0, "failed") == ["failed"]


def test_texts_are_read_in_the_order_they_were_spoken() -> None:
    reading = Reading()
    for index in range(3):
        reading.expect(index)
    assert reading.text(2) == []
    assert reading.text(0) == ["said 0"]
    assert reading.missing(1) == ["said 0", "failed", "said 2"]


def test_a_language_that_is_late_does_not_hold_the_text_back() -> None:
    reading = Reading()
    reading.expect(0, lanes=2)
    reading.expect(1, lanes=2)
    reading.text(0, "en")
    assert reading.text(1, "en") == ["said 0", "said 1"]
    reading.text(1, "de")
    assert reading.text(0, "de") == ["said 0", "said 1"]


def test_an_utterance_without_a_job_has_no_text_and_holds_nothing_back() -> None:
    reading = Reading()
    reading.expect(0, lanes=0)
    reading.expect(1)
    assert reading.text(1) == ["said 1"]


def test_utterances_that_nobody_here_was_to_read_hold_nothing_back() -> None:
    reading = Reading()
    reading.expect(4)
    reading.expect(9)
    assert reading.text(5) == []
    assert reading.text(9) == []
    assert reading.text(4) == ["said 4", "said 9"]


def test_the_outcome_of_an_utterance_that_nobody_here_reads_is_not_passed_on() -> None:
    reading = Reading()
    assert reading.text(0) == []
    assert reading.readers.heard == []


def test_nothing_is_kept_of_what_is_done() -> None:
    reading = Reading()
    for index in range(4):
        reading.expect(index, lanes=2)
    for lane in ("en", "de"):
        for index in (3, 1, 2, 0):
            reading.text(index, lane)
    assert len(reading.readers.heard) == 4
    transcripts = reading.transcripts
    assert (transcripts._open, transcripts._messages, transcripts._lane.entries) == ({}, {}, {})


def test_an_utterance_that_came_late_makes_no_later_one_vanish() -> None:
    # Whole utterances may leave an index out and bring it later: 0, 2, then 1, then 3.
    reading = Reading()
    reading.expect(0)
    reading.expect(2, holes=(1,))
    reading.expect(1)
    reading.expect(3)
    for index in (3, 2, 1, 0):
        reading.text(index)
    assert reading.readers.texts == ["said 0", "said 1", "said 2", "said 3"]


def test_an_utterance_that_came_late_is_read_though_one_before_it_is_out() -> None:
    reading = Reading()
    reading.expect(0)
    reading.expect(2, holes=(1,))
    assert reading.text(0) == ["said 0"]
    reading.expect(1)
    reading.text(1)
    assert reading.text(2) == ["said 0", "said 1", "said 2"]


def test_an_utterance_that_never_came_is_read_as_missing() -> None:
    reading = Reading()
    reading.expect(0)
    reading.expect(2, holes=(1,))
    reading.text(0)
    assert reading.text(2) == ["said 0"]
    assert reading.missing(1, "gap_timeout") == ["said 0", "gap_timeout", "said 2"]


def test_texts_are_known_by_their_utterance_whatever_outcome_let_them_pass() -> None:
    reading = Reading()
    for index in range(3):
        reading.expect(index)
    for index in (2, 1, 0):
        reading.text(index)
    # Not by the speaker's own name: its translations count by position.
    assert reading.readers.origins == [Origin("s1~=", "e1", index + 1) for index in range(3)]


@given(st.data(), st.lists(st.lists(st.booleans(), min_size=1, max_size=3), max_size=8))
@settings(deadline=None)
def test_whatever_is_done_first_each_utterance_is_read_once_and_in_order(
    data: st.DataObject, has_text: list[list[bool]]
) -> None:
    reading = Reading()
    for index, lanes in enumerate(has_text):
        reading.expect(index, len(lanes))
    done = [(i, lane) for i, lanes in enumerate(has_text) for lane in range(len(lanes))]
    for index, lane in data.draw(st.permutations(done)):
        if has_text[index][lane]:
            reading.text(index, f"l{lane}")
        else:
            reading.missing(index)
    expected = [f"said {i}" if any(lanes) else "failed" for i, lanes in enumerate(has_text)]
    assert reading.readers.texts == expected
    assert reading.transcripts._open == {}
