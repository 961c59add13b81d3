"""One room on several instances: the same for all members, also while instances die or move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import servers
from edge.live_server import QUICK, Stage
from lingua_scheduler.rooms import cache
from lingua_scheduler.state.room_scripts import RoomEntry, RoomPolicy
from lingua_wire.from_client import RoomRawVoicePreference, WebrtcIce, WebrtcOffer
from lingua_wire.to_client import (
    RoomExpired,
    RoomMembers,
    WebrtcIceRelay,
    WebrtcOfferRelay,
)
from rooms.room_stage import (
    CALM,
    RoomInstance,
    StandInMember,
    errors_of,
    room_instances,
    until,
)

pytestmark = pytest.mark.store


@pytest.fixture(name="url")
def store_of_three(tmp_path: Path) -> Iterator[str]:
    with servers.start_server(tmp_path, unix=False) as started:
        yield f"redis://127.0.0.1:{started.port}"


def play(
    server: servers.Server,
    scenario: Callable[[RoomInstance, RoomInstance, RoomInstance], Awaitable[None]],
    policy: RoomPolicy = CALM,
    **options: int,
) -> None:
    async def whole() -> None:
        async with room_instances(server, "i1", "i2", "i3", policy=policy, **options) as three:
            await scenario(*three)

    asyncio.run(whole())


async def spread(
    one: RoomInstance, two: RoomInstance, three: RoomInstance, lang: str = "en"
) -> tuple[str, StandInMember, StandInMember, StandInMember]:
    """Gather three members on three instances: ann created the room, the others want a language."""
    ann = await one.member("ann", "zh")
    bob, cid = await two.member("bob", lang), await three.member("cid", lang)
    code = await one.room_of(ann, "zh")
    await two.enter(bob, code, lang)
    await three.enter(cid, code, lang)
    everyone = (ann, bob, cid)
    await until(lambda: all(p.sees == ["ann", "bob", "cid"] for p in everyone), "all see all")
    for member in everyone:
        member.take()
    return code, *everyone


def test_members_on_all_instances_are_sent_every_change_of_the_members(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        two.service.set_language(bob, "ja")
        for member in (ann, bob, cid):
            await until(lambda p=member: p.sent, "the member is sent a message")
            (members,) = member.take()
            assert isinstance(members, RoomMembers)
            langs = {member.session_id: member.preferred_lang for member in members.members}
            assert langs == {"ann": "zh", "bob": "ja", "cid": "en"}
        assert [target.lane for target in (await one.audience_of(ann)).targets] == ["en", "ja"]
        two.service.leave(bob, code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob left")
        assert bob.sent == []
        assert len(two.cache.rooms) == 0

    play(server, scenario)


def test_the_rules_of_a_room_are_the_same_everywhere(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        ann = await one.member("ann", tenant="t1")
        bob, cid = await two.member("bob", tenant="t1"), await three.member("cid", tenant="t1")
        eve = await three.member("eve", tenant="t2")
        code = await one.room_of(ann)
        three.join(eve, code)
        await until(
            lambda: errors_of(eve) == ["ROOM_NOT_FOUND"], "the room is hidden from another tenant"
        )
        two.join(bob, code)
        three.join(cid, code)
        await until(lambda: bob.sent and cid.sent, "both are answered")
        assert sorted(errors_of(bob) + errors_of(cid)) == ["ROOM_FULL"]
        await until(lambda: len(ann.sees) == 2, "the one that entered is seen")

    play(server, scenario, RoomPolicy(members_max=2))


def test_signalling_reaches_a_member_on_any_instance_in_order(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        offer = WebrtcOffer(room_code=code, to="bob", sdp={"type": "offer"})
        one.service.relay(ann, offer)
        for number in range(5):
            ice = WebrtcIce(room_code=code, to="bob", candidate=number)
            one.service.relay(ann, ice)
        await until(lambda: len(bob.sent) == 6, "all messages arrived")
        assert bob.sent[0] == WebrtcOfferRelay(room_code=code, to="ann", sdp={"type": "offer"})
        candidates = [message.candidate for message in bob.of(WebrtcIceRelay)]
        assert candidates == list(range(5))
        mute = RoomRawVoicePreference(
            room_code=code, target_session_id="ann", receive_raw_voice=False
        )
        bob.take()
        two.service.prefer_raw_voice(bob, mute)
        await until(lambda: ann.sent, "ann knows")
        one.service.relay(ann, offer)
        one.service.relay(ann, WebrtcOffer(room_code=code, to="cid", sdp=1))
        await until(lambda: cid.of(WebrtcOfferRelay), "cid is called")
        assert bob.of(WebrtcOfferRelay) == []

    play(server, scenario)


def test_a_listener_that_moves_stays_in_its_room_unseen(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        before = await one.audience_of(ann)
        here = await three.take_over(bob)
        two.membership.taken(bob)
        del two.sessions["bob"]
        await until(lambda: here.sent, "bob is sent the members")
        assert here.sees == ["ann", "bob", "cid"]
        # The audience of ann names outboxes, which stay where they are when a client moves.
        assert await one.audience_of(ann) == before
        assert len(two.cache.rooms) == 0
        # Members see no difference, and the room names the new instance.
        assert (ann.sent, cid.sent) == ([], [])
        room = (await one.store.read(code)).room
        assert room is not None
        assert [member.instance for member in room.members] == ["i1", "i3", "i3"]
        three.service.leave(here, code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob left")

    play(server, scenario)


def test_a_former_owner_does_not_restore_a_member_that_left_on_another_instance(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, _ = await spread(one, two, three)
        here = await three.take_over(bob)
        # Its former instance does not know that yet, and receives that the room has changed.
        three.service.leave(here, code)
        await until(lambda: ann.sees == ["ann", "cid"], "bob has left")
        await two.cache.reread(code)
        await two.refresh()
        members = (await one.store.read(code)).room.members
        assert [member.session for member in members] == ["ann", "cid"]
        assert (await one.store.noted(bob.home, "bob")).room == ""

    play(server, scenario)


def test_a_delayed_leave_does_not_end_a_stay_that_began_on_another_instance(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, _ = await spread(one, two, three)
        here = await three.take_over(bob)
        three.service.leave(here, code)
        await until(lambda: ann.sees == ["ann", "cid"], "bob has left")
        await three.enter(here, code, "en")
        # Commands of its client to the former instance, which was stopped for a while.
        two.service.leave(bob, code)
        two.service.set_language(bob, "ja")
        await until(lambda: not len(two.tasks), "both commands are done")
        members = (await one.store.read(code)).room.members
        assert [(member.session, member.lang) for member in members] == [
            ("ann", "zh"),
            ("cid", "en"),
            ("bob", "en"),
        ]
        assert (await one.store.noted(bob.home, "bob")).room == code

    play(server, scenario)


def test_while_the_store_is_unavailable_the_audience_is_the_known_members(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, _, _ = await spread(one, two, three)
        one.lossy.is_cut_off = True
        # A member enters before the speaker's instance reaches the store again.
        late = RoomEntry(session="late", home="c0", instance="i3", lang="ja")
        await three.store.enter("join", code, "", late)
        (target,) = (await one.audience_of(ann)).targets
        assert target.lane == "en"
        assert [place.split("/")[1] for place in target.audience.split()] == ["bob", "cid"]
        one.lossy.is_cut_off = False
        assert {target.lane for target in (await one.audience_of(ann)).targets} == {"en", "ja"}

    play(server, scenario)


def test_a_member_that_comes_back_after_the_room_ended_is_informed(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, _, bob, _ = await spread(one, two, three)
        await one.lose(code, "ann", "bob", "cid")
        here = await three.take_over(bob)
        await until(lambda: here.sent, "bob is informed")
        assert [message.room_code for message in here.of(RoomExpired)] == [code]
        assert three.cache.rooms.room_of("bob") is None

    play(server, scenario)


def test_members_of_a_dead_instance_are_removed_when_their_sessions_are_closed(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        await two.die()
        await one.cache.sweep(code)
        assert (ann.sent, cid.sent) == ([], [])
        await one.close_record(bob)
        await three.cache.sweep(code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob is removed")

    play(server, scenario)


def test_a_member_that_is_noted_in_another_room_is_removed_from_this_one(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        # Its instance died after the note and before the step that leaves the room.
        await two.store.note(bob.home, "bob", "")
        await two.die()
        await one.cache.sweep(code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob is removed")

    play(server, scenario)


def test_a_session_that_is_missing_is_given_time_to_come_back(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, _ = await spread(one, two, three)
        await two.die()
        key = bob.home.key("session", "bob")
        await one.connection.command(bob.home.slot, "DEL", key)
        await one.cache.sweep(code)
        assert ann.sent == []
        monkeypatch.setattr(cache, "MISSING_MS", 0)
        await one.cache.sweep(code)
        await until(lambda: ann.sees == ["ann", "cid"], "bob is removed")
        assert one.cache.missing_since_ms.keys() == {(code, "bob")}
        await one.cache.sweep(code)
        assert not one.cache.missing_since_ms

    play(server, scenario)


def test_a_room_nobody_speaks_in_ends_for_all_of_its_members(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, *everyone = await spread(one, two, three)
        await two.audience_of(everyone[1])
        await asyncio.sleep(1.5)
        await three.cache.sweep(code)
        for member in everyone:
            await until(lambda p=member: p.sent, "the member is sent a message")
            assert member.sent == [
                RoomExpired(room_code=code, message="nobody spoke for a long time")
            ]
        assert [len(instance.cache.rooms) for instance in (one, two, three)] == [0, 0, 0]

    play(server, scenario, RoomPolicy(idle_ms=1500))


def test_a_lost_message_costs_the_time_until_the_next_refresh(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        # No instance is informed: the change is made in the store only.
        await one.store.set_language(code, "bob", "ja")
        await one.lose(code, "cid")
        await one.close_record(cid)
        del three.sessions["cid"]
        for instance in (one, two, three):
            await instance.refresh()
        assert ann.sees == bob.sees == ["ann", "bob"]
        assert len(three.cache.rooms) == 0
        assert [target.lane for target in (await one.audience_of(ann)).targets] == ["ja"]

    play(server, scenario)


def test_a_store_that_was_emptied_gets_its_rooms_back(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        mute = RoomRawVoicePreference(
            room_code=code, target_session_id="ann", receive_raw_voice=False
        )
        two.service.prefer_raw_voice(bob, mute)
        await until(lambda: ann.sent and bob.sent and cid.sent, "all know")
        before = (await one.store.read(code)).room
        await one.connection.every_master("FLUSHALL")
        for instance in (one, two, three):
            await instance.inbox.open()
        for instance in (one, two, three):
            await instance.refresh()
        for instance, member in ((one, ann), (two, bob), (three, cid)):
            await instance.record(member.id, member.home, epoch=2)
        everyone = (ann, bob, cid)
        await until(lambda: all(len(p.sees) == 3 for p in everyone), "all see all")
        await until(lambda: ann.sees == bob.sees == cid.sees, "all see the same")
        after = (await one.store.read(code)).room
        assert before is not None
        assert after is not None
        kept = {member.session: member._replace(place=0) for member in before.members}
        assert {member.session: member._replace(place=0) for member in after.members} == kept
        assert after.version > before.version
        (lane,) = (await one.audience_of(ann)).targets
        assert sorted(lane.audience.split()) == sorted(
            f"{member.home.name}/{member.id}" for member in (bob, cid)
        )
        assert not any(member.of(RoomExpired) for member in (ann, bob, cid))

    play(server, scenario)


def test_a_missing_member_is_restored_also_when_several_look_at_once(
    server: servers.Server,
) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, _, bob, _ = await spread(one, two, three)
        await one.lose(code, "bob")
        await asyncio.gather(*(two.cache.reread(code) for _ in range(5)))
        assert two.cache.rooms.room_of("bob") is not None
        assert sorted(bob.sees) == ["ann", "bob", "cid"]

    play(server, scenario)


def test_a_lost_room_is_not_restored_over_another_one(server: servers.Server) -> None:
    async def scenario(one: RoomInstance, two: RoomInstance, three: RoomInstance) -> None:
        code, ann, _, _ = await spread(one, two, three)
        await one.lose(code, "ann", "bob", "cid")
        eve = await three.member("eve", tenant="t2")
        entry = RoomEntry(session="eve", home=eve.home.name, instance="i3", lang="")
        made = await three.store.enter("create", code, "t2", entry)
        assert made.room is not None
        await one.refresh()
        assert [message.room_code for message in ann.of(RoomExpired)] == [code]
        assert one.cache.rooms.room_of("ann") is None
        assert (await one.store.read(code)).room == made.room

    play(server, scenario)


# Whole servers


def play_whole(
    url: str, directory: Path, scenario: Callable[[Stage, Stage, Stage], Awaitable[None]]
) -> None:
    """Run a scenario on three servers over one store, all in this process."""

    async def whole() -> None:
        async with asyncio.timeout(60), AsyncExitStack() as stack:
            stages = []
            for name in ("i1", "i2", "i3"):
                home = directory / name
                home.mkdir()
                settings = {
                    **QUICK,
                    "deployment_mode": "cross_instance",
                    "redis__url": url,
                    "cells": 3,
                    "instance_id": name,
                }
                stages.append(await stack.enter_async_context(Stage(str(home), settings)))
            await scenario(*stages)
            for stage in stages:
                assert stage.server.instance.metrics.instance.internal_errors_total.value == 0

    asyncio.run(whole())


def test_a_speaker_a_listener_and_a_node_are_on_three_servers(url: str, tmp_path: Path) -> None:
    async def scenario(one: Stage, two: Stage, three: Stage) -> None:
        node = await three.node()
        node.work()
        speaker, reader = await one.client("zh", "en"), await three.client("zh", "en")
        listener, old = await two.client("en", "zh"), await two.old_client("en", "zh")
        await speaker.send("room_create", preferred_lang="zh")
        code = (await speaker.expect("room_create_ack"))["room_code"]
        for client, lang in ((listener, "en"), (old, "en"), (reader, "zh")):
            await client.send("room_join", room_code=code, preferred_lang=lang)
            await client.expect("room_members", room_code=code)
        members = await speaker.expect("room_members")
        while len(members["members"]) < 4:
            members = await speaker.expect("room_members")
        for index in range(5):
            await speaker.utter(index)
        for client in (listener, old):
            for index in range(5):
                result = await client.result(index, session_id=speaker.id)
                assert result["seq"] == index + 1
            assert client.outcomes() == [(index, "ok") for index in range(5)]
        for index in range(5):
            read = await reader.result(index, session_id=speaker.id)
            assert read["text_translated"] == read["text_asr"]
        assert not speaker.outcomes()
        await speaker.send("webrtc_offer", room_code=code, to=old.id, sdp="v=0")
        await old.expect("webrtc_offer", to=speaker.id)
        await old.send("room_leave", room_code=code)
        left = await speaker.expect("room_members")
        assert len(left["members"]) == 3

    play_whole(url, tmp_path, scenario)
