"""Partial texts and parts of speech are passed on in order, and never after their outcome."""

from __future__ import annotations

import pytest

from early_messages import part, partial
from lingua_client.early_filter import LANES_MAX, EarlyFilter
from lingua_wire.to_client import MissingResult, OutcomePassed

pytestmark = pytest.mark.unit


def missing(index: int, lane: str = "es", *, speaker: str = "s1") -> MissingResult:
    return MissingResult(
        session_id=speaker, utterance_index=index, reason="failed", created_at_ms=0, tgt_lang=lane
    )


def test_an_outcome_in_any_language_replaces_the_partials_up_to_its_utterance() -> None:
    early = EarlyFilter()
    assert early.takes_partial(partial(0))
    early.record_outcome(missing(1, "fr"))
    assert not early.takes_partial(partial(0))
    assert not early.takes_partial(partial(1))
    assert early.takes_partial(partial(2))
    # An older outcome in another language opens nothing again.
    early.record_outcome(missing(0, "es"))
    assert not early.takes_partial(partial(1))


def test_outcomes_of_one_speaker_leave_the_partials_of_others() -> None:
    early = EarlyFilter()
    early.record_outcome(missing(5))
    assert early.takes_partial(partial(0, session_id="s2"))


def test_an_outcome_that_only_listeners_receive_ends_the_partials_too() -> None:
    early = EarlyFilter()
    early.record_outcome(
        OutcomePassed(session_id="s1", utterance_index=3, tgt_lang="es", epoch="e1", seq=9)
    )
    assert not early.takes_partial(partial(3))


def test_parts_of_speech_are_taken_in_order_and_once() -> None:
    early = EarlyFilter()
    taken = [early.takes_part(part(0, index)) for index in (0, 0, 1, 3, 2, 3)]
    assert taken == [True, False, True, False, True, True]
    assert early.takes_part(part(0, 0, tgt_lang="fr"))


def test_parts_whose_beginning_was_missed_are_left_to_the_outcome() -> None:
    early = EarlyFilter()
    assert not early.takes_part(part(0, 1))
    assert not early.takes_part(part(0, 2))


def test_a_newer_attempt_begins_again_and_the_older_one_is_over() -> None:
    early = EarlyFilter()
    assert early.takes_part(part(0, 0))
    assert not early.takes_part(part(0, 1, attempt_id=2))
    assert early.takes_part(part(0, 0, attempt_id=2))
    assert not early.takes_part(part(0, 1, attempt_id=1))
    assert early.takes_part(part(0, 1, attempt_id=2))


def test_no_part_follows_the_outcome_in_its_language() -> None:
    early = EarlyFilter()
    assert early.takes_part(part(0, 0))
    early.record_outcome(missing(0, "fr"))
    assert early.takes_part(part(0, 1))
    early.record_outcome(missing(0, "es"))
    assert not early.takes_part(part(0, 2))
    assert not early.takes_part(part(0, 0, attempt_id=7))
    assert early.takes_part(part(1, 0))


def test_utterances_that_the_store_lost_are_counted_again() -> None:
    early = EarlyFilter()
    early.record_outcome(missing(7))
    early.record_outcome(missing(7, speaker="s2"))
    early.forget_from("s1", 5)
    assert not early.takes_partial(partial(4))
    assert early.takes_partial(partial(5))
    assert early.takes_part(part(5, 0))
    assert not early.takes_partial(partial(7, session_id="s2"))
    early.begin_session()
    assert early.takes_partial(partial(0))


def test_what_is_remembered_is_bounded() -> None:
    early = EarlyFilter()
    for number in range(LANES_MAX + 10):
        early.record_outcome(missing(0, speaker=f"s{number}"))
        early.takes_part(part(1, 0, session_id=f"s{number}"))
    assert len(early._answered) == len(early._spoken) == len(early._next) == LANES_MAX
