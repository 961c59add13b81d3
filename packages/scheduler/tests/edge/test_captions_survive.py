"""Captions over several instances: readers and speakers on different ones, and one that dies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from edge.caption_readers import browser
from edge.live_server import opus
from edge.many_servers import play
from edge.test_rooms import a_room

if TYPE_CHECKING:
    from edge.many_servers import Company

pytestmark = pytest.mark.store


def test_a_reader_of_a_killed_instance_reads_on_at_another_without_gap_or_repetition() -> None:
    async def scenario(company: Company) -> None:
        speaks, reads_here, survives = company["A"], company["B"], company["C"]
        await company.until_met()
        node = await speaks.node()
        code, speaker = await a_room(speaks)
        async with browser() as http:

            async def say(index: int) -> None:
                await speaker.say(opus(200), is_final=True)
                await node.answer(await node.job(tgt_lang="en"), f"said {index}")

            reader = await http.read(f"{reads_here.server.url}/captions/{code}", lang="en")
            for index in range(3):
                await say(index)
            await reader.expect("caption", text="said 1:en")
            await reads_here.crash()
            # The room still has its reader: it is said to be there for a while.
            await say(3)
            back = await http.read(
                f"{survives.server.url}/captions/{code}", lang="en", last_id=reader.last_id
            )
            await say(4)
            await back.expect("caption", text="said 4:en")
            assert reader.texts + back.texts == [f"said {index}:en" for index in range(5)]

    play(scenario, "ABC")


def test_a_reader_elsewhere_is_told_of_the_end_of_the_room() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        code, speaker = await a_room(company["A"])
        async with browser() as http:
            reader = await http.read(f"{company['B'].server.url}/captions/{code}", lang="en")
            await reader.expect("members", readers=0)
            await speaker.send("room_leave", room_code=code)
            async with asyncio.timeout(20):
                await reader.expect("end")

    play(scenario)


def test_an_instance_that_stops_lets_its_readers_go() -> None:
    async def scenario(company: Company) -> None:
        await company.until_met()
        code, _ = await a_room(company["A"])
        async with browser() as http:
            reader = await http.read(f"{company['B'].server.url}/captions/{code}", lang="en")
            await reader.expect("members")
            await company["B"].drain()
            while await reader.next():
                assert reader.events[-1]["type"] != "end"
            back = await http.read(f"{company['A'].server.url}/captions/{code}", lang="en")
            await back.expect("members")

    play(scenario)
