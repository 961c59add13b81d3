"""Commands of members on one instance: answered in order, refused with the right codes."""

from __future__ import annotations

import asyncio

import pytest

import servers
from lingua_scheduler.rooms.command_queue import WAITING_MAX
from lingua_scheduler.state.room_scripts import SessionNote
from lingua_wire.from_client import RoomRawVoicePreference, WebrtcOffer
from lingua_wire.to_client import (
    ErrorMessage,
    RoomCreateAck,
    RoomError,
    RoomMembers,
    WebrtcOfferRelay,
)
from rooms.room_stage import RoomInstance, errors_of, gathered, play, until

pytestmark = pytest.mark.store


def test_commands_of_one_session_are_answered_in_their_order(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        ann = await instance.member("ann")
        instance.create(ann, "en", "Ann")
        instance.create(ann)
        instance.service.set_language(ann, "ja")
        instance.service.leave(ann, "000000")
        await until(lambda: len(ann.sent) == 5, "all is answered")
        ack, members, error, changed, not_in = ann.sent
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


def test_too_many_commands_at_once_are_refused_but_never_the_last_leave(
    server: servers.Server,
) -> None:
    async def scenario(instance: RoomInstance) -> None:
        ann = await instance.member("ann")
        await instance.room_of(ann)
        ann.take()
        for _ in range(WAITING_MAX + 3):
            instance.service.set_language(ann, "ja")
        assert errors_of(ann) == ["RATE_LIMITED"] * 3
        ann.record.is_closing = True
        instance.service.end(ann)
        await until(lambda: len(instance.cache.rooms) == 0, "the room is left")
        assert len(ann.of(RoomMembers)) == WAITING_MAX

    play(server, scenario)


def test_a_wrong_code_is_reported_before_anything_else(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        ann, bob = await instance.member("ann"), await instance.member("bob")
        code, _ = await instance.room_of(ann), await instance.room_of(bob)
        ann.take()
        wrong = "000000" if code != "000000" else "000001"
        for tried in (wrong, "12ab", code):
            instance.join(ann, tried)
        instance.service.leave(bob, bob.of(RoomCreateAck)[0].room_code)
        instance.join(bob, wrong, "no language")
        instance.join(bob, code, "no language")
        mute = RoomRawVoicePreference(
            room_code=wrong, target_session_id="ann", receive_raw_voice=False
        )
        instance.service.prefer_raw_voice(bob, mute)
        await until(lambda: len(errors_of(bob)) == 3, "all is answered")
        assert errors_of(ann) == ["ROOM_NOT_FOUND", "INVALID_ROOM_CODE", "ALREADY_IN_ROOM"]
        assert errors_of(bob) == ["ROOM_NOT_FOUND", "INVALID_MESSAGE", "ROOM_NOT_FOUND"]

    play(server, scenario)


def test_a_room_of_another_tenant_is_not_found(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        ann = await instance.member("ann", tenant="t1")
        eve = await instance.member("eve", tenant="t2")
        code = await instance.room_of(ann)
        instance.join(eve, code)
        mute = RoomRawVoicePreference(
            room_code=code, target_session_id="ann", receive_raw_voice=False
        )
        instance.service.prefer_raw_voice(eve, mute)
        await until(lambda: errors_of(eve) == ["ROOM_NOT_FOUND"] * 2, "both are refused")
        assert ann.sees == ["ann"]

    play(server, scenario)


def test_codes_cannot_be_guessed_in_any_way(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        eve = await instance.member("eve")
        for number in range(130):
            code = f"{number:06d}"
            instance.join(eve, code)
            mute = RoomRawVoicePreference(
                room_code=code, target_session_id="x", receive_raw_voice=False
            )
            instance.service.prefer_raw_voice(eve, mute)
            await until(lambda n=number: len(eve.sent) == 2 * n + 2, "both are answered")
        assert set(errors_of(eve)) == {"ROOM_NOT_FOUND", "RATE_LIMITED"}

    play(server, scenario)


def test_an_unavailable_store_is_reported_with_a_time_to_retry(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann,) = await gathered(instance, ann="en")
        bob = await instance.member("bob")
        server.pause()
        try:
            instance.join(bob, code)
            instance.service.leave(ann, code)
            await until(lambda: bob.sent and ann.sent, "both are answered")
        finally:
            server.resume()
        for member in (ann, bob):
            (error,) = member.take()
            assert isinstance(error, ErrorMessage)
            assert error.code == "SCHEDULER_DEPENDENCY_DOWN"
            assert error.retry_after_ms
        await instance.until_store_answers()
        # Both commands may have run after all: a repetition makes sure, without a second effect.
        await instance.enter(bob, code)
        await instance.refresh()
        room = (await instance.store.read(code)).room
        assert room is not None
        assert sorted(member.session for member in room.members) == ["ann", "bob"]
        instance.service.leave(ann, code)
        await until(lambda: bob.sees == ["bob"], "ann left")

    play(server, scenario, call_timeout_ms=1000)


@pytest.mark.parametrize("asks_again", [True, False])
def test_a_session_whose_entry_was_not_answered_does_not_stay_in_the_room(
    server: servers.Server, asks_again: bool
) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann,) = await gathered(instance, ann="en")
        bob = await instance.member("bob")
        instance.lossy.loses.add("room_enter")
        instance.join(bob, code)
        await until(lambda: bob.sent, "bob is answered")
        assert errors_of(bob) == ["SCHEDULER_DEPENDENCY_DOWN"]
        room = (await instance.store.read(code)).room
        assert room is not None
        assert len(room.members) == 2
        if asks_again:
            instance.create(bob)
            await until(lambda: bob.sees == ["bob"], "bob is elsewhere")
        else:
            await instance.refresh()
        room = (await instance.store.read(code)).room
        assert room is not None
        assert [member.session for member in room.members] == ["ann"]
        assert ann.sees == ["ann"]

    play(server, scenario)


def test_a_session_that_ends_leaves_when_the_store_is_back(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann, bob) = await gathered(instance, ann="en", bob="ja")
        server.pause()
        try:
            ann.record.is_closing = True
            instance.service.end(ann)
            del instance.sessions["ann"]
            await asyncio.sleep(1.2)
        finally:
            server.resume()
        await until(lambda: bob.sees == ["bob"], "ann left")
        assert ann.sent == []
        assert instance.cache.rooms.ours(code) == ("bob",)

    play(server, scenario, call_timeout_ms=1000)


def test_a_session_is_noted_in_its_room_and_when_it_left(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann,) = await gathered(instance, ann="en")
        assert await instance.store.noted(ann.home, "ann") == SessionNote("open", code)
        instance.service.leave(ann, code)
        instance.join(ann, code)
        await until(lambda: errors_of(ann) == ["ROOM_NOT_FOUND"], "the room has ended")
        assert await instance.store.noted(ann.home, "ann") == SessionNote("open", "")

    play(server, scenario)


# Signalling


def test_signalling_waits_for_the_commands_before_it(server: servers.Server) -> None:
    async def scenario(instance: RoomInstance) -> None:
        code, (ann,) = await gathered(instance, ann="en")
        bob = await instance.member("bob")
        instance.join(bob, code)
        instance.service.relay(bob, WebrtcOffer(room_code=code, to="ann", sdp="v=0"))
        instance.service.relay(bob, WebrtcOffer(room_code=code, to="eve", sdp="v=0"))
        await until(lambda: errors_of(bob), "both are handled")
        assert ann.of(WebrtcOfferRelay) == [WebrtcOfferRelay(room_code=code, to="bob", sdp="v=0")]
        assert errors_of(bob) == ["ROOM_NOT_FOUND"]

    play(server, scenario)
