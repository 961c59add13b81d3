"""Rooms: who is in which, who wants which language, who hears whom, when a room goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lingua_scheduler.errors import InvalidInput, InvalidLanguage
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.messages.shared import Participant
from lingua_scheduler.session.rooms import IDLE_MS, RoomProblem, Rooms, Wanted

pytestmark = pytest.mark.unit

CODE = "012345"
OTHER_CODE = "999999"


def room_with(members: dict[str, str | None], members_max: int = 100) -> Rooms:
    """Make a room at time 0; each session with its preferred language, the first creates it."""
    rooms = Rooms(members_max)
    for session, lang in members.items():
        enter = rooms.join if len(rooms) else rooms.create
        enter(CODE, session, preferred_lang=lang, now_ms=0)
    return rooms


def problem_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(RoomProblem) as caught:
        call()
    assert isinstance(caught.value, InvalidInput)
    return caught.value.code


# Coming and going.


def test_who_creates_a_room_is_its_first_member() -> None:
    rooms = Rooms(members_max=2)
    room = rooms.create(CODE, "a", "Ann", "EN_us", now_ms=7)
    assert rooms.room_of("a") is room
    assert rooms.at(CODE) is room
    assert room.participants() == (
        Participant(
            participant_id="a",
            session_id="a",
            display_name="Ann",
            preferred_lang="en-us",
            joined_at=7,
        ),
    )


def test_members_are_listed_in_the_order_they_came() -> None:
    rooms = room_with({"c": "en", "a": None, "b": "ja"})
    assert [member.session_id for member in rooms.at(CODE).participants()] == ["c", "a", "b"]


def test_a_code_is_free_until_a_room_has_it() -> None:
    rooms = Rooms(members_max=2)
    assert rooms.is_free(CODE)
    rooms.create(CODE, "a", now_ms=0)
    assert not rooms.is_free(CODE)
    rooms.leave("a")
    assert rooms.is_free(CODE)


@pytest.mark.parametrize("code", ["", "12345", "1234567", "12345a", "12345\n", "\uff11" * 6])
def test_a_code_is_six_digits(code: str) -> None:
    rooms = Rooms(members_max=2)
    assert not rooms.is_free(code)
    invalid = ErrorCode.INVALID_ROOM_CODE
    assert problem_of(lambda: rooms.create(code, "a", now_ms=0)) is invalid
    assert problem_of(lambda: rooms.join(code, "a", now_ms=0)) is invalid
    assert rooms.room_of("a") is None


def test_a_taken_code_makes_no_second_room() -> None:
    rooms = room_with({"a": "en"})
    taken = problem_of(lambda: rooms.create(CODE, "b", now_ms=0))
    assert taken is ErrorCode.INVALID_ROOM_CODE
    assert list(rooms.at(CODE).members) == ["a"]


def test_a_room_that_is_not_there_cannot_be_joined() -> None:
    rooms = Rooms(members_max=2)
    assert problem_of(lambda: rooms.join(CODE, "a", now_ms=0)) is ErrorCode.ROOM_NOT_FOUND


def test_a_session_is_in_one_room_only() -> None:
    rooms = room_with({"a": "en"})
    rooms.create(OTHER_CODE, "b", now_ms=0)
    already = ErrorCode.ALREADY_IN_ROOM
    assert problem_of(lambda: rooms.create("111111", "a", now_ms=0)) is already
    assert problem_of(lambda: rooms.join(OTHER_CODE, "a", now_ms=0)) is already
    assert problem_of(lambda: rooms.join(CODE, "a", now_ms=0)) is already
    assert rooms.is_free("111111")
    assert list(rooms.at(OTHER_CODE).members) == ["b"]


def test_a_full_room_takes_nobody_until_somebody_leaves() -> None:
    rooms = room_with({"a": "en", "b": "ja"}, members_max=2)
    assert problem_of(lambda: rooms.join(CODE, "c", now_ms=0)) is ErrorCode.ROOM_FULL
    assert rooms.room_of("c") is None
    rooms.leave("a")
    assert list(rooms.join(CODE, "c", now_ms=0).members) == ["b", "c"]


def test_a_language_that_is_none_changes_nothing() -> None:
    rooms = Rooms(members_max=2)
    with pytest.raises(InvalidLanguage):
        rooms.create(CODE, "a", preferred_lang="e", now_ms=0)
    assert rooms.is_free(CODE)
    rooms.create(CODE, "a", preferred_lang="en", now_ms=0)
    with pytest.raises(InvalidLanguage):
        rooms.join(CODE, "b", preferred_lang="!", now_ms=0)
    with pytest.raises(InvalidLanguage):
        rooms.set_language("a", "auto")
    assert rooms.room_of("b") is None
    assert rooms.at(CODE).members["a"].preferred_lang == "en"


def test_leaving_gives_the_room_with_those_who_stay() -> None:
    rooms = room_with({"a": "en", "b": "ja"})
    room = rooms.leave("a")
    assert room is rooms.room_of("b")
    assert room is not None
    assert list(room.members) == ["b"]
    assert rooms.room_of("a") is None


def test_the_last_to_leave_takes_the_room_along() -> None:
    rooms = room_with({"a": "en"})
    room = rooms.leave("a")
    assert room is not None
    assert room.members == {}
    assert len(rooms) == 0
    assert problem_of(lambda: rooms.at(CODE)) is ErrorCode.ROOM_NOT_FOUND


def test_who_is_in_no_room_leaves_none() -> None:
    assert Rooms(members_max=2).leave("a") is None


# Own voices.


def test_everybody_hears_everybody_at_first() -> None:
    rooms = room_with({"a": "en", "b": "ja"})
    assert rooms.hears("a", "b")
    assert rooms.hears("b", "a")


def test_muting_is_one_listeners_choice_of_one_speaker() -> None:
    rooms = room_with({"a": "en", "b": "ja", "c": "fr"})
    room = rooms.set_raw_voice(CODE, "a", "b", receive=False)
    assert not rooms.hears("a", "b")
    assert rooms.hears("b", "a")
    assert rooms.hears("a", "c")
    assert room.participants()[0].raw_voice_preferences == {"b": False}
    rooms.set_raw_voice(CODE, "a", "b", receive=True)
    assert rooms.hears("a", "b")


def test_nobody_hears_across_rooms() -> None:
    rooms = room_with({"a": "en"})
    rooms.create(OTHER_CODE, "b", now_ms=0)
    assert not rooms.hears("a", "b")
    assert not rooms.hears("b", "a")
    assert not rooms.hears("nobody", "a")
    assert not rooms.hears("a", "nobody")


def test_a_choice_of_voices_is_between_members_of_that_room() -> None:
    rooms = room_with({"a": "en"})
    rooms.create(OTHER_CODE, "b", now_ms=0)
    outside = ErrorCode.NOT_IN_ROOM
    assert problem_of(lambda: rooms.set_raw_voice(CODE, "b", "a", receive=False)) is outside
    assert problem_of(lambda: rooms.set_raw_voice(CODE, "a", "b", receive=False)) is outside
    missing = problem_of(lambda: rooms.set_raw_voice("000000", "a", "b", receive=False))
    assert missing is ErrorCode.ROOM_NOT_FOUND
    assert rooms.at(CODE).members["a"].raw_voice == {}


def test_nothing_is_kept_about_who_left() -> None:
    rooms = room_with({"a": "en", "b": "ja"})
    rooms.set_raw_voice(CODE, "a", "b", receive=False)
    rooms.leave("b")
    assert rooms.at(CODE).members["a"].raw_voice == {}


# Silence.


def test_a_room_goes_after_thirty_minutes_without_speech() -> None:
    rooms = room_with({"a": "en", "b": "ja"})
    assert IDLE_MS == 30 * 60 * 1000
    assert rooms.expired(IDLE_MS - 1) == []
    (gone,) = rooms.expired(IDLE_MS)
    assert list(gone.members) == ["a", "b"]
    assert rooms.room_of("a") is None
    assert rooms.is_free(CODE)
    assert rooms.expired(IDLE_MS) == []


def test_speech_keeps_a_room_and_joining_does_not() -> None:
    rooms = room_with({"a": "en"})
    rooms.create(OTHER_CODE, "b", now_ms=0)
    rooms.spoke("a", 1000)
    rooms.spoke("nobody", 1000)
    rooms.join(OTHER_CODE, "c", now_ms=1000)
    assert [room.code for room in rooms.expired(IDLE_MS)] == [OTHER_CODE]
    assert [room.code for room in rooms.expired(IDLE_MS + 1000)] == [CODE]


# What the others want.


def test_each_language_of_the_others_is_one_lane_with_its_listeners() -> None:
    rooms = room_with({"a": "zh", "b": "en", "c": "en", "d": "ja"})
    assert rooms.wanted_by_others("a", "zh") == Wanted({"en": ("b", "c"), "ja": ("d",)}, (), ())


def test_lanes_come_by_listeners_and_then_by_language() -> None:
    rooms = room_with({"a": "zh", "b": "ja", "c": "fr", "d": "fr", "e": "de", "f": "ko"})
    assert list(rooms.wanted_by_others("a", "zh").lanes) == ["fr", "de", "ja", "ko"]


def test_the_speaker_gets_no_copy_even_with_another_preferred_language() -> None:
    rooms = room_with({"a": "fr", "b": "en"})
    assert rooms.wanted_by_others("a", "zh") == Wanted({"en": ("b",)}, (), ())


@pytest.mark.parametrize(("spoken", "wanted"), [("en", "en-US"), ("en-us", "en"), ("en", "en")])
def test_the_same_language_needs_no_node_whatever_its_region(spoken: str, wanted: str) -> None:
    rooms = room_with({"a": spoken, "b": wanted})
    assert rooms.wanted_by_others("a", spoken) == Wanted({}, ("b",), ())


def test_a_language_that_only_begins_alike_is_another_one() -> None:
    rooms = room_with({"a": "fi", "b": "fil"})
    assert rooms.wanted_by_others("a", "fi").lanes == {"fil": ("b",)}


def test_regions_listened_to_are_lanes_of_their_own() -> None:
    rooms = room_with({"a": "zh", "b": "en-us", "c": "en-gb"})
    assert rooms.wanted_by_others("a", "zh").lanes == {"en-gb": ("c",), "en-us": ("b",)}


def test_who_named_no_language_is_silent() -> None:
    rooms = room_with({"a": "zh", "b": None, "c": ""})
    assert rooms.wanted_by_others("a", "zh") == Wanted({}, (), ("b", "c"))


def test_a_speaker_whose_language_is_found_out_later_is_translated_for_all() -> None:
    rooms = room_with({"a": "zh", "b": "zh", "c": "en"})
    assert rooms.wanted_by_others("a", "auto").lanes == {"en": ("c",), "zh": ("b",)}


def test_a_changed_language_counts_from_the_next_utterance() -> None:
    rooms = room_with({"a": "zh", "b": "en"})
    assert rooms.set_language("b", "JA") is rooms.at(CODE)
    assert rooms.wanted_by_others("a", "zh").lanes == {"ja": ("b",)}
    rooms.set_language("b", None)
    assert rooms.wanted_by_others("a", "zh").silent == ("b",)


def test_outside_a_room_nobody_wants_anything() -> None:
    rooms = Rooms(members_max=2)
    assert rooms.wanted_by_others("a", "zh") == Wanted({}, (), ())
    assert rooms.set_language("a", "en") is None


# Any sequence.

SESSIONS = st.sampled_from(["a", "b", "c", "d"])
CODES = st.sampled_from([CODE, OTHER_CODE])
LANGS = st.sampled_from([None, "en", "en-us", "ja"])
MEMBERS_MAX = 3


class AnySequence(RuleBasedStateMachine):
    """Whatever is asked in whatever order, both indices agree and no bound is broken."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms = Rooms(MEMBERS_MAX, idle_ms=10)
        self.now_ms = 0

    @rule(code=CODES, session=SESSIONS, lang=LANGS, is_new=st.booleans())
    def enter(self, code: str, session: str, lang: str | None, is_new: bool) -> None:
        was_in = self.rooms.room_of(session)
        call = self.rooms.create if is_new else self.rooms.join
        try:
            room = call(code, session, preferred_lang=lang, now_ms=self.now_ms)
        except RoomProblem:
            assert self.rooms.room_of(session) is was_in
        else:
            assert was_in is None
            assert self.rooms.room_of(session) is room

    @rule(session=SESSIONS)
    def leave(self, session: str) -> None:
        assert self.rooms.leave(session) is None or self.rooms.room_of(session) is None

    @rule(code=CODES, listener=SESSIONS, speaker=SESSIONS, receive=st.booleans())
    def choose_voice(self, code: str, listener: str, speaker: str, receive: bool) -> None:
        try:
            self.rooms.set_raw_voice(code, listener, speaker, receive)
        except RoomProblem:
            assert not self.together(code, listener, speaker)
        else:
            assert self.rooms.hears(listener, speaker) is receive

    @rule(session=SESSIONS, passed_ms=st.integers(0, 6))
    def speak(self, session: str, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.rooms.spoke(session, self.now_ms)

    @rule()
    def expire(self) -> None:
        for room in self.rooms.expired(self.now_ms):
            assert room.spoke_at_ms <= self.now_ms - 10

    def together(self, code: str, *sessions: str) -> bool:
        rooms = [self.rooms.room_of(session) for session in sessions]
        return all(room is not None and room.code == code for room in rooms)

    @invariant()
    def members_and_rooms_agree(self) -> None:
        placed = []
        for code, room in self.rooms._rooms.items():
            assert room.code == code
            assert 0 < len(room.members) <= MEMBERS_MAX
            for session, member in room.members.items():
                assert self.rooms.room_of(session) is room
                assert set(member.raw_voice) <= set(room.members)
                placed.append(session)
        assert sorted(placed) == sorted(self.rooms._room_of)

    @invariant()
    def every_other_member_is_counted_once(self) -> None:
        for session, room in self.rooms._room_of.items():
            wanted = self.rooms.wanted_by_others(session, "en")
            listed = [*wanted.same_language, *wanted.silent]
            listed += [listener for lane in wanted.lanes.values() for listener in lane]
            assert sorted([*listed, session]) == sorted(room.members)


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
