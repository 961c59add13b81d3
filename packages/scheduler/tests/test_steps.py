"""Steps: coroutines that need a task only if they wait for something other than an answer."""

from __future__ import annotations

import asyncio

import pytest

from lingua_scheduler.steps import RUNNING, Answer
from lingua_scheduler.tasks import Tasks

pytestmark = pytest.mark.unit


class Desk:
    """Tasks whose errors are kept, and what the steps of a test did."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.done: list[object] = []
        self.tasks = Tasks(self.errors.append)

    async def note(self, answer: Answer) -> None:
        """Note an answer, or its error."""
        try:
            self.done.append(await answer)
        except ConnectionError as error:
            self.done.append(error)


def test_a_step_runs_at_once_and_goes_on_with_its_answer() -> None:
    async def scenario() -> None:
        desk, answer = Desk(), Answer()
        desk.tasks.begin(desk.note(answer))
        assert len(desk.tasks) == 1
        assert not asyncio.all_tasks() - {asyncio.current_task()}
        answer.set_result("yes")
        # No turn of the loop in between.
        assert desk.done == ["yes"]
        assert not len(desk.tasks)

    asyncio.run(scenario())


def test_an_error_in_place_of_the_answer_is_raised_in_the_step() -> None:
    async def scenario() -> None:
        desk, answer, problem = Desk(), Answer(), ConnectionError("lost")
        desk.tasks.begin(desk.note(answer))
        answer.set_exception(problem)
        assert desk.done == [problem]
        assert answer.exception() is problem
        assert not desk.errors

    asyncio.run(scenario())


def test_an_answer_that_is_there_already_is_not_waited_for() -> None:
    async def scenario() -> None:
        desk, answer = Desk(), Answer()
        answer.set_result(1)
        desk.tasks.begin(desk.note(answer))
        assert desk.done == [1]
        refused = Answer()
        refused.set_exception(ConnectionError("down"))
        desk.tasks.begin(desk.note(refused))
        assert [type(item) for item in desk.done[1:]] == [ConnectionError]

    asyncio.run(scenario())


def test_the_error_of_a_step_is_reported_and_others_go_on() -> None:
    async def scenario() -> None:
        desk, first, second = Desk(), Answer(), Answer()

        async def fails(answer: Answer) -> None:
            raise ValueError(await answer)

        desk.tasks.begin(fails(first))
        desk.tasks.begin(desk.note(second))
        first.set_result("of one session")
        second.set_result("of another")
        assert [str(error) for error in desk.errors] == ["of one session"]
        assert desk.done == ["of another"]
        assert RUNNING.step is None

    asyncio.run(scenario())


def test_a_step_that_begins_another_goes_on_after_it() -> None:
    async def scenario() -> None:
        desk, own, inner = Desk(), Answer(), Answer()

        async def outer() -> None:
            desk.tasks.begin(desk.note(inner))
            desk.done.append(await own)

        desk.tasks.begin(outer())
        own.set_result("outer")
        inner.set_result("inner")
        assert desk.done == ["outer", "inner"]

    asyncio.run(scenario())


def test_a_step_that_waits_for_something_else_becomes_a_task() -> None:
    async def scenario() -> None:
        desk, gate, asks = Desk(), asyncio.Event(), asyncio.Event()
        before, after = Answer(), Answer()

        async def work() -> None:
            desk.done.append(await before)
            await gate.wait()
            desk.done.append(asyncio.current_task() is not None)
            async with asyncio.timeout(60):
                await asyncio.sleep(0)
            asks.set()
            desk.done.append(await after)

        desk.tasks.begin(work())
        before.set_result("before")
        await asyncio.sleep(0)
        assert desk.done == ["before"]
        assert len(desk.tasks) == 1
        gate.set()
        await asks.wait()
        after.set_result("after")
        await desk.tasks.rest(60)
        assert desk.done == ["before", True, "after"]
        assert not desk.errors

    asyncio.run(scenario())


def test_the_error_of_what_a_step_waits_for_is_raised_in_it() -> None:
    async def scenario() -> None:
        desk = Desk()
        future = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                await future
            except ConnectionError as error:
                desk.done.append(error)
            await asyncio.sleep(0)
            desk.done.append("end")

        desk.tasks.begin(work())
        problem = ConnectionError("lost")
        future.set_exception(problem)
        await desk.tasks.rest(60)
        assert desk.done == [problem, "end"]

    asyncio.run(scenario())


def test_a_task_may_await_an_answer_and_be_cancelled_meanwhile() -> None:
    async def scenario() -> None:
        desk, answer, unwanted = Desk(), Answer(), Answer()
        waits = asyncio.create_task(desk.note(answer))
        gives_up = asyncio.create_task(desk.note(unwanted))
        await asyncio.sleep(0)
        gives_up.cancel()
        answer.set_result("yes")
        await asyncio.wait([waits, gives_up])
        assert desk.done == ["yes"]
        assert gives_up.cancelled()
        # The call is not sent again: nobody waits for it.
        assert unwanted.done()
        unwanted.set_result("late")

    asyncio.run(scenario())


def test_the_end_closes_steps_that_wait_and_begins_no_more() -> None:
    async def scenario() -> None:
        desk, answer = Desk(), Answer()

        async def work() -> None:
            try:
                await answer
            finally:
                desk.done.append("closed")

        desk.tasks.begin(work())
        await desk.tasks.end()
        assert desk.done == ["closed"]
        assert answer.done()
        desk.tasks.begin(desk.note(Answer()))
        assert not len(desk.tasks)
        assert not desk.errors

    asyncio.run(scenario())


def test_resting_waits_for_steps_too() -> None:
    async def scenario() -> None:
        desk, answer = Desk(), Answer()
        desk.tasks.begin(desk.note(answer))
        rest = asyncio.create_task(desk.tasks.rest(60))
        await asyncio.sleep(0)
        assert not rest.done()
        answer.set_result("yes")
        await rest
        assert desk.done == ["yes"]

    asyncio.run(scenario())
