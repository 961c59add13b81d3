"""A flag that coroutines wait for."""

from __future__ import annotations

import asyncio

import pytest

from lingua_scheduler.flag import Flag

pytestmark = pytest.mark.unit


def test_everyone_who_waits_goes_on_when_it_is_set_even_if_it_is_cleared_at_once() -> None:
    async def scenario() -> None:
        flag = Flag()
        waiting = [asyncio.create_task(flag.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        flag.set()
        flag.clear()
        await asyncio.gather(*waiting)
        assert not flag.is_set()

    asyncio.run(scenario())


def test_nobody_waits_for_a_flag_that_is_set() -> None:
    async def scenario() -> None:
        flag = Flag(is_set=True)
        assert flag.is_set()
        await flag.wait()
        flag.clear()
        waits = asyncio.create_task(flag.wait())
        await asyncio.sleep(0)
        assert not waits.done()
        flag.set()
        await waits

    asyncio.run(scenario())


def test_one_that_was_cancelled_is_forgotten_and_the_others_go_on() -> None:
    async def scenario() -> None:
        flag = Flag()
        gone, stays = asyncio.create_task(flag.wait()), asyncio.create_task(flag.wait())
        await asyncio.sleep(0)
        gone.cancel()
        flag.set()
        await stays
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(scenario())
