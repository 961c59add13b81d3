"""What a session remembers of its requests: as long as the store knows them, and no longer."""

from __future__ import annotations

import pytest

from lingua_scheduler.runtime.known_requests import KNOWN_MAX, KnownRequest, KnownRequests

pytestmark = pytest.mark.unit

BINDING_MS = 90_000


def said(known: KnownRequests, index: int, name: str | None = None) -> None:
    known.add(index if name is None else name, KnownRequest("a sound", index))


def test_a_request_without_an_outcome_is_never_forgotten() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    said(known, 0, "r0")
    said(known, 1, "r1")
    known.settle(1, 0)
    said(known, 2, "r2")
    known.settle(2, 100 * BINDING_MS)
    assert ["r0" in known, "r1" in known, "r2" in known] == [True, False, True]
    assert known.open


def test_a_request_is_known_as_long_as_the_store_knows_it_after_its_outcome() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    for index in range(3):
        said(known, index, f"r{index}")
        known.settle(index, 1000 * index)
    said(known, 3, "r3")
    known.settle(3, 1000 + BINDING_MS)
    assert [f"r{index}" in known for index in range(4)] == [False, True, True, True]
    assert known.get("r1") == KnownRequest("a sound", 1)
    assert known.get("r0") is None
    assert known.is_complete


def test_a_session_that_goes_on_for_long_stays_small_and_knows_all_there_is() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    for index in range(3 * KNOWN_MAX):
        said(known, index, f"r{index}")
        known.settle(index, 1000 * index)
    assert len(known) == BINDING_MS // 1000 + 1
    assert known.is_complete


def test_more_requests_than_may_be_kept_are_known_to_the_store_alone() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    for index in range(KNOWN_MAX + 1):
        said(known, index, f"r{index}")
        known.settle(index, 0)
    assert len(known) == KNOWN_MAX
    assert "r0" not in known
    assert not known.is_complete


def test_what_has_ended_is_bounded_too() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    for index in range(3 * KNOWN_MAX):
        said(known, index, f"r{index}")
        known.settle(index, 0)
    said(known, 3 * KNOWN_MAX, "last")
    known.settle(3 * KNOWN_MAX, 2 * BINDING_MS)
    assert len(known) == 1
    assert "last" in known


def test_utterances_without_a_name_are_known_by_their_index() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    said(known, 5)
    assert 5 in known
    assert not known.open
    known.settle(5, 0)
    assert 5 in known


def test_a_refused_request_is_new_and_a_former_owner_may_have_had_others() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    said(known, 0, "r0")
    known.forget("r0")
    known.forget("r0")
    assert "r0" not in known
    assert not known.open
    known.restore()
    assert not known.is_complete


def test_a_name_that_was_refused_and_sent_again_is_forgotten_with_its_last_outcome() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    said(known, 0, "r")
    known.settle(0, 0)
    known.forget("r")
    said(known, 1, "r")
    said(known, 2, "other")
    known.settle(2, 10 * BINDING_MS)
    assert known.get("r") == KnownRequest("a sound", 1)
    known.settle(1, 10 * BINDING_MS)
    said(known, 3, "later")
    known.settle(3, 12 * BINDING_MS)
    assert "r" not in known


def test_what_never_gets_an_outcome_is_bounded() -> None:
    known = KnownRequests(BINDING_MS, is_complete=True)
    for index in range(2 * KNOWN_MAX):
        said(known, index, f"r{index}")
    for index in range(2 * KNOWN_MAX):
        known.settle(index, 0)
    assert len(known) == KNOWN_MAX
    assert not known.open
