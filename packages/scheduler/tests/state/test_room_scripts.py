"""The scripts about rooms on a real server: entry, changes, and the end of rooms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

import servers
from clocks import Lived
from lingua_scheduler.state.cluster import key_slot
from lingua_scheduler.state.keys import Cell, Cells
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_scripts import (
    RoomAnswer,
    RoomEntry,
    RoomPolicy,
    RoomScripts,
    RoomVisit,
    SessionNote,
    StoredMember,
    StoredRoom,
)
from lingua_scheduler.state.single import SingleConnection

pytestmark = pytest.mark.store

CODE = "123456"
NOW_MS = 1_763_000_000_000
POLICY = RoomPolicy(members_max=3, idle_ms=60_000, check_ms=10_000)


class Scene:
    """One server, two cells, and time in our hands."""

    def __init__(self, connection: SingleConnection) -> None:
        self.connection = connection
        self.cells = Cells("rooms", 2)
        self.store = RoomScripts(cast("Any", Lived(connection)), self.cells, POLICY)
        self.store.runner.now_ms = NOW_MS

    async def enter(
        self, session: str, mode: str = "join", code: str = CODE, tenant: str = "t", **more: Any
    ) -> RoomAnswer:
        given = {"home": "c0", "instance": "i1", "lang": "en"} | more
        return await self.store.enter(mode, code, tenant, RoomEntry(session=session, **given))

    async def leave(self, *names: str, joined_at_ms: int | None = None, at: str = "") -> RoomAnswer:
        """Take sessions out of the room, whichever stay of them it is."""
        return await self.store.leave(CODE, [RoomVisit(name, joined_at_ms) for name in names], at)

    async def room(self, *names: str) -> StoredRoom:
        """Make a room with these members."""
        answer = await self.enter(names[0], "create")
        for name in names[1:]:
            answer = await self.enter(name)
        assert answer.room is not None
        return answer.room

    async def rings_at_ms(self, code: str = CODE) -> int | None:
        cell = self.store.cell_of(code)
        raw = await self.connection.command(cell.slot, "ZSCORE", cell.due, f"room|{code}")
        return int(raw) if raw is not None else None

    async def session(self, name: str = "s", cell: int = 0, **fields: Any) -> Cell:
        """Make a session's record as `session_open` does."""
        home = self.cells.all[cell]
        record = {"epoch": 7, "owner": "i9", "seq": 0, "trimmed": 0} | fields
        words = [word for pair in record.items() for word in pair]
        await self.connection.command(home.slot, "HSET", home.key("session", name), *words)
        return home


@pytest.fixture(scope="module", name="server")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path_factory.mktemp("rooms")) as started:
        yield started


def play(server: servers.Server, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    async def whole() -> None:
        connection = await SingleConnection.open(
            server.address, LinkOptions(call_timeout_ms=10_000)
        )
        try:
            await connection.every_master("FLUSHALL")
            await scenario(Scene(connection))
        finally:
            await connection.close()

    asyncio.run(whole())


def names(answer: RoomAnswer) -> list[str]:
    assert answer.room is not None
    return [member.session for member in answer.room.members]


# Entering


def test_who_creates_a_room_is_its_first_member(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        answer = await s.enter("a", "create", name="Ann\n1", home="c1", instance="i2", lang="")
        ann = StoredMember("a", 1, NOW_MS, "c1", "Ann\n1", "", "i2", {})
        made = StoredRoom(CODE, "t", NOW_MS + 1, NOW_MS, NOW_MS, (ann,))
        assert answer == RoomAnswer(Reply.OK, NOW_MS, made)
        assert await s.store.read(CODE) == answer
        assert await s.rings_at_ms() == NOW_MS + POLICY.check_ms

    play(server, scenario)


def test_no_name_is_not_an_empty_name(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.enter("a", "create")
        answer = await s.enter("b", name="")
        assert answer.room is not None
        assert [member.name for member in answer.room.members] == [None, ""]

    play(server, scenario)


def test_members_are_listed_in_the_order_they_came(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("c", "a")
        assert names(await s.leave("c")) == ["a"]
        assert names(await s.enter("b")) == ["a", "b"]
        assert names(await s.enter("c")) == ["a", "b", "c"]

    play(server, scenario)


def test_a_taken_code_makes_no_second_room(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a")
        for tenant in ("t", "other"):
            refused = await s.enter("b", "create", tenant=tenant)
            assert refused == RoomAnswer(Reply.FENCED, NOW_MS, why="taken")
        assert names(await s.store.read(CODE)) == ["a"]

    play(server, scenario)


def test_a_room_that_is_not_there_and_anothers_look_the_same(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        missing = await s.enter("b")
        await s.room("a")
        assert missing.why == "no_room"
        assert await s.enter("b", tenant="other") == missing
        assert names(await s.store.read(CODE)) == ["a"]

    play(server, scenario)


def test_a_full_room_takes_nobody_until_somebody_leaves(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a", "b", "c")
        assert (await s.enter("d")).why == "full"
        await s.leave("a")
        assert names(await s.enter("d")) == ["b", "c", "d"]

    play(server, scenario)


def test_entering_again_changes_nothing(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        room = await s.room("a", "b", "c")
        again = await s.enter("b", lang="ja", instance="other")
        assert again == RoomAnswer(Reply.ALREADY, NOW_MS, room)

    play(server, scenario)


def test_a_later_room_under_the_same_code_is_newer(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        first = await s.room("a", "b")
        await s.leave("a", "b")
        s.store.runner.now_ms += 1000
        assert (await s.room("c")).version > first.version

    play(server, scenario)


# Coming back into a room the store lost


def test_a_lost_room_comes_back_as_it_was(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        room = await s.room("a", "b")
        await s.leave("a", "b")
        s.store.runner.now_ms += 5000
        was = {"created_at": NOW_MS, "spoke_at": NOW_MS + 3, "joined_at": NOW_MS + 1}
        await s.enter("b", "restore", **was, voices={"a": False})
        back = (await s.enter("a", "restore", **was)).room
        assert back is not None
        assert (back.created_at_ms, back.spoke_at_ms) == (NOW_MS, NOW_MS + 3)
        assert back.version > room.version
        assert [member.joined_at_ms for member in back.members] == [NOW_MS + 1] * 2
        assert back.members[0].voices == {"a": False}
        assert await s.rings_at_ms() == NOW_MS + 5000 + POLICY.check_ms

    play(server, scenario)


def test_nobody_comes_back_into_another_room_of_the_same_code(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a")
        was = {"spoke_at": NOW_MS, "joined_at": NOW_MS}
        other = await s.enter("b", "restore", created_at=NOW_MS - 1, **was)
        foreign = await s.enter("b", "restore", tenant="other", created_at=NOW_MS, **was)
        assert other.why == foreign.why == "no_room"
        assert names(await s.enter("b", "restore", created_at=NOW_MS, **was)) == ["a", "b"]

    play(server, scenario)


# Leaving


def test_several_leave_at_once_and_nothing_is_kept_about_them(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        before = await s.room("a", "b", "c")
        await s.store.set_voice(CODE, "a", "b", wanted=False)
        await s.store.set_voice(CODE, "b", "a", wanted=False)
        left = await s.leave("b", "c", "nobody")
        assert names(left) == ["a"]
        assert left.room is not None
        assert left.room.members[0].voices == {}
        assert left.room.version > before.version
        cell = s.store.cell_of(CODE)
        fields = await s.connection.command(cell.slot, "HKEYS", cell.key("room", CODE))
        assert {field for field in fields if b":" in field} == {b"m:a", b"l:a", b"i:a"}

    play(server, scenario)


def test_the_last_to_leave_takes_the_room_along(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a")
        assert await s.leave("a") == RoomAnswer(Reply.OK, NOW_MS)
        cell = s.store.cell_of(CODE)
        assert await s.connection.command(cell.slot, "EXISTS", cell.key("room", CODE)) == 0
        assert await s.rings_at_ms() is None
        assert (await s.leave("a")).why == "no_room"
        assert (await s.store.read(CODE)).why == "no_room"

    play(server, scenario)


def test_who_leaves_late_does_not_end_a_later_stay_or_one_at_another_instance(
    server: servers.Server,
) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a", "b")
        await s.leave("b", joined_at_ms=NOW_MS + 1)
        s.store.runner.now_ms += 1000
        back = (await s.enter("b", instance="i2")).room
        for late in (s.leave("b", joined_at_ms=NOW_MS + 1), s.leave("b", at="i1")):
            assert await late == RoomAnswer(Reply.ALREADY, s.store.runner.now_ms, back)
        assert names(await s.leave("b", joined_at_ms=NOW_MS + 1000, at="i2")) == ["a"]

    play(server, scenario)


def test_no_two_stays_begin_at_the_same_time(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a", "b")
        await s.leave("b")
        room = (await s.enter("b")).room
        assert room is not None
        assert [member.joined_at_ms for member in room.members] == [NOW_MS, NOW_MS + 2]

    play(server, scenario)


def test_who_is_not_in_the_room_does_not_change_it_by_leaving(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        room = await s.room("a")
        assert await s.leave("b") == RoomAnswer(Reply.ALREADY, NOW_MS, room)

    play(server, scenario)


# Changing


def test_each_change_of_a_member_is_a_new_version(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        versions = [(await s.room("a", "b")).version]
        await s.store.set_language(CODE, "a", "ja")
        await s.store.set_instance(CODE, "a", "i2")
        answer = await s.store.set_voice(CODE, "a", "b", wanted=False)
        assert answer.room is not None
        versions.append(answer.room.version)
        assert versions[1] == versions[0] + 3
        first = answer.room.members[0]
        assert (first.lang, first.instance, first.voices) == ("ja", "i2", {"b": False})
        answer = await s.store.set_voice(CODE, "a", "b", wanted=True)
        assert answer.room is not None
        assert answer.room.members[0].voices == {"b": True}

    play(server, scenario)


def test_speech_keeps_the_room_and_is_no_new_version(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        before = await s.room("a", "b")
        s.store.runner.now_ms += 500
        answer = await s.store.spoke(CODE, "b")
        assert answer.room == before._replace(spoke_at_ms=NOW_MS + 500)

    play(server, scenario)


def test_only_a_member_is_changed_and_only_about_members(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        assert (await s.store.set_language(CODE, "a", "ja")).why == "no_room"
        room = await s.room("a")
        refused = [
            await s.store.set_language(CODE, "b", "ja"),
            await s.store.set_instance(CODE, "b", "i2"),
            await s.store.spoke(CODE, "b"),
            await s.store.set_voice(CODE, "b", "a", wanted=False),
            await s.store.set_voice(CODE, "a", "b", wanted=False),
        ]
        assert [answer.why for answer in refused] == ["not_in"] * 5
        assert (await s.store.read(CODE)).room == room

    play(server, scenario)


# The timer


def test_the_timer_is_set_again_and_brings_the_members(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        room = await s.room("a", "b")
        s.store.runner.now_ms += 10_000
        assert await s.store.check(CODE) == RoomAnswer(Reply.OK, NOW_MS + 10_000, room)
        assert await s.rings_at_ms() == NOW_MS + 20_000
        s.store.runner.now_ms = NOW_MS + 55_000
        await s.store.check(CODE)
        assert await s.rings_at_ms() == NOW_MS + POLICY.idle_ms

    play(server, scenario)


def test_a_room_nobody_spoke_in_ends_and_says_who_was_there(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        await s.room("a", "b")
        s.store.runner.now_ms += 1000
        spoken = (await s.store.spoke(CODE, "a")).room
        s.store.runner.now_ms = NOW_MS + 1000 + POLICY.idle_ms - 1
        assert (await s.store.check(CODE)).reply is Reply.OK
        s.store.runner.now_ms += 1
        assert await s.store.check(CODE) == RoomAnswer(Reply.GONE, s.store.runner.now_ms, spoken)
        assert (await s.store.read(CODE)).room is None
        assert await s.rings_at_ms() is None

    play(server, scenario)


def test_the_timer_of_a_room_that_is_gone_goes_too(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        cell = s.store.cell_of(CODE)
        await s.connection.command(cell.slot, "ZADD", cell.due, 1, f"room|{CODE}")
        assert (await s.store.check(CODE)).why == "no_room"
        assert await s.rings_at_ms() is None

    play(server, scenario)


def test_rooms_are_spread_over_all_cells_and_stay_in_their_slot(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        codes = [f"{number:06d}" for number in range(40)]
        cells = {s.store.cell_of(code) for code in codes}
        assert cells == set(s.cells.all)
        for code in codes:
            await s.enter("a", "create", code)
        for cell in cells:
            keys = await s.connection.command(cell.slot, "KEYS", f"{cell.base}*")
            assert {key_slot(key) for key in keys} == {cell.slot}
            rooms = {key.decode().removeprefix(cell.key("room") + ":") for key in keys}
            here = {code for code in codes if s.store.cell_of(code) is cell}
            assert rooms - {cell.due.decode(), cell.key("clock")} == here

    play(server, scenario)


# Notes in sessions


def test_a_session_notes_the_room_it_is_about_to_enter(server: servers.Server) -> None:
    async def scenario(s: Scene) -> None:
        home = s.cells.all[1]
        assert await s.store.note(home, "s", CODE) is Reply.NO_SESSION
        assert await s.store.noted(home, "s") == SessionNote("missing")
        await s.session(cell=1)
        assert await s.store.noted(home, "s") == SessionNote("open")
        assert await s.store.note(home, "s", CODE) is Reply.OK
        assert await s.store.noted(home, "s") == SessionNote("open", CODE)
        await s.store.note(home, "s", "")
        assert await s.store.noted(home, "s") == SessionNote("open", "")
        await s.session(cell=1, fence=7)
        assert await s.store.note(home, "s", CODE, fence=6) is Reply.FENCED
        assert await s.store.noted(home, "s") == SessionNote("open", "")
        assert await s.store.note(home, "s", CODE, fence=7) is Reply.OK
        await s.session(cell=1, closed=1)
        assert await s.store.note(home, "s", CODE) is Reply.SESSION_CLOSED
        assert await s.store.noted(home, "s") == SessionNote("closed")

    play(server, scenario)
