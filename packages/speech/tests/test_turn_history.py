"""The history of turns: order, waiting, limits."""

from __future__ import annotations

import asyncio

import pytest

from engine_node import run
from lingua_speech.turn_history import AGE_S, ENDED_AGE_S, TurnHistory

pytestmark = pytest.mark.unit


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_slice_gets_the_text_of_the_one_before_it() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        first = turns.enter("t", 4, continues=True)
        assert await first.previous_text(5) is None
        first.leave("one two")
        assert await turns.enter("t", 5, continues=True).previous_text(5) == "one two"

    run(scenario())


def test_a_slice_waits_until_the_one_before_is_recognised() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        first = turns.enter("t", 0, continues=True)
        second = asyncio.create_task(turns.enter("t", 1, continues=False).previous_text(20))
        await asyncio.sleep(0)
        assert not second.done()
        first.leave("known now")
        assert await second == "known now"

    run(scenario())


def test_the_wait_is_bounded_and_a_failed_slice_is_not_waited_for() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        stuck = turns.enter("t", 0, continues=True)
        assert await turns.enter("t", 1, continues=True).previous_text(0.01) is None
        stuck.leave()
        assert await turns.enter("t", 1, continues=True).previous_text(20) is None

    run(scenario())


def test_all_languages_of_a_slice_have_the_same_context() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        turns.enter("t", 0, continues=True).leave("before")
        one = turns.enter("t", 1, continues=False)
        assert await one.previous_text(20) == "before"
        one.leave("mine")
        late = turns.enter("t", 1, continues=False)
        assert await late.previous_text(20) == "before"

    run(scenario())


def test_one_language_giving_up_does_not_end_the_wait_for_the_other() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        spanish, french = (turns.enter("t", 0, continues=True) for _ in range(2))
        after = turns.enter("t", 1, continues=False)
        spanish.leave()
        assert await after.previous_text(0.01) is None
        french.leave("heard")
        assert await after.previous_text(20) == "heard"

    run(scenario())


def test_leaving_twice_counts_once() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        first = turns.enter("t", 0, continues=True)
        first.leave("text")
        first.leave()
        assert await turns.enter("t", 1, continues=True).previous_text(20) == "text"

    run(scenario())


def test_turns_know_nothing_of_each_other_and_a_job_without_one_has_none() -> None:
    async def scenario() -> None:
        turns = TurnHistory()
        turns.enter("a", 0, continues=True).leave("of a")
        turns.enter(None, 1, continues=True).leave("of nobody")
        assert await turns.enter("b", 2, continues=True).previous_text(20) is None
        assert await turns.enter(None, 3, continues=True).previous_text(20) is None

    run(scenario())


def test_old_turns_are_forgotten_and_ended_ones_sooner() -> None:
    async def scenario() -> None:
        clock = Clock()
        turns = TurnHistory(clock=clock)
        turns.enter("going on", 0, continues=True).leave("a")
        turns.enter("ended", 0, continues=False).leave("b")
        clock.now = ENDED_AGE_S
        turns.enter(None, 0, continues=False)
        assert len(turns) == 1
        assert await turns.enter("going on", 1, continues=True).previous_text(20) == "a"
        clock.now += AGE_S
        turns.enter(None, 0, continues=False)
        assert len(turns) == 0

    run(scenario())


def test_there_are_never_more_turns_than_the_bound() -> None:
    async def scenario() -> None:
        turns = TurnHistory(turns_max=3)
        for number in range(10):
            turns.enter(f"t{number}", 0, continues=True).leave(str(number))
        assert len(turns) == 3
        assert await turns.enter("t9", 1, continues=True).previous_text(20) == "9"
        assert await turns.enter("t1", 1, continues=True).previous_text(20) is None

    run(scenario())
