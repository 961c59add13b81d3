"""Tasks of one owner: none fails unseen, none outlives its owner."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from lingua_scheduler.tasks import Tasks

pytestmark = pytest.mark.unit


async def fails(error: Exception) -> None:
    raise error


async def settled(tasks: Tasks) -> None:
    """Let the loop go round until nothing runs, but not for ever."""
    for _ in range(100):
        if not len(tasks):
            return
        await asyncio.sleep(0)
    raise AssertionError("tasks are still running")


def test_a_task_runs_and_is_forgotten_when_it_ends() -> None:
    async def scenario() -> None:
        ran: list[int] = []
        tasks = Tasks(ran_into_nothing)

        async def work() -> None:
            ran.append(1)

        tasks.start(work())
        assert len(tasks) == 1
        await settled(tasks)
        assert ran == [1]

    asyncio.run(scenario())


def test_an_error_is_reported_and_the_others_go_on() -> None:
    async def scenario() -> None:
        errors: list[BaseException] = []
        tasks = Tasks(errors.append)
        gate, done = asyncio.Event(), asyncio.Event()

        async def waits() -> None:
            await gate.wait()
            done.set()

        trouble = ValueError("of one session")
        tasks.start(waits())
        tasks.start(fails(trouble))
        for _ in range(100):
            if errors:
                break
            await asyncio.sleep(0)
        assert errors == [trouble]
        assert len(tasks) == 1
        gate.set()
        await settled(tasks)
        assert done.is_set()

    asyncio.run(scenario())


def test_the_end_cancels_what_runs_and_waits_for_its_last_words() -> None:
    async def scenario() -> None:
        errors: list[BaseException] = []
        tasks = Tasks(errors.append)
        done: list[str] = []
        started = asyncio.Event()

        async def tidy() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                done.append("tidied up")

        tasks.start(tidy())
        await started.wait()
        await tasks.end()
        assert done == ["tidied up"]
        assert len(tasks) == 0
        assert errors == []

    asyncio.run(scenario())


def test_an_error_while_being_cancelled_is_reported_too() -> None:
    async def scenario() -> None:
        errors: list[BaseException] = []
        tasks = Tasks(errors.append)
        started = asyncio.Event()
        trouble = OSError("while tidying up")

        async def stumbles() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise trouble

        tasks.start(stumbles())
        await started.wait()
        await tasks.end()
        assert errors == [trouble]

    asyncio.run(scenario())


def test_nothing_starts_after_the_end() -> None:
    async def scenario() -> None:
        tasks = Tasks(ran_into_nothing)
        await tasks.end()
        ran: list[int] = []

        async def late() -> None:
            ran.append(1)

        work = late()
        tasks.start(work)
        assert len(tasks) == 0
        await asyncio.sleep(0)
        assert ran == []
        assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED

    asyncio.run(scenario())


def test_what_a_cancelled_task_starts_does_not_run() -> None:
    async def scenario() -> None:
        tasks = Tasks(ran_into_nothing)
        started = asyncio.Event()
        ran: list[int] = []

        async def late() -> None:
            ran.append(1)

        async def hands_on() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                tasks.start(late())

        tasks.start(hands_on())
        await started.wait()
        await tasks.end()
        await asyncio.sleep(0)
        assert ran == []
        assert len(tasks) == 0

    asyncio.run(scenario())


def ran_into_nothing(error: BaseException) -> None:
    raise AssertionError("no error was expected") from error
