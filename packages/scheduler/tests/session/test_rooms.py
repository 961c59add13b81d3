"""Rooms known to an instance: languages, original voices, and local sessions."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lingua_scheduler.session.rooms import (
    LocalRooms,
    Room,
    RoomMember,
    RoomProblem,
    Wanted,
    canonical,
    check_code,
)
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import InvalidInput, InvalidLanguage
from lingua_wire.shared import Participant

pytestmark = pytest.mark.unit

CODE = "012345"
OTHER_CODE = "999999"


def room_with(members: dict[str, str | None], code: str = CODE, version: int = 1) -> Room:
    """Return a room; each session with its preferred language."""
    people = {
        name: RoomMember(name, None, lang, 7, instance=f"i-{name}", home="c0")
        for name, lang in members.items()
    }
    return Room(code, "", version, 0, 0, people)


# What members see.


def test_members_are_listed_in_the_order_they_came_as_others_see_them() -> None:
    room = room_with({"c": "en", "a": None})
    room.members["c"].display_name = "Ann"
    room.members["c"].raw_voice["a"] = False
    assert room.participants() == (
        Participant(
            participant_id="c",
            session_id="c",
            display_name="Ann",
            preferred_lang="en",
            raw_voice_preferences={"a": False},
            joined_at=7,
        ),
        Participant(participant_id="a", session_id="a", joined_at=7),
    )


def test_a_room_knows_where_its_members_are() -> None:
    room = room_with({"a": "en", "b": "ja"})
    room.members["b"].instance = "i-a"
    assert room.instances() == {"i-a"}


@pytest.mark.parametrize("code", ["", "12345", "1234567", "12345a", "12345\n", "\uff11" * 6])
def test_a_code_is_six_digits(code: str) -> None:
    with pytest.raises(RoomProblem) as caught:
        check_code(code)
    assert caught.value.code is ErrorCode.INVALID_ROOM_CODE
    assert isinstance(caught.value, InvalidInput)
    assert check_code(CODE) == CODE


def test_a_language_has_one_form_and_may_be_none_at_all() -> None:
    assert canonical("EN_us") == "en-us"
    assert canonical(None) is None
    assert canonical("") is None
    for wrong in ("e", "!", "auto"):
        with pytest.raises(InvalidLanguage):
            canonical(wrong)


# Own voices.


def test_everybody_hears_everybody_at_first() -> None:
    room = room_with({"a": "en", "b": "ja"})
    assert room.hears("a", "b")
    assert room.hears("b", "a")


def test_muting_is_one_listeners_choice_of_one_speaker() -> None:
    room = room_with({"a": "en", "b": "ja", "c": "fr"})
    room.members["a"].raw_voice["b"] = False
    assert not room.hears("a", "b")
    assert room.hears("b", "a")
    assert room.hears("a", "c")
    room.members["a"].raw_voice["b"] = True
    assert room.hears("a", "b")


def test_nobody_hears_who_is_not_there() -> None:
    room = room_with({"a": "en"})
    assert not room.hears("a", "nobody")
    assert not room.hears("nobody", "a")


# What the others want.


def test_each_language_of_the_others_is_one_lane_with_its_listeners() -> None:
    room = room_with({"a": "zh", "b": "en", "c": "en", "d": "ja"})
    assert room.wanted_by_others("a", "zh") == Wanted({"en": ("b", "c"), "ja": ("d",)}, (), ())


def test_lanes_come_by_listeners_and_then_by_language() -> None:
    room = room_with({"a": "zh", "b": "ja", "c": "fr", "d": "fr", "e": "de", "f": "ko"})
    assert list(room.wanted_by_others("a", "zh").lanes) == ["fr", "de", "ja", "ko"]


def test_the_speaker_gets_no_copy_even_with_another_preferred_language() -> None:
    room = room_with({"a": "fr", "b": "en"})
    assert room.wanted_by_others("a", "zh") == Wanted({"en": ("b",)}, (), ())


@pytest.mark.parametrize(("spoken", "wanted"), [("en", "en-us"), ("en-us", "en"), ("en", "en")])
def test_the_same_language_needs_no_node_whatever_its_region(spoken: str, wanted: str) -> None:
    room = room_with({"a": spoken, "b": wanted})
    assert room.wanted_by_others("a", spoken) == Wanted({}, ("b",), ())


def test_a_language_that_only_begins_alike_is_another_one() -> None:
    room = room_with({"a": "fi", "b": "fil"})
    assert room.wanted_by_others("a", "fi").lanes == {"fil": ("b",)}


def test_regions_listened_to_are_lanes_of_their_own() -> None:
    room = room_with({"a": "zh", "b": "en-us", "c": "en-gb"})
    assert room.wanted_by_others("a", "zh").lanes == {"en-gb": ("c",), "en-us": ("b",)}


def test_who_named_no_language_is_silent() -> None:
    room = room_with({"a": "zh", "b": None})
    assert room.wanted_by_others("a", "zh") == Wanted({}, (), ("b",))


def test_a_speaker_whose_language_is_found_out_later_is_translated_for_all() -> None:
    room = room_with({"a": "zh", "b": "zh", "c": "en"})
    assert room.wanted_by_others("a", "auto").lanes == {"en": ("c",), "zh": ("b",)}


# What an instance knows.


def test_a_room_is_known_while_one_of_ours_is_in_it() -> None:
    rooms, room = LocalRooms(), room_with({"a": "en", "b": "ja", "elsewhere": "fr"})
    assert rooms.room_of("a") is None
    rooms.entered("a", room)
    rooms.entered("b", room)
    assert rooms.room_of("a") is rooms.at(CODE) is room
    assert rooms.room_of("elsewhere") is None
    assert rooms.ours(CODE) == ("a", "b")
    rooms.left("a")
    assert (rooms.room_of("a"), rooms.ours(CODE), CODE in rooms) == (None, ("b",), True)
    rooms.left("b")
    assert (len(rooms), rooms.ours(CODE), CODE in rooms, rooms.at(CODE)) == (0, (), False, None)
    rooms.left("b")


def test_only_a_version_that_is_not_older_is_taken() -> None:
    rooms = LocalRooms()
    rooms.entered("a", room_with({"a": "en"}, version=5))
    older, same, newer = (room_with({"a": "en"}, version=number) for number in (4, 5, 6))
    assert not rooms.update(older)
    assert rooms.update(same)
    assert rooms.update(newer)
    assert rooms.room_of("a") is newer
    assert not rooms.update(room_with({"b": "en"}, OTHER_CODE, 9))
    assert OTHER_CODE not in rooms


def test_the_end_of_a_room_frees_all_of_ours() -> None:
    rooms, room = LocalRooms(), room_with({"a": "en", "b": "ja"})
    rooms.entered("a", room)
    rooms.entered("b", room)
    assert rooms.end(CODE) == ("a", "b")
    assert rooms.room_of("a") is rooms.room_of("b") is None
    assert rooms.end(CODE) == ()


# Any sequence.

SESSIONS = st.sampled_from(["a", "b", "c", "d"])
CODES = st.sampled_from([CODE, OTHER_CODE])
LANGS = st.lists(st.sampled_from([None, "en", "en-us", "ja"]), min_size=4, max_size=4)


class AnySequence(RuleBasedStateMachine):
    """Whatever is told in whatever order, all indices agree."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms = LocalRooms()
        self.version = 0

    def newest(self, code: str, langs: list[str | None]) -> Room:
        self.version += 1
        return room_with(dict(zip("abcd", langs, strict=True)), code, self.version)

    @rule(code=CODES, session=SESSIONS, langs=LANGS)
    def enter(self, code: str, session: str, langs: list[str | None]) -> None:
        room = self.newest(code, langs)
        self.rooms.entered(session, room)
        assert self.rooms.update(room)
        assert self.rooms.room_of(session) is room

    @rule(session=SESSIONS)
    def leave(self, session: str) -> None:
        self.rooms.left(session)
        assert self.rooms.room_of(session) is None

    @rule(code=CODES, langs=LANGS)
    def hear_of_it(self, code: str, langs: list[str | None]) -> None:
        assert self.rooms.update(self.newest(code, langs)) is (code in self.rooms)

    @rule(code=CODES)
    def end(self, code: str) -> None:
        self.rooms.end(code)
        assert code not in self.rooms

    @invariant()
    def all_indices_agree(self) -> None:
        placed: list[str] = []
        for code in self.rooms.codes():
            ours = self.rooms.ours(code)
            assert ours
            for session in ours:
                assert self.rooms.room_of(session) is self.rooms.at(code)
            placed += ours
        assert sorted(placed) == sorted(self.rooms._code_of)
        assert len(self.rooms) == len(self.rooms._ours)

    @invariant()
    def every_other_member_is_counted_once(self) -> None:
        for session in self.rooms._code_of:
            room = self.rooms.room_of(session)
            assert room is not None
            wanted = room.wanted_by_others(session, "en")
            listed = [*wanted.same_language, *wanted.silent]
            listed += [listener for lane in wanted.lanes.values() for listener in lane]
            assert sorted([*listed, session]) == sorted(room.members)


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=30)
