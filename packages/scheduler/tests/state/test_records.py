"""Requests as they are packed, answers as they are read, and the ids that follow from requests."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.errors import InvalidDemand, InvalidNode
from lingua_scheduler.state.answers import (
    read_ahead,
    read_freed,
    read_heard,
    read_placement,
    read_placements,
    read_released,
)
from lingua_scheduler.state.keys import IDENTIFIER, Cells
from lingua_scheduler.state.records import (
    LANE,
    ForeignSlot,
    JobSpec,
    Lease,
    ListenerOutcome,
    ListenerPosition,
    NodeAbout,
    NodeBeat,
    Placement,
    Released,
    UndeliveredOutcome,
    job_id_of,
    read_entry,
    reason_word,
    speaker_of,
)

pytestmark = pytest.mark.unit

requests = st.tuples(st.text("ab:-", max_size=3), st.text("ab:-", max_size=3))

PLACEMENT = b"job-1 2 n1 c0 i1 1 31000 p1 turn"
PLACED = Placement("job-1", 2, "n1", "c0", "i1", True, 31_000, "c7", "p1", "turn")  # noqa: FBT003
HOME = Cells("records", 8).all[7]


# Requests.


def test_a_job_is_packed_under_the_names_the_scripts_read() -> None:
    names = {
        "session": "s", "index": 3, "lane": "en", "demand": "zh>en||||||", "turn": "t",
        "is_slice": True, "closes_turn": True, "preferred": "n", "unwanted_from": 1, "audio": True,
        "fence": 2, "top": 4, "heard": 41, "heard_ms": 900, "audience": "c0/a c1/b",
        "readers": "c0/c", "readers_from": 2, "lanes": 3, "ms": 700, "speech": 5,
    }  # fmt: skip
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(JobSpec(**names))) == names


def test_what_a_job_does_not_say_is_not_sent() -> None:
    names = {"session": "s", "index": 3, "lane": "en", "demand": "zh>en||||||"}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(JobSpec(**names))) == names


@pytest.mark.parametrize(
    "wrong", [{"index": -1}, {"index": 1 << 40}, {"lane": ""}, {"lane": "a b"}]
)
def test_a_job_that_no_key_can_carry_is_refused(wrong: dict[str, Any]) -> None:
    right: dict[str, Any] = {"session": "s", "index": 3, "lane": "en", "demand": "zh>en||||||"}
    with pytest.raises(InvalidDemand):
        JobSpec(**right | wrong)


def test_a_node_without_a_slot_is_refused() -> None:
    with pytest.raises(InvalidNode):
        NodeAbout(instance="i", max=0, silence_ms=45_000)


def test_a_node_is_packed_under_the_names_the_scripts_read() -> None:
    about = NodeAbout(instance="i", max=4, silence_ms=45_000)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(about)) == {
        "instance": "i",
        "max": 4,
        "silence_ms": 45_000,
        "acks": False,
        "draining": False,
        "info": "",
        "again": False,
        "streams": 0,
    }


@pytest.mark.parametrize("jobs", [None, [], ["job-1|1"]], ids=["not listed", "none", "one"])
def test_a_beat_tells_jobs_that_are_not_listed_from_none_that_run(jobs: list[str] | None) -> None:
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(NodeBeat(jobs=jobs)))
    assert packed == {
        "good": True, "over": False, "pressure": "", "acks": False, "running": 0, "jobs": jobs,
    }  # fmt: skip


# Leases.


@pytest.mark.parametrize(
    ("lease", "member"),
    [
        (Lease("job-1", 2, ""), "job-1|2"),
        (Lease("job-1", 12, "c3"), "job-1|12|c3"),
    ],
    ids=["of this cell", "of another cell"],
)
def test_a_lease_is_written_and_read_back(lease: Lease, member: str) -> None:
    assert lease.member == member
    assert Lease.read(member.encode()) == lease


# Entries of the outbox.


def test_an_entry_is_read_with_its_payload_as_it_is() -> None:
    raw = b"completed 7 en job-1 2 ok\n\x00two\nlines \xff"
    expected = Released(9, "completed", 7, "en", "job-1", 2, "ok", b"\x00two\nlines \xff")
    assert read_entry(9, raw) == expected


def test_an_entry_of_a_missing_outcome_has_no_job_and_no_payload() -> None:
    read = read_entry(1, b"missing 3 en - 0 gap_timeout\n")
    assert read == Released(1, "missing", 3, "en", "-", 0, "gap_timeout", b"")


def test_an_entry_that_others_have_heard_says_so_and_is_read_like_any_other() -> None:
    entry = read_entry(7, b"+completed 3 en job-1 2 -\ntext")
    assert entry == Released(7, "completed", 3, "en", "job-1", 2, "-", b"text", is_passed=True)
    assert not read_entry(7, b"completed 3 en job-1 2 -\n").is_passed


def test_who_said_something_is_read_from_what_it_is_kept_under() -> None:
    assert speaker_of("s-1|1700000000000|3") == speaker_of("!s-1|1700000000000|4") == "s-1"


def test_what_listeners_got_is_read_with_their_owners_and_positions() -> None:
    rows = [b"a", b"i1", b"17", 4, b"b", b"", b"18", 1]
    raw = [[b"s|5|1", b"completed 3 en job-1 2 -", rows], [b"!s|5|2", b"failed 4 en - 0 x", []]]
    listeners = (ListenerPosition("a", "i1", "17", 4), ListenerPosition("b", "", "18", 1))
    assert read_heard(raw, HOME) == (
        ListenerOutcome("s|5|1", "completed", "3 en job-1 2 -", "c7", listeners),
        ListenerOutcome("!s|5|2", "failed", "4 en - 0 x", "c7", ()),
    )


def test_what_is_for_other_cells_is_read() -> None:
    raw = [[b"s|5|1", b"completed 3 en job-1 2 -", 1200, b"\x00sound", b"text", [b"c1/a", b"c2/b"]]]
    assert read_ahead(raw) == (
        UndeliveredOutcome(
            "s|5|1", "completed", "3 en job-1 2 -", 1200, b"\x00sound", b"text", ("c1/a", "c2/b")
        ),
    )


def test_entries_come_in_pairs_with_their_positions() -> None:
    raw = [4, b"failed 0 en job-1 3 timeout\n", 5, b"completed 1 en job-2 1 -\nx"]
    read = read_released(raw)
    assert [(entry.seq, entry.utterance, entry.kind) for entry in read] == [
        (4, 0, "failed"),
        (5, 1, "completed"),
    ]
    assert read_released([]) == ()


def test_an_entry_whose_head_is_not_six_words_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="values to unpack"):
        read_entry(1, b"completed 7 en job-1 2 two words\n")


# Reasons.


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("timeout", "timeout"),
        ("MODEL_NOT_AVAILABLE", "MODEL_NOT_AVAILABLE"),
        ("a.b:c-d", "a.b:c-d"),
        ("two words", "two_words"),
        ("line\nbreak", "line_break"),
        ("日本", "__"),
        ("", "-"),
        ("x" * 65, "x" * 64),
    ],
)
def test_a_reason_becomes_one_word(text: str, word: str) -> None:
    assert reason_word(text) == word


@given(st.text())
def test_any_reason_survives_the_head_of_an_entry(text: str) -> None:
    word = reason_word(text)
    assert 1 <= len(word) <= 64
    read = read_entry(1, f"failed 0 en job-1 1 {word}\nrest".encode())
    assert (read.reason, read.payload) == (word, b"rest")


# Placements and slots.


@pytest.mark.parametrize("moved", [0, 1])
def test_a_placement_is_read(moved: int) -> None:
    raw = b"job-1 2 n1 c0 i1 %d 31000 p1 turn" % moved
    assert read_placement(raw, HOME) == msgspec.structs.replace(PLACED, context_reset=bool(moved))


@pytest.mark.parametrize(
    ("word", "how"), [("1", "pool"), ("2", "fallback"), ("12", "fallback"), ("stream", "stream")]
)
def test_why_a_placement_has_its_node_is_read(word: str, how: str) -> None:
    assert read_placement(f"job-1 2 n1 c0 i1 0 5 p1 {word}".encode(), HOME).how == how


def test_the_nodes_that_a_placement_considered_are_read() -> None:
    placed = read_placement(PLACEMENT + b"\np1 n1 250\np1 n2 tried", HOME)
    assert placed == msgspec.structs.replace(PLACED, looked=("p1 n1 250", "p1 n2 tried"))


def test_placements_are_read_in_order() -> None:
    # That of a job that had waited: nothing says why it has its node.
    placed = read_placements([PLACEMENT, b"job-2 1 n2 c1  0 5  "], HOME)
    assert placed == (PLACED, Placement("job-2", 1, "n2", "c1", "", False, 5, "c7"))  # noqa: FBT003
    assert read_placements([], HOME) == ()


def test_slots_of_other_cells_are_read() -> None:
    freed = read_freed([[b"c1", b"n1", b"job-1", 2], [b"c2", b"n2", b"job-2", 1]])
    assert freed == (ForeignSlot("c1", "n1", "job-1", 2), ForeignSlot("c2", "n2", "job-2", 1))
    assert read_freed([]) == ()


# Job ids.


def test_a_job_id_is_safe_in_a_key_and_begins_as_the_scripts_expect() -> None:
    job = job_id_of("s-1", "any \n text 日本")
    assert IDENTIFIER.fullmatch(job)
    # The scripts take a job's share of chance from the six hex digits after `job-`.
    assert re.fullmatch(r"job-[0-9a-f]{32}", job)


def test_the_same_request_is_the_same_job() -> None:
    assert job_id_of("s-1", "r-1") == job_id_of("s-1", "r-1")


def test_scope_and_request_are_kept_apart() -> None:
    assert job_id_of("a", "b:c") != job_id_of("a:b", "c") != job_id_of("", "a:b:c")


@given(requests, requests)
def test_other_requests_and_other_scopes_are_other_jobs(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert (job_id_of(*one) == job_id_of(*other)) == (one == other)


# Lanes.


@pytest.mark.parametrize("lane", ["en", "zh-Hant-TW", "zh~en", "raw_voice", "x" * 64])
def test_a_lane_is_one_word(lane: str) -> None:
    assert LANE.fullmatch(lane)


@pytest.mark.parametrize("lane", ["", "a b", "a:b", "a|b", "a/b", "a\n", "x" * 65, "日本"])
def test_what_would_break_a_field_or_an_entry_is_no_lane(lane: str) -> None:
    assert not LANE.fullmatch(lane)
