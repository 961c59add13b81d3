"""Writes that wait for the end of a turn of the loop: each leaves once, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from lingua_scheduler.pending_writes import PendingWrites, pending_writes

pytestmark = pytest.mark.unit

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


@LOOPS
def test_what_waits_leaves_after_this_turn_in_order(run: Any) -> None:
    async def scenario() -> None:
        sent: list[int] = []
        writes = pending_writes()
        for number in range(3):
            writes.add(lambda number=number: sent.append(number))
        assert sent == []
        await asyncio.sleep(0)
        assert sent == [0, 1, 2]

    run(scenario())


@LOOPS
def test_what_has_left_earlier_does_not_leave_again(run: Any) -> None:
    async def scenario() -> None:
        sent: list[str] = []
        writes = pending_writes()
        writes.add(lambda: sent.append("first"))
        writes.send_all()
        assert sent == ["first"]
        writes.add(lambda: sent.append("second"))
        await asyncio.sleep(0)
        assert sent == ["first", "second"]
        writes.send_all()
        await asyncio.sleep(0)
        assert sent == ["first", "second"]

    run(scenario())


def test_an_error_of_one_is_reported_and_concerns_no_other() -> None:
    async def scenario() -> None:
        loop, sent, told = asyncio.get_running_loop(), list[str](), list[Any]()
        loop.set_exception_handler(lambda _, about: told.append(about["exception"]))

        def fail() -> None:
            raise RuntimeError("closed")

        writes = PendingWrites()
        writes.add(fail)
        writes.add(lambda: sent.append("other"))
        await asyncio.sleep(0)
        assert sent == ["other"]
        assert [str(error) for error in told] == ["closed"]

    asyncio.run(scenario())


def test_what_is_added_while_others_leave_waits_for_the_next_turn() -> None:
    async def scenario() -> None:
        sent: list[str] = []
        writes = pending_writes()
        writes.add(lambda: writes.add(lambda: sent.append("later")))
        writes.send_all()
        assert sent == []
        await asyncio.sleep(0)
        assert sent == ["later"]

    asyncio.run(scenario())


def test_a_loop_has_its_own_and_shares_them_with_no_other() -> None:
    async def found() -> PendingWrites:
        assert pending_writes() is pending_writes()
        return pending_writes()

    assert asyncio.run(found()) is not asyncio.run(found())
