"""The hall of one instance: asks in order, answers as ever, and who hears what was said."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import servers
from lingua_scheduler.live.hall import Audience
from lingua_scheduler.live.profile import Target
from lingua_scheduler.live.room_desk import WAITING_MAX as ASKS_MAX
from lingua_scheduler.messages.from_client import RoomRawVoicePreference, WebrtcOffer
from lingua_scheduler.messages.to_client import (
    ErrorMessage,
    RoomCreateAck,
    RoomError,
    RoomExpired,
    RoomMembers,
    WebrtcOfferRelay,
)
from lingua_scheduler.state.room_store import RoomPolicy, SessionNote
from live.room_stage import (
    CALM,
    House,
    Person,
    errors_of,
    houses,
    session,
    until,
)

pytestmark = pytest.mark.store


@pytest.fixture(scope="module", name="server")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path_factory.mktemp("hall")) as started:
        yield started


def play(
    server: servers.Server,
    scenario: Callable[[House], Awaitable[None]],
    policy: RoomPolicy = CALM,
    **options: int,
) -> None:
    async def whole() -> None:
        async with houses(server, "one", policy=policy, **options) as (house,):
            await scenario(house)

    asyncio.run(whole())


async def gathered(house: House, **langs: str | None) -> tuple[str, list[Person]]:
    """Put people into one room; the first one makes it."""
    people = [await house.person(name, lang or "en") for name, lang in langs.items()]
    code = await house.room_of(people[0], next(iter(langs.values())))
    for person in people[1:]:
        await house.enter(person, code, langs[person.id])
    await until(lambda: all(p.sees == list(langs) for p in people), "all see all")
    for person in people:
        person.take()
    return code, people


# Asks


def test_asks_of_one_session_are_answered_in_the_order_they_came(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        ann = await house.person("ann")
        house.create(ann, "en", "Ann")
        house.create(ann)
        house.hall.set_language(session(ann), "ja")
        house.hall.leave(session(ann), "000000")
        await until(lambda: len(ann.told) == 5, "all is answered")
        ack, members, error, changed, not_in = ann.told
        assert isinstance(ack, RoomCreateAck)
        assert ack.room_id == ack.room_code
        assert isinstance(members, RoomMembers)
        assert (members.members[0].display_name, members.members[0].preferred_lang) == ("Ann", "en")
        assert isinstance(changed, RoomMembers)
        assert changed.members[0].preferred_lang == "ja"
        assert isinstance(error, RoomError)
        assert isinstance(not_in, RoomError)
        assert errors_of(ann) == ["ALREADY_IN_ROOM", "NOT_IN_ROOM"]
        assert (error.room_code, not_in.room_code) == (ack.room_code, None)

    play(server, scenario)


def test_too_many_asks_at_once_are_refused_but_never_a_farewell(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        ann = await house.person("ann")
        await house.room_of(ann)
        ann.take()
        for _ in range(ASKS_MAX + 3):
            house.hall.set_language(session(ann), "ja")
        assert errors_of(ann) == ["RATE_LIMITED"] * 3
        ann.closing = True
        house.hall.leave(session(ann))
        await until(lambda: len(house.hall.rooms) == 0, "the room is left")
        assert len(ann.of(RoomMembers)) == ASKS_MAX

    play(server, scenario)


def test_a_wrong_code_is_told_before_anything_else(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        ann, bob = await house.person("ann"), await house.person("bob")
        code, _ = await house.room_of(ann), await house.room_of(bob)
        ann.take()
        wrong = "000000" if code != "000000" else "000001"
        for asked in (wrong, "12ab", code):
            house.join(ann, asked)
        house.hall.leave(session(bob), bob.of(RoomCreateAck)[0].room_code)
        house.join(bob, wrong, "no language")
        house.join(bob, code, "no language")
        mute = RoomRawVoicePreference(
            room_code=wrong, target_session_id="ann", receive_raw_voice=False
        )
        house.hall.prefer_raw_voice(session(bob), mute)
        await until(lambda: len(errors_of(bob)) == 3, "all is answered")
        assert errors_of(ann) == ["ROOM_NOT_FOUND", "INVALID_ROOM_CODE", "ALREADY_IN_ROOM"]
        assert errors_of(bob) == ["ROOM_NOT_FOUND", "INVALID_MESSAGE", "ROOM_NOT_FOUND"]

    play(server, scenario)


def test_another_tenants_room_is_none_at_all(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        ann, eve = await house.person("ann", tenant="t1"), await house.person("eve", tenant="t2")
        code = await house.room_of(ann)
        house.join(eve, code)
        mute = RoomRawVoicePreference(
            room_code=code, target_session_id="ann", receive_raw_voice=False
        )
        house.hall.prefer_raw_voice(session(eve), mute)
        await until(lambda: errors_of(eve) == ["ROOM_NOT_FOUND"] * 2, "both are refused")
        assert ann.sees == ["ann"]

    play(server, scenario)


def test_codes_cannot_be_guessed_in_any_way(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        eve = await house.person("eve")
        for number in range(130):
            code = f"{number:06d}"
            house.join(eve, code)
            mute = RoomRawVoicePreference(
                room_code=code, target_session_id="x", receive_raw_voice=False
            )
            house.hall.prefer_raw_voice(session(eve), mute)
            await until(lambda n=number: len(eve.told) == 2 * n + 2, "both are answered")
        assert set(errors_of(eve)) == {"ROOM_NOT_FOUND", "RATE_LIMITED"}

    play(server, scenario)


def test_a_store_that_is_away_is_told_with_when_to_ask_again(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        code, (ann,) = await gathered(house, ann="en")
        bob = await house.person("bob")
        server.pause()
        try:
            house.join(bob, code)
            house.hall.leave(session(ann), code)
            await until(lambda: bob.told and ann.told, "both are answered")
        finally:
            server.resume()
        for person in (ann, bob):
            (error,) = person.take()
            assert isinstance(error, ErrorMessage)
            assert error.code == "SCHEDULER_DEPENDENCY_DOWN"
            assert error.retry_after_ms
        await house.found()
        # Both asks may have run after all: asking again makes it so, once.
        await house.enter(bob, code)
        await house.hall.refresh()
        room = (await house.store.read(code)).room
        assert room is not None
        assert sorted(member.session for member in room.members) == ["ann", "bob"]
        house.hall.leave(session(ann), code)
        await until(lambda: bob.sees == ["bob"], "ann left")

    play(server, scenario, call_timeout_ms=150)


@pytest.mark.parametrize("asks_again", [True, False])
def test_who_may_have_entered_unseen_is_not_left_in(
    server: servers.Server, asks_again: bool
) -> None:
    async def scenario(house: House) -> None:
        code, (ann,) = await gathered(house, ann="en")
        bob = await house.person("bob")
        house.lossy.loses.add("room_enter")
        house.join(bob, code)
        await until(lambda: bob.told, "bob is answered")
        assert errors_of(bob) == ["SCHEDULER_DEPENDENCY_DOWN"]
        room = (await house.store.read(code)).room
        assert room is not None
        assert len(room.members) == 2
        if asks_again:
            house.create(bob)
            await until(lambda: bob.sees == ["bob"], "bob is elsewhere")
        else:
            await house.hall.refresh()
        room = (await house.store.read(code)).room
        assert room is not None
        assert [member.session for member in room.members] == ["ann"]
        assert ann.sees == ["ann"]

    play(server, scenario)


def test_a_session_that_ends_leaves_when_the_store_is_back(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        code, (ann, bob) = await gathered(house, ann="en", bob="ja")
        server.pause()
        try:
            ann.closing = True
            house.hall.leave(session(ann))
            del house.sessions["ann"]
            await asyncio.sleep(0.4)
        finally:
            server.resume()
        await until(lambda: bob.sees == ["bob"], "ann left")
        assert ann.told == []
        assert house.hall.rooms.ours(code) == ("bob",)

    play(server, scenario, call_timeout_ms=150)


def test_a_session_is_noted_in_its_room_and_when_it_left(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        code, (ann,) = await gathered(house, ann="en")
        assert await house.store.noted(ann.home, "ann") == SessionNote("open", code)
        house.hall.leave(session(ann), code)
        house.join(ann, code)
        await until(lambda: errors_of(ann) == ["ROOM_NOT_FOUND"], "the room is gone")
        assert await house.store.noted(ann.home, "ann") == SessionNote("open", "")

    play(server, scenario)


# Who hears what


def test_who_hears_follows_from_what_is_known_here(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        _, (ann, *_) = await gathered(house, ann="zh", bob="en", cid="en", dan="zh-TW", eli=None)
        alone = await house.person("alone", "zh")
        bob, cid, dan = (
            f"{house.cells.home_of(name).name}/{name}" for name in ("bob", "cid", "dan")
        )
        lane = Target("en", "en", f"{bob} {cid}")
        assert await house.speak(ann) == Audience((lane,), dan, is_room=True)
        assert await house.speak(alone) == Audience(())

    play(server, scenario)


def test_speech_is_noted_in_the_store_now_and_then(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        code, (ann, _) = await gathered(house, ann="zh", bob="en")

        def spoke_at() -> int:
            room = house.hall.rooms.at(code)
            return room.spoke_at_ms if room is not None else 0

        before = spoke_at()
        for _ in range(5):
            await house.speak(ann)
        await until(lambda: spoke_at() > before, "the room is kept")
        first = spoke_at()
        await house.speak(ann)
        await house.hall.refresh()
        assert spoke_at() == first

    play(server, scenario)


# Own voices


def test_signalling_waits_for_the_asks_before_it(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        code, (ann,) = await gathered(house, ann="en")
        bob = await house.person("bob")
        house.join(bob, code)
        house.hall.relay(session(bob), WebrtcOffer(room_code=code, to="ann", sdp="v=0"))
        house.hall.relay(session(bob), WebrtcOffer(room_code=code, to="eve", sdp="v=0"))
        await until(lambda: errors_of(bob), "both are handled")
        assert ann.of(WebrtcOfferRelay) == [WebrtcOfferRelay(room_code=code, to="bob", sdp="v=0")]
        assert errors_of(bob) == ["ROOM_NOT_FOUND"]

    play(server, scenario)


# The clock


def test_a_room_nobody_spoke_in_is_ended_by_its_timer(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        code, people = await gathered(house, ann="en", bob="ja")
        await asyncio.sleep(0.3)
        await house.hall.sweep(code)
        for person in people:
            assert person.told == [
                RoomExpired(room_code=code, message="nobody spoke for a long time")
            ]
        assert len(house.hall.rooms) == 0
        await house.hall.sweep(code)
        await house.room_of(people[0])

    play(server, scenario, RoomPolicy(idle_ms=250))


def test_a_client_that_comes_back_is_told_who_is_there(server: servers.Server) -> None:
    async def scenario(house: House) -> None:
        _, (ann, bob) = await gathered(house, ann="en", bob="ja")
        house.hall.detached(session(bob))
        house.hall.returned(session(bob))
        assert bob.sees == ["ann", "bob"]
        assert ann.told == []
        alone = await house.person("alone")
        house.hall.returned(session(alone))
        assert alone.told == []

    play(server, scenario)
