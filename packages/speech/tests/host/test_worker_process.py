"""Engines that die, hang, use all memory, print, lie or ignore cancellation: nothing else fails."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from host.worker_pools import BOUND_S, exists, is_running, pool_of, run, say, until
from lingua_speech.engine import EngineError
from lingua_speech.host import WorkerLost, WorkerPool, WorkerPoolRules
from lingua_speech.plugins import Spec

pytestmark = pytest.mark.stress

# A node with two workers and one call; it prints their process ids and continues.
NODE = """
import asyncio, sys
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.plugins import Spec

async def main():
    pool = WorkerPool([Spec.parse("mt=obedient")], WorkerPoolRules(workers=2))
    await pool.start()
    while len(pool.pids) < 2:
        await asyncio.sleep(0.01)
    call = asyncio.create_task(pool.call(0, sys.argv[1], "en", "es", timeout_s=1000))
    await asyncio.sleep(0.1)
    print(*pool.pids, flush=True)
    await call

asyncio.run(main())
"""


async def lost_of(pool: WorkerPool, text: str, timeout_s: float = BOUND_S) -> WorkerLost:
    """Make a call that ends a worker; return the loss once the successor serves."""
    before = pool.pids
    with pytest.raises(WorkerLost) as lost:
        await say(pool, text, timeout_s)
    assert await say(pool, "say still here") == "still here"
    assert pool.is_ready
    assert pool.pids != before
    assert not [pid for pid in before if exists(pid)]
    return lost.value


def test_a_worker_killed_in_mid_call_is_replaced(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[str] = []
        async with pool_of("mt=obedient", on_state=lambda state, _: seen.append(state)) as pool:
            ask = asyncio.create_task(say(pool, f"deaf {tmp_path / 'begun'}"))
            await until((tmp_path / "begun").exists)
            os.kill(pool.pids[0], signal.SIGKILL)
            with pytest.raises(WorkerLost) as lost:
                await ask
            assert lost.value.why == "died"
            assert "mt=obedient" in lost.value.detail
            assert "SIGKILL" in lost.value.detail
            assert await say(pool, "say x") == "x"
            assert pool.restarts == 1
            assert pool.reason == lost.value.detail
            assert seen == ["loading", "ready", "lost", "loading", "ready"]

    run(scenario())


def test_a_worker_killed_while_idle_is_replaced() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            first = pool.pids
            os.kill(first[0], signal.SIGKILL)
            await until(lambda: pool.restarts == 1)
            assert not pool.is_ready
            # A call without a worker waits for the next one.
            assert await say(pool, "say x") == "x"
            assert pool.pids != first

    run(scenario())


def test_the_other_worker_goes_on_while_one_is_lost() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", workers=2) as pool:
            await until(lambda: len(pool.pids) == 2)
            asks = [asyncio.create_task(say(pool, f"say {number}")) for number in range(50)]
            with pytest.raises(WorkerLost):
                await say(pool, "die")
            assert pool.is_ready
            assert await asyncio.gather(*asks) == [str(number) for number in range(50)]

    run(scenario())


def test_calls_that_wait_behind_a_loss_are_not_lost() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            asks = [asyncio.create_task(say(pool, text)) for text in ("die", "say 1", "say 2")]
            ends = await asyncio.gather(*asks, return_exceptions=True)
            assert isinstance(ends[0], WorkerLost)
            assert ends[1:] == ["1", "2"]

    run(scenario())


@pytest.mark.parametrize("how", ["hang", "gil"])
def test_a_worker_that_hangs_is_killed_and_replaced(how: str) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            lost = await lost_of(pool, how, timeout_s=0.5)
            assert lost.why == "hung"
            assert lost.detail == "mt=obedient did not answer within 0.5 s"

    run(scenario())


@pytest.mark.parametrize(("how", "memory_mb"), [("memory", 600), ("abort", 0)])
def test_a_worker_that_gets_no_memory_is_replaced(how: str, memory_mb: int) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", memory_mb=memory_mb) as pool:
            assert (await lost_of(pool, how)).why == "memory"

    run(scenario())


def test_what_an_engine_started_ends_with_its_worker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            lost = await lost_of(pool, f"start_child {tmp_path / 'pid'}", timeout_s=1.0)
            assert lost.why == "hung"
            await until(lambda: not is_running(int((tmp_path / "pid").read_text())))
            # Also if the worker dies by itself and its child keeps the inherited descriptors.
            (tmp_path / "pid").unlink()
            ask = asyncio.create_task(say(pool, f"start_child {tmp_path / 'pid'}"))
            await until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            os.kill(pool.pids[0], signal.SIGKILL)
            with pytest.raises(WorkerLost):
                await ask
            await until(lambda: not is_running(int((tmp_path / "pid").read_text())))

    run(scenario())


def test_what_engines_print_breaks_no_frame_and_is_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            for _ in range(3):
                assert await say(pool, "print my sister") == "my sister"
            assert pool.restarts == 0

    with caplog.at_level(logging.DEBUG):
        run(scenario())
    told = "".join(str(record.__dict__) for record in caplog.records)
    assert "engine.output_withheld" in told
    assert "sister" not in told
    assert "garbage" not in told


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("refuse en to xx", "LANG_PAIR_UNSUPPORTED", "en to xx"),
        ("quote", "PROCESSING_ERROR", "ValueError"),
        ("exit", "PROCESSING_ERROR", "SystemExit"),
        ("unheard of", "PROCESSING_ERROR", "KeyError"),
        ("wrong", "PROCESSING_ERROR", "mt=obedient returned an answer of the wrong type"),
        ("object", "PROCESSING_ERROR", "TypeError"),
        ("surrogate", "PROCESSING_ERROR", "UnicodeEncodeError"),
        ("huge", "PROCESSING_ERROR", "FrameTooLarge"),
    ],
)
def test_an_engine_that_fails_or_lies_costs_its_call_only(text: str, code: str, said: str) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            before = pool.pids
            with pytest.raises(EngineError) as failed:
                await say(pool, text)
            assert failed.value.code == code
            assert said in failed.value.message
            assert "secret" not in failed.value.message
            assert await say(pool, "say x") == "x"
            assert pool.pids == before

    run(scenario())


def test_arguments_of_the_wrong_type_cost_their_call_only() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            with pytest.raises(EngineError, match="ValidationError"):
                await pool.call(0, 1, 2, timeout_s=BOUND_S)
            with pytest.raises(TypeError):
                await pool.call(0, object(), timeout_s=BOUND_S)
            assert await say(pool, "say x") == "x"
            assert pool.restarts == 0

    run(scenario())


def test_signals_that_are_meant_for_the_node_leave_its_workers() -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            assert await say(pool, "signals") == "[None, None]"
            assert await say(pool, "say x") == "x"
            assert pool.restarts == 0

    run(scenario())


def test_a_cancelled_call_is_stopped_and_its_worker_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            before = pool.pids
            ask = asyncio.create_task(say(pool, f"wait_for {tmp_path / 'a'} {tmp_path / 'never'}"))
            await until((tmp_path / "a").exists)
            ask.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ask
            assert await say(pool, "say x") == "x"
            assert pool.pids == before

    run(scenario())


def test_a_cancelled_call_that_does_not_stop_costs_its_worker_and_no_other_call(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient", grace_s=0.3) as pool:
            before = pool.pids
            ask = asyncio.create_task(say(pool, f"deaf {tmp_path / 'a'}"))
            await until((tmp_path / "a").exists)
            others = [asyncio.create_task(say(pool, f"say {number}")) for number in range(3)]
            await until(lambda: pool.waiting == 3)
            ask.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ask
            # The caller is free at once; the worker is not, and gets no other call.
            assert pool.waiting == 3
            assert pool.pids == before
            assert await asyncio.gather(*others) == ["0", "1", "2"]
            assert pool.pids != before
            assert pool.reason == "mt=obedient did not stop within 0.3 s of being cancelled"

    run(scenario())


def test_a_call_that_is_cancelled_while_it_waits_is_never_made(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with pool_of("mt=obedient") as pool:
            first = asyncio.create_task(say(pool, f"wait_for {tmp_path / 'a'} {tmp_path / 'b'}"))
            await until((tmp_path / "a").exists)
            second = asyncio.create_task(say(pool, f"deaf {tmp_path / 'c'}"))
            await until(lambda: pool.waiting == 1)
            second.cancel()
            await until(lambda: pool.waiting == 0)
            (tmp_path / "b").touch()
            await first
            assert await say(pool, "say x") == "x"
            assert not (tmp_path / "c").exists()

    run(scenario())


@pytest.mark.parametrize(
    ("load", "rules", "why"),
    [
        ("die", {}, "died"),
        ("hang", {"load_s": 1.5}, "hung"),
        ("memory", {"memory_mb": 600}, "memory"),
    ],
)
def test_a_worker_that_is_lost_while_loading_says_which_engine_it_was(
    load: str, rules: dict[str, float], why: str
) -> None:
    async def scenario() -> None:
        specs = [Spec.parse("vad=allround"), Spec.parse(f"mt=obedient:load={load}")]
        pool = WorkerPool(specs, WorkerPoolRules(**rules))  # type: ignore[arg-type]
        with pytest.raises(WorkerLost) as lost:
            await pool.start()
        assert lost.value.why == why
        assert "mt=obedient" in lost.value.detail
        assert pool.pids == []

    run(scenario())


def test_a_crash_loop_waits_longer_each_time_and_ends_when_its_cause_does(tmp_path: Path) -> None:
    async def scenario() -> None:
        cause = tmp_path / "cause"
        losses: list[float] = []
        loop = asyncio.get_running_loop()

        def on_state(state: str, _: str) -> None:
            if state == "lost":
                losses.append(loop.time())

        async with pool_of(f"mt=obedient:load=die,only_if={cause}", on_state=on_state) as pool:
            cause.touch()
            os.kill(pool.pids[0], signal.SIGKILL)
            await until(lambda: losses)
            ask = asyncio.create_task(say(pool, "say x"))
            await until(lambda: len(losses) == 5)
            assert not pool.is_ready
            assert "mt=obedient ended its process: SIGKILL" in pool.reason
            # 0.1, 0.2, 0.4 and 0.8 s, plus the starts of processes.
            assert losses[-1] - losses[0] >= 1.5
            cause.unlink()
            assert await ask == "x"
            assert pool.is_ready

    run(scenario())


def test_a_successor_that_lacks_an_engine_is_not_taken_into_service(tmp_path: Path) -> None:
    async def scenario() -> None:
        cause = tmp_path / "cause"
        async with pool_of("vad=allround", f"mt=obedient:load=missing,only_if={cause}") as pool:
            cause.touch()
            os.kill(pool.pids[0], signal.SIGKILL)
            await until(lambda: pool.restarts >= 2)
            assert not pool.is_ready
            assert "lingua models install obedient" in pool.reason
            cause.unlink()
            assert await pool.call(1, "say x", "en", "es", timeout_s=BOUND_S) == "x"

    run(scenario())


@pytest.mark.parametrize("deed", ["hang", "gil"])
def test_workers_end_with_a_node_that_is_killed(deed: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NODE, deed], stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        try:
            pids = [int(pid) for pid in node.stdout.readline().split()]
            assert len(pids) == 2
            assert all(map(is_running, pids))
        finally:
            node.kill()
    run(until(lambda: not any(map(is_running, pids))))
