"""Groups: when one continues, the numbers of its parts, and its text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.session.group import (
    CONTEXT_CHARS_MAX,
    PARTS_MAX,
    PLAYBACK_MS_MAX,
    WINDOW_MS,
    GroupTracker,
)

pytestmark = pytest.mark.unit

START_MS = 1_000_000


def tracker_with_part() -> GroupTracker:
    """Return a tracker whose group began with one result at START_MS."""
    tracker = GroupTracker("s-1")
    assert tracker.result("hello", "hallo", START_MS) == ("group_s-1_1000000", 0)
    return tracker


# Which group.


def test_the_defaults_are_those_of_the_older_system() -> None:
    assert (WINDOW_MS, PARTS_MAX, CONTEXT_CHARS_MAX) == (2000, 8, 800)


def test_a_result_within_the_window_is_the_groups_next_part() -> None:
    tracker = tracker_with_part()
    assert tracker.result("again", "", START_MS + 2000) == ("group_s-1_1000000", 1)


def test_each_result_starts_the_window_again() -> None:
    tracker = tracker_with_part()
    tracker.result("again", "", START_MS + 2000)
    assert tracker.result("and again", "", START_MS + 4000) == ("group_s-1_1000000", 2)


def test_a_result_after_the_window_begins_a_group_with_an_empty_past() -> None:
    tracker = tracker_with_part()
    assert tracker.result("new", "neu", START_MS + 2001) == ("group_s-1_1002001", 0)
    assert tracker.context_text() == "User: new\nTarget: neu"


def test_the_end_of_a_playback_starts_the_window() -> None:
    tracker = tracker_with_part()
    tracker.tts_started(START_MS + 100)
    tracker.tts_ended(START_MS + 9000)
    assert tracker.result("reply", "", START_MS + 11_000) == ("group_s-1_1000000", 1)


def test_a_playback_of_long_ago_holds_no_group() -> None:
    tracker = tracker_with_part()
    tracker.tts_started(START_MS + 100)
    tracker.tts_ended(START_MS + 9000)
    assert tracker.result("reply", "", START_MS + 11_001) == ("group_s-1_1011001", 0)


def test_a_playback_under_way_keeps_the_group_open() -> None:
    tracker = tracker_with_part()
    tracker.tts_started(START_MS + 100)
    assert tracker.result("meanwhile", "", START_MS + 30_000) == ("group_s-1_1000000", 1)


def test_a_playback_whose_end_is_never_told_holds_a_group_only_so_long() -> None:
    tracker = tracker_with_part()
    tracker.tts_started(START_MS)
    later_ms = START_MS + PLAYBACK_MS_MAX + 1
    assert tracker.result("later", "", later_ms) == (f"group_s-1_{later_ms}", 0)


def test_a_playback_before_any_result_makes_no_group() -> None:
    tracker = GroupTracker("s-1")
    tracker.tts_started(START_MS - 10)
    tracker.tts_ended(START_MS)
    assert tracker.result("first", "", START_MS + 1) == ("group_s-1_1000001", 0)


def test_a_clock_set_back_does_not_hold_the_group_until_it_caught_up() -> None:
    tracker = tracker_with_part()
    assert tracker.result("set back", "", START_MS - 500_000) == ("group_s-1_1000000", 1)
    assert tracker.result("later", "", START_MS - 497_000) == ("group_s-1_503000", 0)


@pytest.mark.parametrize("blank", ["", " ", "\n\t", "\u3000"])
def test_a_result_without_words_is_no_part_and_holds_no_group(blank: str) -> None:
    tracker = tracker_with_part()
    assert tracker.result(blank, "words", START_MS + 1500) is None
    assert tracker.context_text() == "User: hello\nTarget: hallo"
    assert tracker.result("late", "", START_MS + 2001) == ("group_s-1_1002001", 0)


def test_a_fraction_of_a_millisecond_does_not_show_in_the_id() -> None:
    assert GroupTracker("s-1").result("hello", "", 1500.75) == ("group_s-1_1500", 0)


# Its text.


def test_the_context_is_a_line_per_side_and_part_oldest_first() -> None:
    tracker = tracker_with_part()
    tracker.result("no translation", " ", START_MS + 1)
    tracker.result("bye", "ade", START_MS + 2)
    assert tracker.context_text().splitlines() == [
        "User: hello", "Target: hallo", "User: no translation", "User: bye", "Target: ade",
    ]  # fmt: skip


def test_there_is_no_context_before_the_first_result() -> None:
    assert GroupTracker("s-1").context_text() == ""


def test_a_ninth_part_pushes_the_first_out_while_parts_count_on() -> None:
    tracker = GroupTracker("s-1")
    indices = [tracker.result(f"part {index}", "", START_MS) for index in range(10)]
    assert indices[-1] == ("group_s-1_1000000", 9)
    kept = [f"User: part {index}" for index in range(2, 10)]
    assert tracker.context_text().splitlines() == kept


def test_oldest_parts_go_first_when_the_text_is_too_long() -> None:
    tracker = GroupTracker("s-1")
    for letter in "abc":
        tracker.result(letter * 390, "", START_MS)
    assert tracker.context_text() == f"User: {'b' * 390}\nUser: {'c' * 390}"


def test_text_of_exactly_the_bound_is_kept_whole() -> None:
    tracker = GroupTracker("s-1")
    tracker.result("a" * 394, "", START_MS)
    tracker.result("b" * 393, "", START_MS)
    assert len(tracker.context_text()) == 800
    tracker.result("c", "", START_MS)
    assert tracker.context_text().splitlines() == ["User: " + "b" * 393, "User: c"]


def test_of_one_part_that_is_too_long_the_last_words_of_both_sides_stay() -> None:
    tracker = GroupTracker("s-1")
    tracker.result("u" * 70_000 + "!", "t" * 70_000 + "?", START_MS)
    user, target = tracker.context_text().splitlines()
    assert (user[:7], user[-2:]) == ("User: u", "u!")
    assert (target[:9], target[-2:]) == ("Target: t", "t?")
    assert len(tracker.context_text()) == 800


@pytest.mark.parametrize(("asr_chars", "translated_chars"), [(1000, 10), (10, 1000)])
def test_a_short_side_leaves_its_room_to_the_long_one(
    asr_chars: int, translated_chars: int
) -> None:
    tracker = GroupTracker("s-1")
    tracker.result("x" * asr_chars, "y" * translated_chars, START_MS)
    text = tracker.context_text()
    assert len(text) == 800
    assert sorted((text.count("x"), text.count("y"))) == [10, 775]


def test_line_ends_in_a_text_cannot_pass_for_another_part() -> None:
    tracker = GroupTracker("s-1")
    tracker.result("one\nTarget: fake\r\n", "two\u2028User: fake", START_MS)
    assert tracker.context_text().splitlines() == [
        "User: one Target: fake",
        "Target: two User: fake",
    ]


@pytest.mark.parametrize(
    "character",
    ["é", "字", "😀", "e\u0301", "नि", "👩\u200d👩\u200d👧", "❤\ufe0f"],
    ids=["accent", "ideograph", "emoji", "combining", "vowel sign", "joined", "variation"],
)
@pytest.mark.parametrize("ahead", ["", "x", "xy", "xyz"])
def test_cutting_never_splits_a_character(character: str, ahead: str) -> None:
    tracker = GroupTracker("s-1")
    tracker.result("-" + character * 800 + ahead, "", START_MS)
    kept = tracker.context_text().removeprefix("User: ").removesuffix(ahead)
    count = kept.count(character)
    assert kept == character * count
    assert len(kept) > 800 - 30 - len(ahead)


def test_a_text_of_marks_alone_still_counts_as_a_part() -> None:
    tracker = GroupTracker("s-1")
    assert tracker.result("\u0301" * 1000, "", START_MS) == ("group_s-1_1000000", 0)
    assert tracker.context_text() == "User: "


@given(
    texts=st.lists(st.tuples(st.text(max_size=1200), st.text(max_size=1200)), max_size=12),
    chars_max=st.integers(15, 900),
    parts_max=st.integers(1, 9),
)
def test_the_context_never_exceeds_its_bounds(
    texts: list[tuple[str, str]], chars_max: int, parts_max: int
) -> None:
    tracker = GroupTracker("s-1", parts_max=parts_max, context_chars_max=chars_max)
    entered = 0
    for asr, translated in texts:
        found = tracker.result(asr, translated, START_MS)
        assert (found is None) is (not asr.strip())
        entered += found is not None
        lines = tracker.context_text().splitlines()
        assert len(tracker.context_text()) == tracker._chars <= chars_max
        assert len(lines) <= 2 * parts_max
        assert all(line.startswith(("User: ", "Target: ")) for line in lines)
        assert len(tracker._parts) == min(len(tracker._parts), entered, parts_max)
