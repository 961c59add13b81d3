"""`lingua serve --workers 2` with real processes: even, killed, restarted in turn, and ended.

The workers and their supervisor are killed by their pid; the nodes and the sessions are those of
the SDKs, in this process.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
import uvloop

from lingua_bench.chaos.process import until as until_async
from lingua_bench.chaos.scheduler_process import UTTERANCES, read_page
from lingua_scheduler.edge.answers import SessionPage
from servers import until
from stress.serving import data_dir, metrics_of
from stress.test_embedded_kills import nothing_is_left
from stress.worker_stage import BOUND_S, Speaker, WorkerStage, workers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

pytestmark = pytest.mark.stress

REPLACED = "scheduler_workers_replaced_total"
SESSIONS, NODES, TURNS = 6, 4, 3


def play(scenario: Callable[[WorkerStage], Coroutine[Any, Any, None]], place: Path) -> None:
    async def whole() -> None:
        async with asyncio.timeout(90), workers(place) as stage:
            await scenario(stage)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


async def evenly(stage: WorkerStage) -> bool:
    """Tell whether both workers have two nodes."""
    return sorted((await stage.nodes_by_worker()).values()) == [2, 2]


async def speak(speakers: list[Speaker], turns: int) -> None:
    for _ in range(turns):
        await asyncio.gather(*(speaker.say() for speaker in speakers))


def test_clients_and_nodes_are_even_and_any_worker_answers_for_all(tmp_path: Path) -> None:
    async def scenario(stage: WorkerStage) -> None:
        await stage.nodes(NODES)
        await until_async(lambda: evenly(stage), BOUND_S, "both have two nodes")
        speakers = [await stage.speaker() for _ in range(SESSIONS)]
        await speak(speakers, TURNS)
        for speaker in speakers:
            await speaker.heard_all()
        # Each of these is a connection of its own: they reach both workers.
        for _ in range(4):
            page = await read_page(f"{stage.server.url}/api/v1/sessions")
            found = {one.id for one in msgspec.json.decode(page, type=SessionPage).sessions}
            assert found == {speaker.session.id for speaker in speakers}
            counts = await metrics_of(stage.server)
            assert counts[UTTERANCES] == SESSIONS * TURNS
            assert counts["scheduler_workers"] == 2
            assert counts["scheduler_sessions"] == SESSIONS
        for speaker in speakers:
            await speaker.end()

    play(scenario, tmp_path)


def test_a_killed_worker_is_replaced_and_costs_no_speech(tmp_path: Path) -> None:
    async def scenario(stage: WorkerStage) -> None:
        await stage.nodes(NODES)
        await until_async(lambda: evenly(stage), BOUND_S, "both have two nodes")
        speakers = [await stage.speaker() for _ in range(SESSIONS)]
        before = 0
        for kills in (1, 2):
            victim = stage.pids()[0]
            speaking = asyncio.create_task(speak(speakers, 8))
            await until(lambda: speakers[0].said % 24 > 6, BOUND_S, "they speak")
            os.kill(victim, signal.SIGKILL)
            await speaking
            await until(lambda: victim not in stage.pids(), BOUND_S, "it is gone")  # noqa: B023
            await until(lambda: len(stage.pids()) == 2, BOUND_S, "it is replaced")
            for speaker in speakers:
                await speaker.heard_all()
            counts = await metrics_of(stage.server)
            assert counts[REPLACED] == kills
            # A counter of the service never decreases.
            assert counts[UTTERANCES] >= before
            before = counts[UTTERANCES]
            await until_async(lambda: evenly(stage), BOUND_S, "the nodes are even again")
        for speaker in speakers:
            await speaker.end()
        assert sum(speaker.session.resumes for speaker in speakers) >= SESSIONS

    play(scenario, tmp_path)


def test_a_restart_in_turn_moves_the_sessions_and_loses_no_counter(tmp_path: Path) -> None:
    async def scenario(stage: WorkerStage) -> None:
        await stage.nodes(NODES)
        await until_async(lambda: evenly(stage), BOUND_S, "both have two nodes")
        speakers = [await stage.speaker() for _ in range(SESSIONS)]
        await speak(speakers, 2)
        old = set(stage.pids())
        os.kill(stage.server.pid, signal.SIGHUP)
        turns = 2
        while old & set(stage.pids()) or len(stage.pids()) < 2:
            assert stage.pids(), "one of them always serves"
            await speak(speakers, 1)
            turns += 1
        for speaker in speakers:
            await speaker.heard_all()
            await speaker.end()
        counts = await metrics_of(stage.server)
        assert counts[REPLACED] == 0
        # An outcome that was on its way during a move may be sent, and counted, twice.
        assert counts["scheduler_jobs_total"] >= SESSIONS * turns

    play(scenario, tmp_path)


def test_a_stop_finishes_what_was_accepted_on_all_workers(tmp_path: Path) -> None:
    async def scenario(stage: WorkerStage) -> None:
        # The only node is with one of them, and the sessions of the other need it to the end.
        await stage.nodes(1, work_s=0.5)
        speakers = [await stage.speaker() for _ in range(SESSIONS)]
        await speak(speakers, TURNS)
        accepted = await accepted_utterances(stage, SESSIONS * TURNS)
        assert sum(len(speaker.outcomes) for speaker in speakers) < accepted
        assert await stage.server.stop() == 0
        for speaker in speakers:
            await speaker.heard_all()
            speaker.check()

    play(scenario, tmp_path)


def test_a_killed_supervisor_leaves_no_process(tmp_path: Path) -> None:
    async def scenario(stage: WorkerStage) -> None:
        left = stage.pids()
        assert len(left) == 2
        await stage.server.kill()
        await until(lambda: not any(is_alive(pid) for pid in left), BOUND_S, "they have ended")
        await nothing_is_left(data_dir(tmp_path))

    play(scenario, tmp_path)


async def accepted_utterances(stage: WorkerStage, count: int) -> int:
    """Wait until the service has received so many utterances."""

    async def are_there() -> bool:
        return (await metrics_of(stage.server))[UTTERANCES] == count

    await until_async(are_there, BOUND_S, "all utterances are accepted")
    return count


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
