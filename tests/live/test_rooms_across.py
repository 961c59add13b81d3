"""One room on several instances: the same for all who are in it, whoever of them dies or moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import servers
from edge.live_server import QUICK, Stage
from lingua_scheduler.live import room_keeper
from lingua_scheduler.messages.from_client import RoomRawVoicePreference, WebrtcIce, WebrtcOffer
from lingua_scheduler.messages.to_client import (
    RoomExpired,
    RoomMembers,
    WebrtcIceRelay,
    WebrtcOfferRelay,
)
from lingua_scheduler.state.room_store import Entering, RoomPolicy
from live.room_stage import CALM, House, Person, errors_of, houses, session, until

pytestmark = pytest.mark.store


@pytest.fixture(scope="module", name="server")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path_factory.mktemp("across")) as started:
        yield started


@pytest.fixture(name="url")
def store_of_three(tmp_path: Path) -> Iterator[str]:
    with servers.start_server(tmp_path, unix=False) as started:
        yield f"redis://127.0.0.1:{started.port}"


def play(
    server: servers.Server,
    scenario: Callable[[House, House, House], Awaitable[None]],
    policy: RoomPolicy = CALM,
    **options: int,
) -> None:
    async def whole() -> None:
        async with houses(server, "i1", "i2", "i3", policy=policy, **options) as three:
            await scenario(*three)

    asyncio.run(whole())


async def spread(
    one: House, two: House, three: House, lang: str = "en"
) -> tuple[str, Person, Person, Person]:
    """A room of three people, one on each instance: ann made it, the others want a language."""
    ann = await one.person("ann", "zh")
    bob, cid = await two.person("bob", lang), await three.person("cid", lang)
    code = await one.room_of(ann, "zh")
    await two.enter(bob, code, lang)
    await three.enter(cid, code, lang)
    people = (ann, bob, cid)
    await until(lambda: all(p.sees == ["ann", "bob", "cid"] for p in people), "all see all")
    for person in people:
        person.take()
    return code, *people


def test_members_everywhere_are_told_of_who_comes_changes_and_goes(
    server: servers.Server,
) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        two.hall.set_language(session(bob), "ja")
        for person in (ann, bob, cid):
            await until(lambda p=person: p.told, "it is told")
            (members,) = person.take()
            assert isinstance(members, RoomMembers)
            langs = {member.session_id: member.preferred_lang for member in members.members}
            assert langs == {"ann": "zh", "bob": "ja", "cid": "en"}
        assert [target.lane for target in (await one.speak(ann)).targets] == ["en", "ja"]
        two.hall.leave(session(bob), code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob left")
        assert bob.told == []
        assert len(two.hall.rooms) == 0

    play(server, scenario)


def test_the_rules_of_a_room_are_the_same_everywhere(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        ann = await one.person("ann", tenant="t1")
        bob, cid = await two.person("bob", tenant="t1"), await three.person("cid", tenant="t1")
        eve = await three.person("eve", tenant="t2")
        code = await one.room_of(ann)
        three.join(eve, code)
        await until(lambda: errors_of(eve) == ["ROOM_NOT_FOUND"], "another tenant sees none")
        two.join(bob, code)
        three.join(cid, code)
        await until(lambda: bob.told and cid.told, "both are answered")
        assert sorted(errors_of(bob) + errors_of(cid)) == ["ROOM_FULL"]
        await until(lambda: len(ann.sees) == 2, "who came is seen")

    play(server, scenario, RoomPolicy(members_max=2))


def test_signalling_finds_the_other_wherever_it_is_and_in_order(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        offer = WebrtcOffer(room_code=code, to="bob", sdp={"type": "offer"})
        one.hall.relay(session(ann), offer)
        for number in range(5):
            ice = WebrtcIce(room_code=code, to="bob", candidate=number)
            one.hall.relay(session(ann), ice)
        await until(lambda: len(bob.told) == 6, "all came")
        assert bob.told[0] == WebrtcOfferRelay(room_code=code, to="ann", sdp={"type": "offer"})
        candidates = [message.candidate for message in bob.of(WebrtcIceRelay)]
        assert candidates == list(range(5))
        mute = RoomRawVoicePreference(
            room_code=code, target_session_id="ann", receive_raw_voice=False
        )
        bob.take()
        two.hall.prefer_raw_voice(session(bob), mute)
        await until(lambda: ann.told, "ann knows")
        one.hall.relay(session(ann), offer)
        one.hall.relay(session(ann), WebrtcOffer(room_code=code, to="cid", sdp=1))
        await until(lambda: cid.of(WebrtcOfferRelay), "cid is called")
        assert bob.of(WebrtcOfferRelay) == []

    play(server, scenario)


def test_a_listener_that_moves_stays_in_its_room_unseen(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        before = await one.speak(ann)
        here = await three.take_over(bob)
        two.hall.dropped(session(bob))
        del two.sessions["bob"]
        await until(lambda: here.told, "bob is told who is there")
        assert here.sees == ["ann", "bob", "cid"]
        # Whom ann speaks to is where its outbox is, which is the same wherever its client is.
        assert await one.speak(ann) == before
        assert len(two.hall.rooms) == 0
        # Nobody sees a difference, and everybody knows where it is.
        assert (ann.told, cid.told) == ([], [])
        room = (await one.store.read(code)).room
        assert room is not None
        assert [member.instance for member in room.members] == ["i1", "i3", "i3"]
        three.hall.leave(session(here), code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob left")

    play(server, scenario)


def test_a_former_owner_does_not_bring_back_who_left_the_room_elsewhere(
    server: servers.Server,
) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, _ = await spread(one, two, three)
        here = await three.take_over(bob)
        # The instance it was at has not heard of that, and gets the letter that the room changed.
        three.hall.leave(session(here), code)
        await until(lambda: ann.sees == ["ann", "cid"], "bob has left")
        await two.hall.room_changed(code)
        await two.hall.refresh()
        assert [member.session for member in (await one.store.read(code)).room.members] == [
            "ann", "cid",
        ]  # fmt: skip
        assert (await one.store.noted(bob.home, "bob")).room == ""

    play(server, scenario)


def test_a_leave_that_was_held_up_does_not_end_a_stay_that_began_elsewhere(
    server: servers.Server,
) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, _ = await spread(one, two, three)
        here = await three.take_over(bob)
        three.hall.leave(session(here), code)
        await until(lambda: ann.sees == ["ann", "cid"], "bob has left")
        await three.enter(here, code, "en")
        # What its client said to the former instance, which was stopped for a while.
        two.hall.leave(session(bob), code)
        two.hall.set_language(session(bob), "ja")
        await until(lambda: not len(two.tasks), "that is over")
        members = (await one.store.read(code)).room.members
        assert [(member.session, member.lang) for member in members] == [
            ("ann", "zh"), ("cid", "en"), ("bob", "en"),
        ]  # fmt: skip
        assert (await one.store.noted(bob.home, "bob")).room == code

    play(server, scenario)


def test_what_is_said_while_the_store_is_away_is_for_those_who_are_known_to_be_there(
    server: servers.Server,
) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, _, _ = await spread(one, two, three)
        one.lossy.is_cut_off = True
        # Comes in for others, before the speaker's instance reaches the store again.
        late = Entering(session="late", home="c0", instance="i3", lang="ja")
        await three.store.enter("join", code, "", late)
        (target,) = (await one.speak(ann)).targets
        assert target.lane == "en"
        assert [place.split("/")[1] for place in target.audience.split()] == ["bob", "cid"]
        one.lossy.is_cut_off = False
        assert {target.lane for target in (await one.speak(ann)).targets} == {"en", "ja"}

    play(server, scenario)


def test_who_comes_back_after_the_room_ended_is_told_so(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, _, bob, _ = await spread(one, two, three)
        await one.lose(code, "ann", "bob", "cid")
        here = await three.take_over(bob)
        await until(lambda: here.told, "bob is told")
        assert [message.room_code for message in here.of(RoomExpired)] == [code]
        assert three.hall.rooms.room_of("bob") is None

    play(server, scenario)


def test_members_of_a_dead_instance_go_when_their_sessions_do(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        await two.die()
        await one.hall.sweep(code)
        assert (ann.told, cid.told) == ([], [])
        await one.close_record(bob)
        await three.hall.sweep(code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob is taken out")

    play(server, scenario)


def test_who_is_noted_in_another_room_is_taken_out_of_this_one(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        # Its instance died after the note and before the step that leaves the room.
        await two.store.note(bob.home, "bob", "")
        await two.die()
        await one.hall.sweep(code)
        await until(lambda: ann.sees == cid.sees == ["ann", "cid"], "bob is taken out")

    play(server, scenario)


def test_a_session_that_is_missing_is_given_time_to_come_back(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, _ = await spread(one, two, three)
        await two.die()
        key = bob.home.key("session", "bob")
        await one.connection.command(bob.home.slot, "DEL", key)
        await one.hall.sweep(code)
        assert ann.told == []
        monkeypatch.setattr(room_keeper, "MISSING_MS", 0)
        await one.hall.sweep(code)
        await until(lambda: ann.sees == ["ann", "cid"], "bob is taken out")
        assert one.hall._keeper._missing.keys() == {(code, "bob")}
        await one.hall.sweep(code)
        assert not one.hall._keeper._missing

    play(server, scenario)


def test_a_room_nobody_speaks_in_ends_for_all_of_its_members(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, *people = await spread(one, two, three)
        await two.speak(people[1])
        await asyncio.sleep(1.5)
        await three.hall.sweep(code)
        for person in people:
            await until(lambda p=person: p.told, "it is told")
            assert person.told == [
                RoomExpired(room_code=code, message="nobody spoke for a long time")
            ]
        assert [len(house.hall.rooms) for house in (one, two, three)] == [0, 0, 0]

    play(server, scenario, RoomPolicy(idle_ms=1500))


def test_a_letter_that_was_lost_costs_until_the_next_look(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        # Nobody is told: the change is made behind the halls' backs.
        await one.store.set_language(code, "bob", "ja")
        await one.lose(code, "cid")
        await one.close_record(cid)
        del three.sessions["cid"]
        for house in (one, two, three):
            await house.hall.refresh()
        assert ann.sees == bob.sees == ["ann", "bob"]
        assert len(three.hall.rooms) == 0
        assert [target.lane for target in (await one.speak(ann)).targets] == ["ja"]

    play(server, scenario)


def test_a_store_that_was_emptied_gets_its_rooms_back(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, bob, cid = await spread(one, two, three)
        mute = RoomRawVoicePreference(
            room_code=code, target_session_id="ann", receive_raw_voice=False
        )
        two.hall.prefer_raw_voice(session(bob), mute)
        await until(lambda: ann.told and bob.told and cid.told, "all know")
        before = (await one.store.read(code)).room
        await one.connection.every_master("FLUSHALL")
        for house in (one, two, three):
            await house.inbox.open()
        for house in (one, two, three):
            await house.hall.refresh()
        for house, person in ((one, ann), (two, bob), (three, cid)):
            await house.record(person.id, person.home, epoch=2)
        people = (ann, bob, cid)
        await until(lambda: all(len(p.sees) == 3 for p in people), "all see all")
        await until(lambda: ann.sees == bob.sees == cid.sees, "all see the same")
        after = (await one.store.read(code)).room
        assert before is not None
        assert after is not None
        kept = {member.session: member._replace(place=0) for member in before.members}
        assert {member.session: member._replace(place=0) for member in after.members} == kept
        assert after.version > before.version
        (lane,) = (await one.speak(ann)).targets
        assert sorted(lane.audience.split()) == sorted(
            f"{person.home.name}/{person.id}" for person in (bob, cid)
        )
        assert not any(person.of(RoomExpired) for person in (ann, bob, cid))

    play(server, scenario)


def test_who_is_missing_in_a_room_comes_back_also_when_several_look_at_once(
    server: servers.Server,
) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, _, bob, _ = await spread(one, two, three)
        await one.lose(code, "bob")
        await asyncio.gather(*(two.hall.room_changed(code) for _ in range(5)))
        assert two.hall.rooms.room_of("bob") is not None
        assert sorted(bob.sees) == ["ann", "bob", "cid"]

    play(server, scenario)


def test_a_room_that_was_lost_does_not_come_back_over_another_one(server: servers.Server) -> None:
    async def scenario(one: House, two: House, three: House) -> None:
        code, ann, _, _ = await spread(one, two, three)
        await one.lose(code, "ann", "bob", "cid")
        eve = await three.person("eve", tenant="t2")
        made = await three.store.enter(
            "create", code, "t2", Entering(session="eve", home=eve.home.name,
                                                       instance="i3", lang="")
        )  # fmt: skip
        assert made.room is not None
        await one.hall.refresh()
        assert [message.room_code for message in ann.of(RoomExpired)] == [code]
        assert one.hall.rooms.room_of("ann") is None
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
                    **QUICK, "deployment_mode": "cross_instance", "redis__url": url, "cells": 3,
                    "instance_id": name,
                }  # fmt: skip
                stages.append(await stack.enter_async_context(Stage(str(home), settings)))
            await scenario(*stages)
            for stage in stages:
                assert stage.server.instance.metrics.internal_errors_total.value == 0

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
