"""The state machine of a session on one instance, and what its record says of each state."""

from __future__ import annotations

from itertools import product

import pytest

from lingua_scheduler.runtime.session_fields import SessionFields
from lingua_scheduler.runtime.session_state import (
    TRANSITIONS,
    SessionRecord,
    SessionState,
    session_transition,
)
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.transitions import IllegalTransition
from lingua_wire.from_client import SessionInit

pytestmark = pytest.mark.unit

OPENING, CONNECTED = SessionState.OPENING, SessionState.CONNECTED
DISCONNECTED, MOVING = SessionState.DISCONNECTED, SessionState.MOVING
CLOSING, ENDED, TAKEN = SessionState.CLOSING, SessionState.ENDED, SessionState.TAKEN
# Written out once more, so that a change of the table is a decision.
LEGAL = {
    (OPENING, CONNECTED),
    (OPENING, DISCONNECTED),
    (OPENING, CLOSING),
    (OPENING, TAKEN),
    (CONNECTED, DISCONNECTED),
    (CONNECTED, MOVING),
    (CONNECTED, CLOSING),
    (CONNECTED, TAKEN),
    (DISCONNECTED, CONNECTED),
    (DISCONNECTED, MOVING),
    (DISCONNECTED, CLOSING),
    (DISCONNECTED, TAKEN),
    (MOVING, CONNECTED),
    (MOVING, DISCONNECTED),
    (MOVING, CLOSING),
    (MOVING, TAKEN),
    (CLOSING, CONNECTED),
    (CLOSING, DISCONNECTED),
    (CLOSING, ENDED),
    (CLOSING, TAKEN),
}
PAIRS = list(product(SessionState, SessionState))


def record(state: SessionState = OPENING, **given: str) -> SessionRecord:
    home = Cells("test", 1).all[0]
    return SessionRecord(id="s1", home=home, tenant="", trace_id="t1", state=state, **given)


# Transitions.


def test_the_table_has_every_state_and_no_other_transition() -> None:
    assert set(TRANSITIONS) == set(SessionState)
    assert {(before, after) for before in TRANSITIONS for after in TRANSITIONS[before]} == LEGAL


@pytest.mark.parametrize(("before", "after"), sorted(LEGAL))
def test_a_legal_transition_gives_the_new_state(before: SessionState, after: SessionState) -> None:
    assert session_transition(before, after) is after
    mine = record(before)
    mine.move(after)
    assert mine.state is after


@pytest.mark.parametrize(("before", "after"), [pair for pair in PAIRS if pair not in LEGAL])
def test_an_illegal_transition_raises(before: SessionState, after: SessionState) -> None:
    with pytest.raises(IllegalTransition) as problem:
        session_transition(before, after)
    found = problem.value
    assert (found.machine, found.before, found.after) == ("session", before, after)


@pytest.mark.parametrize(
    ("before", "after"), [(a, b) for a, b in PAIRS if a is not b and (a, b) not in LEGAL]
)
def test_a_refused_transition_leaves_the_record_as_it_was(
    before: SessionState, after: SessionState
) -> None:
    mine = record(before)
    with pytest.raises(IllegalTransition):
        mine.move(after)
    assert mine.state is before


@pytest.mark.parametrize("state", list(SessionState))
def test_staying_in_a_state_is_no_transition(state: SessionState) -> None:
    mine = record(state)
    mine.move(state)
    assert mine.state is state


@pytest.mark.parametrize("state", [ENDED, TAKEN])
def test_nothing_follows_a_final_state(state: SessionState) -> None:
    assert TRANSITIONS[state] == frozenset()


# What the record says.


@pytest.mark.parametrize("state", list(SessionState))
def test_each_question_is_answered_by_the_state_alone(state: SessionState) -> None:
    mine = record(state)
    assert mine.is_over is (state in (ENDED, TAKEN))
    assert mine.is_closing is (state is CLOSING)
    assert mine.is_disconnected is (state is DISCONNECTED)


@pytest.mark.parametrize(("token", "is_resumable"), [("", False), ("digest", True)])
def test_only_a_client_with_a_token_may_resume(token: str, is_resumable: bool) -> None:
    assert record(token=token).is_resumable is is_resumable


def test_a_new_record_is_opening_and_owned_by_nobody() -> None:
    mine = record()
    assert (mine.state, mine.epoch, mine.fence, mine.fields) == (OPENING, "", 0, None)
    mine.own("e1", 3)
    assert (mine.epoch, mine.fence) == ("e1", 3)


def test_a_later_owner_goes_on_with_the_fields_and_the_trace_of_the_former_one() -> None:
    mine = record()
    fields = SessionFields(SessionInit(src_lang="zh", tgt_lang="en"), "t-former")
    mine.restore(fields)
    assert (mine.fields, mine.trace_id) == (fields, "t-former")
    later = SessionFields(SessionInit(src_lang="zh", tgt_lang="de"), "t-former")
    assert mine.keep(later) is later
    assert mine.fields is later
