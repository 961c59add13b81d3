"""The position of a session, its duplicates, and its utterances without an outcome."""

from __future__ import annotations

import pytest

from lingua_client.outcome_tracker import OPEN_MAX, OutcomeTracker
from lingua_wire.to_client import MissingResult

pytestmark = pytest.mark.unit


def outcome(
    epoch: str | None, seq: int | None, index: int, lane: str = "es", *, speaker: str = "s"
) -> MissingResult:
    return MissingResult(
        session_id=speaker,
        utterance_index=index,
        reason="failed",
        created_at_ms=0,
        tgt_lang=lane,
        epoch=epoch,
        seq=seq,
    )


def test_utterances_are_open_until_each_language_has_its_outcome() -> None:
    tracker = OutcomeTracker(2)
    tracker.begin_session("e1")
    tracker.record_accepted(0, 100)
    tracker.record_answer(0)
    tracker.record_answer(1)
    tracker.record_answer(1)
    # The acceptance may arrive after the outcomes.
    tracker.record_accepted(1, 50)
    assert tracker.open_ms == 100
    tracker.record_answer(0)
    assert tracker.open_ms == 0
    for index in range(3 * OPEN_MAX):
        tracker.record_accepted(index, 1)
    assert tracker.open_ms == OPEN_MAX
    tracker.begin_session("e2")
    assert tracker.open_ms == 0


def test_an_own_outcome_under_another_epoch_starts_positions_over() -> None:
    tracker = OutcomeTracker(1)
    tracker.begin_session("e1")
    assert tracker.record(outcome("e1", 5, 3))
    assert not tracker.record(outcome("e1", 5, 3))
    assert tracker.record(outcome("e2", 1, 4))
    assert (tracker.epoch, tracker.seq, tracker.duplicates) == ("e2", 1, 1)
    assert tracker.record(outcome(None, None, 0))
    assert tracker.seq == 1


def test_what_comes_again_under_a_new_epoch_is_known_by_its_number_and_language() -> None:
    tracker = OutcomeTracker(1)
    tracker.begin_session("e1")
    assert tracker.record(outcome("e1", 1, 0, "es"))
    assert tracker.record(outcome("e1", 2, 0, "fr"))
    assert tracker.record(outcome("e1", 3, 1, "es"))
    assert not tracker.record(outcome("e2", 1, 0, "es"))
    assert not tracker.record(outcome("e2", 2, 1, "es"))
    assert tracker.record(outcome("e2", 3, 1, "fr"))
    assert tracker.record(outcome("e2", 4, 0, "es", speaker="another"))
    assert tracker.duplicates == 2
    assert tracker.seq == 4
