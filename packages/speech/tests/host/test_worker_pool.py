"""Pools of well-behaved worker processes: selection, order and end."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from host.worker_pools import CALL_S, exists, pool_of, run, say, until
from lingua_speech.engine import EngineError, Hint, ModelMissing, Sound, Transcript
from lingua_speech.host import (
    CallPreempted,
    Urgency,
    WorkerBusy,
    WorkerLost,
    WorkerPool,
    WorkerPoolRules,
)
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.stress

SOUND = Sound(bytes(range(256)) * 625, 16_000)


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def ask_every_role() -> None:
    roles = ("asr", "tts", "vad", "lid")
    async with pool_of(*(f"{role}=allround" for role in roles), "mt=obedient") as pool:
        assert set(pool.abouts) == set(range(5))
        heard = await pool.call(0, SOUND, Hint(language="en"), timeout_s=CALL_S)
        assert heard == Transcript(text=f"160000 {sum(range(64))}", language="en")
        spoken = await pool.call(1, "300001", "en", timeout_s=CALL_S)
        assert spoken == Sound(bytes([7]) * 300_001, 16_000)
        assert await pool.call(2, SOUND, timeout_s=CALL_S) == ((0, 5000),)
        told = await pool.call(3, "x", ("en", "es"), timeout_s=CALL_S)
        assert told == {"en": 0.5, "es": 0.5}
        assert await pool.call(4, "say hola", "en", "es", timeout_s=CALL_S) == "hola"


def test_engines_of_every_role_of_another_package_are_asked_in_one_process() -> None:
    run(ask_every_role())


def test_it_is_the_same_on_the_event_loop_that_nodes_use() -> None:
    uvloop.run(ask_every_role())


def test_an_unknown_engine_starts_nothing() -> None:
    async def scenario() -> None:
        pool = WorkerPool([Spec("mt", "obedient"), Spec("mt", "nobody")])
        with pytest.raises(ConfigError, match="no engine 'nobody'"):
            await pool.start()
        assert pool.pids == []

    run(scenario())


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("mt=allround", "has no translate"),
        ("mt=obedient:colour=red", "unknown option 'colour'"),
        ("vad=liar", "about.. is not well formed"),
    ],
)
def test_an_engine_that_cannot_be_as_configured_starts_nothing(spec: str, problem: str) -> None:
    async def scenario() -> None:
        # Also next to a valid one: an invalid setting must be visible.
        pool = WorkerPool([Spec.parse("mt=obedient"), Spec.parse(spec)])
        with pytest.raises(ConfigError, match=problem):
            await pool.start()
        assert pool.pids == []
        assert not pool.is_ready

    run(scenario())


def test_one_engine_without_its_model_leaves_the_others() -> None:
    async def scenario() -> None:
        async with pool_of("mt=absent", "mt=obedient", "mt=obedient:load=missing") as pool:
            assert list(pool.abouts) == [1]
            assert sorted(pool.failures) == [0, 2]
            for _ in range(2):
                with pytest.raises(ModelMissing, match="lingua models install obedient"):
                    await pool.call(2, "say x", "en", "es", timeout_s=CALL_S)
            assert await pool.call(1, "say x", "en", "es", timeout_s=CALL_S) == "x"

    run(scenario())


def test_a_crew_of_which_no_engine_loads_says_why() -> None:
    async def scenario() -> None:
        pool = WorkerPool([Spec.parse("mt=obedient:load=missing")], WorkerPoolRules(workers=2))
        with pytest.raises(ModelMissing, match="lingua models install obedient"):
            await pool.start()
        assert pool.pids == []
        broken = WorkerPool([Spec.parse("mt=obedient:load=quote")])
        with pytest.raises(EngineError, match="ValueError") as told:
            await broken.start()
        assert "secret" not in str(told.value)

    run(scenario())


def test_whoever_watches_is_told_of_loading_and_of_being_ready() -> None:
    async def scenario() -> None:
        seen: list[tuple[str, str]] = []
        pool = WorkerPool(
            [Spec.parse("mt=obedient:load=slow")],
            on_state=lambda state, detail: seen.append((state, detail)),
        )
        starting = asyncio.create_task(pool.start())
        await until(lambda: pool.pids)
        assert not pool.is_ready
        await starting
        assert pool.is_ready
        assert pool.load_s >= 1.0
        await until(lambda: seen == [("loading", ""), ("ready", "")])
        await pool.close()
        assert not pool.is_ready

    run(scenario())


def test_calls_are_done_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            order: list[str] = []

            async def ask(text: str) -> None:
                order.append(await say(pool, f"say {text}"))

            first = asyncio.create_task(say(pool, f"wait_for {tmp_path / 'a'} {tmp_path / 'b'}"))
            await until((tmp_path / "a").exists)
            asks = [asyncio.create_task(ask(str(number))) for number in range(20)]
            await until(lambda: pool.waiting == 20)
            (tmp_path / "b").touch()
            await asyncio.gather(first, *asks)
            assert order == [str(number) for number in range(20)]

    run(scenario())


def test_urgent_calls_are_done_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            order: list[str] = []

            async def ask(urgency: Urgency) -> None:
                order.append(await say(pool, f"say {urgency.name}", urgency=urgency))

            first = asyncio.create_task(say(pool, f"wait_for {tmp_path / 'a'} {tmp_path / 'b'}"))
            await until((tmp_path / "a").exists)
            urgencies = (Urgency.CAPTION, Urgency.HEAD_START, Urgency.JOB) * 2
            asks = [asyncio.create_task(ask(urgency)) for urgency in urgencies]
            await until(lambda: pool.waiting == 6)
            (tmp_path / "b").touch()
            await asyncio.gather(first, *asks)
            assert order == [name for name in ("JOB", "HEAD_START", "CAPTION") for _ in range(2)]

    run(scenario())


@pytest.mark.parametrize("urgency", [Urgency.JOB, Urgency.HEAD_START])
def test_a_call_for_a_caption_is_stopped_for_a_more_urgent_one(
    urgency: Urgency, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            waits = f"wait_for {tmp_path / 'a'} {tmp_path / 'never'}"
            caption = asyncio.create_task(say(pool, waits, urgency=Urgency.CAPTION))
            await until((tmp_path / "a").exists)
            assert await say(pool, "say now", urgency=urgency) == "now"
            with pytest.raises(CallPreempted):
                await caption
            assert pool.restarts == 0

    run(scenario())


def test_a_head_start_is_not_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            waits = f"wait_for {tmp_path / 'a'} {tmp_path / 'b'}"
            early = asyncio.create_task(say(pool, waits, urgency=Urgency.HEAD_START))
            await until((tmp_path / "a").exists)
            job = asyncio.create_task(say(pool, "say later"))
            await until(lambda: pool.waiting == 1)
            (tmp_path / "b").touch()
            await early
            assert await job == "later"

    run(scenario())


def test_a_worker_that_does_not_notice_a_stopped_caption_is_not_killed_for_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", grace_s=0.01) as pool:
            # It sleeps without a look at its watch, for longer than the grace.
            caption = asyncio.create_task(
                say(pool, f"nap {tmp_path / 'a'}", urgency=Urgency.CAPTION)
            )
            await until((tmp_path / "a").exists)
            caption.cancel()
            assert await say(pool, "say next") == "next"
            assert pool.restarts == 0

    run(scenario())


def test_no_more_calls_wait_than_the_rules_allow(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", queue_max=2) as pool:
            first = asyncio.create_task(say(pool, f"wait_for {tmp_path / 'a'} {tmp_path / 'b'}"))
            await until((tmp_path / "a").exists)
            others = [asyncio.create_task(say(pool, f"say {number}")) for number in range(2)]
            await until(lambda: pool.waiting == 2)
            with pytest.raises(WorkerBusy):
                await say(pool, "say one too many")
            (tmp_path / "b").touch()
            assert await asyncio.gather(*others) == ["0", "1"]
            await first
            assert await say(pool, "say again") == "again"

    run(scenario())


def test_a_call_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", wait_s=0.2) as pool:
            first = asyncio.create_task(say(pool, f"wait_for {tmp_path / 'a'} {tmp_path / 'b'}"))
            await until((tmp_path / "a").exists)
            with pytest.raises(WorkerBusy):
                await say(pool, "say x")
            assert pool.waiting == 0
            (tmp_path / "b").touch()
            await first

    run(scenario())


def test_two_workers_work_at_the_same_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", workers=2) as pool:
            await until(lambda: len(pool.pids) == 2)
            paths = [(tmp_path / name, tmp_path / "go") for name in ("a", "b")]
            asks = [asyncio.create_task(say(pool, f"wait_for {a} {go}")) for a, go in paths]
            await until(lambda: all(begun.exists() for begun, _ in paths))
            (tmp_path / "go").touch()
            pids = await asyncio.gather(*asks)
            assert sorted(map(int, pids)) == pool.pids

    run(scenario())


def test_partial_results_come_in_order_and_not_too_often() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", partial_ms=100) as pool:
            seen: list[int] = []
            began_s = time.monotonic()
            await say(pool, "partials x", partial=lambda text: seen.append(int(text)))
            took_ms = (time.monotonic() - began_s) * 1000
            assert seen == sorted(set(seen))
            assert 2 <= len(seen) <= took_ms / 100 + 1

    run(scenario())


def test_an_error_of_whoever_hears_partial_results_does_not_hurt_the_call() -> None:
    async def scenario() -> None:
        faults: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
        async with pool_of("mt=obedient") as pool:
            assert await say(pool, "partials x", partial=lambda text: int(text + "!")) == "x"
            assert {type(fault) for fault in faults} == {ValueError}
            assert await say(pool, "say x") == "x"
            assert pool.restarts == 0

    run(scenario())


def test_engines_are_closed_when_the_crew_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        closed = tmp_path / "closed"
        async with pool_of(f"mt=obedient:closed={closed}") as pool:
            pid = pool.pids[0]
        assert closed.read_text() == str(pid)
        with pytest.raises(WorkerLost) as lost:
            await say(pool, "say x")
        assert lost.value.why == "closed"

    run(scenario())


def test_closing_under_load_ends_every_call_and_every_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", workers=2, close_s=0.3) as pool:
            await until(lambda: len(pool.pids) == 2)
            pids = pool.pids
            deaf = [asyncio.create_task(say(pool, f"deaf {tmp_path / n}")) for n in ("a", "b")]
            waiting = [asyncio.create_task(say(pool, "say x")) for _ in range(10)]
            await until(lambda: all((tmp_path / name).exists() for name in ("a", "b")))
            await pool.close()
            ends = await asyncio.gather(*deaf, *waiting, return_exceptions=True)
            assert [getattr(end, "why", end) for end in ends] == ["closed"] * 12
            assert not [pid for pid in pids if exists(pid)]

    run(scenario())


def test_closing_twice_and_being_cancelled_in_between_still_ends_every_process(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", close_s=1.0) as pool:
            pids = pool.pids
            ask = asyncio.create_task(say(pool, f"deaf {tmp_path / 'a'}"))
            await until((tmp_path / "a").exists)
            closing = asyncio.create_task(pool.close())
            with pytest.raises(WorkerLost):
                await ask
            closing.cancel()
            await pool.close()
            assert not [pid for pid in pids if exists(pid)]

    run(scenario())


def test_an_error_of_whoever_watches_does_not_hurt_the_crew() -> None:
    async def scenario() -> None:
        faults: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
        async with pool_of("mt=obedient", on_state=lambda state, _: int(state)) as pool:
            assert await say(pool, "say x") == "x"
        assert {type(fault) for fault in faults} == {ValueError}

    run(scenario())


def test_the_kernel_would_rather_end_a_worker_than_its_node() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            assert oom_score(pool.pids[0]) == min(oom_score(os.getpid()) + 300, 1000)

    run(scenario())


def test_closing_while_loading_ends_the_start() -> None:
    async def scenario() -> None:
        pool = WorkerPool([Spec.parse("mt=obedient:load=hang")])
        starting = asyncio.create_task(pool.start())
        await until(lambda: pool.pids)
        pid = pool.pids[0]
        await pool.close()
        with pytest.raises(WorkerLost) as lost:
            await starting
        assert lost.value.why == "closed"
        assert not exists(pid)

    run(scenario())


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def scenario() -> None:
        pool = WorkerPool([Spec.parse("mt=obedient:load=hang")])
        starting = asyncio.create_task(pool.start())
        await until(lambda: pool.pids)
        pid = pool.pids[0]
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not exists(pid)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())


def test_a_crew_that_was_closed_does_not_start_and_can_be_closed_again() -> None:
    async def scenario() -> None:
        pool = WorkerPool([Spec.parse("mt=obedient")])
        await pool.close()
        with pytest.raises(WorkerLost) as lost:
            await pool.start()
        assert lost.value.why == "closed"
        await pool.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())


def test_many_calls_cancelled_at_random_lose_no_other_call_and_no_worker() -> None:
    async def scenario() -> None:
        chance = random.Random(5)
        async with pool_of("mt=obedient", workers=2, grace_s=20) as pool:
            files = open_files()
            for cycle in range(500):
                words = [f"{cycle}-{at}" for at in range(chance.randint(1, 6))]
                calls = {word: asyncio.create_task(say(pool, f"say {word}")) for word in words}
                for call in calls.values():
                    if chance.random() < 0.6:
                        await asyncio.sleep(chance.choice((0, 0, 0.0002, 0.0006)))
                        call.cancel()
                await asyncio.wait(calls.values())
                for word, call in calls.items():
                    assert call.cancelled() or call.result() == word
            assert (pool.restarts, pool.waiting) == (0, 0)
            assert open_files() == files

    run(scenario())


async def cancel_starts() -> None:
    for steps in range(14):
        pool = WorkerPool([Spec.parse("mt=obedient")])
        starting = asyncio.create_task(pool.start())
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        async with asyncio.timeout(30):
            await asyncio.wait({starting})
            await pool.close()
        assert starting.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_start_can_be_cancelled_at_any_step_on_either_loop(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(cancel_starts())
