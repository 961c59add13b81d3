"""Captions of rooms in the store: once, in order, bounded, and ended with their room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

import servers
from clocks import Lived
from lingua_scheduler.jobs.result_format import encode_result
from lingua_scheduler.state.caption_scripts import CaptionScripts
from lingua_scheduler.state.records import ListenerPosition
from lingua_scheduler.state.reply import Reply
from lingua_scheduler.state.room_scripts import RoomEntry, RoomPolicy, RoomScripts, RoomVisit
from runtime.stand_ins import content
from state.audience import NOW_MS, Stage, play

pytestmark = pytest.mark.store

CODE = "123456"
POLICY = RoomPolicy(feed_ms=30_000, feeds_max=2, check_ms=10_000, idle_ms=60_000)


@pytest.fixture(scope="module", name="server")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    with servers.start_server(tmp_path_factory.mktemp("captions")) as started:
        yield started


async def a_room(s: Stage, code: str = CODE, tenant: str = "") -> RoomScripts:
    """Have ann create a room under the name Ann."""
    rooms = RoomScripts(cast("Any", Lived(s.connection)), s.cells, POLICY)
    rooms.runner.now_ms = NOW_MS
    ann = RoomEntry(session="ann", home="c0", instance="i1", lang="en", name="Ann")
    answer = await rooms.enter("create", code, tenant, ann)
    assert answer.reply is Reply.OK
    return rooms


def captions_of(rooms: RoomScripts, lang: str = "es", code: str = CODE) -> str:
    """Return the listener that stands for the captions of a room."""
    return f"{rooms.cell_of(code).name}/@{code}|{lang}"


async def say(s: Stage, index: int, audience: str, lane: str = "es", **more: Any) -> Any:
    """Have ann say something that is translated at once."""
    placed = await s.submit(index, audience, lane, **more)
    texts = (f"said {index}", f"{lane} {index}")
    kept = encode_result(content(*texts, b"sound", "pcm16", "t"))
    plain = encode_result(content(*texts, b"", "pcm16", "t"))
    return await s.settle(placed, payload=kept, text=plain)


async def texts(rooms: RoomScripts, lang: str = "es", **more: Any) -> list[str]:
    page = await CaptionScripts(rooms).read(CODE, "", lang, **more)
    assert page is not None
    return [caption.text for _, caption in page.captions]


async def relayed(s: Stage) -> None:
    """Bring what waits to every other cell."""
    done: list[str] = []
    for _ in range(4):
        _, ahead, _ = await s.store.outbox.relay(s.home, "ann", done)
        for cell in ("c1", "c2"):
            done += await s.put(ahead, cell)


def code_in(s: Stage, rooms: RoomScripts, cell: str) -> str:
    del s
    return next(
        code for code in (f"{n:06d}" for n in range(100)) if rooms.cell_of(code).name == cell
    )


def test_a_caption_is_written_in_the_step_that_releases_it(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        code = code_in(s, rooms, "c0")
        rooms = await a_room(s, code)
        where = captions_of(rooms, code=code)
        await s.open("c0/bob")
        effects = await say(s, 0, f"{where} c0/bob")
        (told,) = effects.heard
        assert [row.session for row in told.listeners] == ["bob"]
        page = await CaptionScripts(rooms).read(code, "", "es")
        assert page is not None
        ((number, caption),) = page.captions
        assert (number, page.last) == (1, 1)
        assert (caption.speaker, caption.name, caption.text) == ("ann", "Ann", "es 0")
        assert (caption.utterance_index, caption.at_ms) == (0, NOW_MS)
        # Nothing refers to the kept result but the listener's outbox.
        assert (await s.kept("c0", 1)).holders == {"bob"}
        answer = await rooms.read(code)
        assert answer.room is not None
        assert answer.room.captioned == ("es",)

    play(server, scenario)


def test_instances_with_readers_are_told(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        code = code_in(s, rooms, "c0")
        rooms = await a_room(s, code)
        first = await rooms.feed(code, "", "es", "i1", 3)
        assert first.reply is Reply.OK
        assert first.room is not None
        assert first.room.feeds == {"es": {"i1": 3}}
        assert (await rooms.feed(code, "", "es", "i2", 1)).reply is Reply.OK
        assert (await rooms.feed(code, "", "es", "i1", 3)).reply is Reply.ALREADY
        effects = await say(s, 0, captions_of(rooms, code=code))
        (told,) = effects.heard
        page = await CaptionScripts(rooms).read(code, "", "es")
        assert page is not None
        name = f"@{code}|es"
        assert set(told.listeners) == {
            ListenerPosition(name, "i1", page.born, 1),
            ListenerPosition(name, "i2", page.born, 1),
        }
        # The speaker is told that it passed: readers are enough of an audience.
        assert await s.passed() == [(0, "es")]

    play(server, scenario)


def test_captions_in_another_cell_come_once_and_in_order(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        code = code_in(s, rooms, "c1")
        rooms = await a_room(s, code)
        where = captions_of(rooms, code=code)
        for index in range(3):
            await say(s, index, where)
        assert await s.passed() == []
        await relayed(s)
        await relayed(s)
        page = await CaptionScripts(rooms).read(code, "", "es")
        assert page is not None
        assert [c.text for _, c in page.captions] == ["es 0", "es 1", "es 2"]
        assert [number for number, _ in page.captions] == [1, 2, 3]
        assert await s.passed() == [(0, "es"), (1, "es"), (2, "es")]
        assert "heard" not in await s.keys("c1")

    play(server, scenario)


def test_the_oldest_captions_are_removed_beyond_the_limits(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        for index in range(6):
            await say(s, index, captions_of(rooms))
            await relayed(s)
        assert await texts(rooms) == ["es 3", "es 4", "es 5"]
        page = await CaptionScripts(rooms).read(CODE, "", "es", born="another", after=4)
        assert page is not None
        assert (page.last, page.captions[0][0]) == (6, 4)
        assert await texts(rooms, born=page.born, after=4) == ["es 4", "es 5"]
        assert await texts(rooms, born=page.born, after=6) == []

    play(server, scenario, captions_max=3)
    entry = b"\x95" + b"123456789" + b"\xa3ann\xa3Ann0\xa4es 0"
    play(server, scenario, caption_bytes_max=3 * len(entry))


def test_readers_of_the_spoken_language_get_the_words(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        await say(s, 0, captions_of(rooms), readers=captions_of(rooms, "en"))
        await relayed(s)
        assert (await texts(rooms), await texts(rooms, "en")) == (["es 0"], ["said 0"])

    play(server, scenario)


def test_an_utterance_without_a_result_is_no_caption(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        await s.say(0, captions_of(rooms), kind="failed")
        # A result that is not one of ours.
        await s.say(1, captions_of(rooms), payload=b"\xc1")
        await say(s, 2, captions_of(rooms))
        await relayed(s)
        assert await texts(rooms) == ["es 2"]

    play(server, scenario)


def test_captions_end_with_their_room(server: servers.Server) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        await rooms.feed(CODE, "", "es", "i1", 1)
        await say(s, 0, captions_of(rooms))
        await relayed(s)
        # Readers do not keep the room of a last member.
        await rooms.leave(CODE, (RoomVisit("ann"),))
        assert await CaptionScripts(rooms).read(CODE, "", "es") is None
        # What was still under way is dropped.
        await say(s, 1, captions_of(rooms))
        await relayed(s)
        assert await s.passed() == [(0, "es"), (1, "es")]
        cell = rooms.cell_of(CODE)
        assert await s.connection.command(cell.slot, "KEYS", f"{cell.base}captions*") == []
        assert (await rooms.feed(CODE, "", "es", "i1", 1)).why == "no_room"

    play(server, scenario)


def test_readers_are_bounded_in_languages_and_forgotten_when_silent(
    server: servers.Server,
) -> None:
    async def scenario(s: Stage) -> None:
        rooms = await a_room(s)
        await rooms.feed(CODE, "", "es", "i1", 1)
        await rooms.feed(CODE, "", "fr", "i1", 1)
        assert (await rooms.feed(CODE, "", "de", "i1", 1)).why == "full"
        assert (await rooms.feed(CODE, "other", "es", "i1", 1)).why == "no_room"
        left = await rooms.feed(CODE, "", "fr", "i1", -1)
        assert left.room is not None
        assert left.room.feeds == {"es": {"i1": 1}}
        rooms.runner.now_ms += 29_000
        kept = await rooms.check(CODE)
        rooms.runner.now_ms += 1_000
        gone = await rooms.check(CODE)
        assert kept.room is not None
        assert gone.room is not None
        assert (kept.room.feeds, gone.room.feeds) == ({"es": {"i1": 1}}, {})
        assert gone.room.version > kept.room.version

    play(server, scenario)
