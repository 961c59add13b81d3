"""`lingua node --engines` with test engines in real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import wave
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp
import pytest

from commands import node_command
from commands.node_command import ended, parsed
from engine_node import install_engines, process_exists, spoken, until
from lingua_wire.errors import ConfigError
from lingua_wire.from_node import JobResult, JobStarted, NodeDrain, NodeRegister
from lingua_wire.to_node import NodeErrorMessage
from node_peer import ScriptedScheduler, job, run, scripted_scheduler

pytestmark = pytest.mark.stress

ENGINES = ("asr=scribe", "vad=gate", "mt=marker", "tts=echo")


@pytest.fixture(autouse=True)
def engines(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install the test engines, and use an empty folder for models."""
    install_engines(tmp_path_factory.mktemp("stages"), monkeypatch)
    monkeypatch.setenv("LINGUA_MODELS", str(tmp_path / "models"))


def started(
    url: str, *words: str, engines: tuple[str, ...] = ENGINES
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return node_command.started(url, "--engines", *engines, "--node-id", "n1", *words)


async def one_job(scheduler: ScriptedScheduler) -> JobResult:
    connection = await asyncio.wait_for(scheduler.connections.get(), 30)
    await connection.expect(NodeRegister)
    connection.send(job(audio=spoken("hello", 200)))
    result = await connection.expect(JobResult)
    connection.acknowledge("j1")
    return result


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_it_says_what_it_serves_measures_itself_works_and_drains() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler, started(scheduler.url) as process:
            result = await one_job(scheduler)
            assert (result.text_asr, result.text_translated) == ("hello", "en in es: hello")
            process.terminate()
            code, out, err = await ended(process)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0] == "loading asr=scribe vad=gate mt=marker tts=echo"
        assert lines[1].split() == ["stage", "engine", "model", "languages", "loaded", "ms", "MB"]
        assert [line.split()[:2] for line in lines[2:6]] == [
            ["asr", "scribe"],
            ["vad", "gate"],
            ["mt", "marker"],
            ["tts", "tones"],
        ]
        assert "en>es, es>en" in lines[4]
        assert lines[6].startswith("measured with ")
        slots = scheduler.all[0].of(NodeRegister)[0].max_jobs
        assert f"takes {slots} job(s) at a time" in lines
        streams = scheduler.all[0].of(NodeRegister)[0].max_streams
        assert f"hears {streams or 0} speaker(s) while they speak" in lines
        assert "n1: registered as n1" in lines
        assert lines[-1].startswith("1 jobs, 1 done, 0 failed, 0 cancelled in ")

    run(scenario())


def test_a_second_start_knows_what_was_measured_unless_told_otherwise(tmp_path: Path) -> None:
    async def start(scheduler: ScriptedScheduler, *words: str) -> str:
        async with started(scheduler.url, *words) as process:
            await one_job(scheduler)
            process.terminate()
            return (await ended(process))[1]

    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            first = await start(scheduler)
            second = await start(scheduler)
            third = await start(scheduler, "--recalibrate")
            fourth = await start(scheduler, "--max-jobs", "7")
            await start(scheduler, "--max-jobs", "7", "--streams", "3")
            await start(scheduler, "--max-jobs", "7", "--streams", "0")
        assert "\nmeasured with" in first
        assert "\nmeasured before with" in second
        assert "\nmeasured with" in third
        assert "measured" not in fourth
        assert scheduler.all[3].of(NodeRegister)[0].max_jobs == 7
        streams = [one.of(NodeRegister)[0].max_streams for one in scheduler.all]
        assert streams[3:] == [1, 3, None]
        assert (tmp_path / "models" / "calibration.json").exists()

    run(scenario())


def test_without_its_models_the_default_says_what_to_type(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = parsed("--engines", "default")
    assert args.run(args) == 2
    told = capsys.readouterr().err
    assert "whisper-base" in told
    assert "run: lingua models install default" in told


def test_without_a_recogniser_it_ends_and_what_else_is_missing_is_left_out() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            deaf = ("asr=scribe:only_if=/no/such", "mt=marker")
            async with started(scheduler.url, engines=deaf) as process:
                code, out, err = await ended(process)
            assert code == 2
            assert "no recogniser works: MODEL_NOT_AVAILABLE: there is no /no/such" in err
            mute = ("asr=scribe", "mt=marker", "tts=tones:only_if=/no/such")
            async with started(scheduler.url, engines=mute) as process:
                connection = await asyncio.wait_for(scheduler.connections.get(), 30)
                said = await connection.expect(NodeRegister)
                process.terminate()
                code, out, err = await ended(process)
        assert (code, err.count("worker.lost")) == (0, 1)
        assert [service.type for service in said.installed_services or ()] == ["asr", "nmt"]
        assert "left out: tts=tones:only_if=/no/such: MODEL_NOT_AVAILABLE: there is no" in out
        assert "not measured, for lack of a voice: 1 job(s) at a time" in out

    run(scenario())


def test_a_voice_that_is_not_understood_is_no_reason_to_serve_nobody() -> None:
    async def scenario() -> None:
        toneless = ("asr=scribe", "mt=marker", "tts=tones")
        async with (
            scripted_scheduler() as scheduler,
            started(scheduler.url, engines=toneless) as process,
        ):
            await one_job(scheduler)
            process.terminate()
            code, out, _ = await ended(process)
        assert code == 0
        assert "not measured, because it failed: PROCESSING_ERROR" in out
        assert scheduler.all[0].of(NodeRegister)[0].max_jobs == 1

    run(scenario())


def test_a_recording_can_be_measured_with(tmp_path: Path) -> None:
    path = tmp_path / "speech.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(spoken("hello", 2000))

    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            words = ("--calibrate-with", str(path))
            async with started(scheduler.url, *words, engines=("asr=scribe",)) as process:
                await asyncio.wait_for(scheduler.connections.get(), 30)
                process.terminate()
                _, out, _ = await ended(process)
        assert "measured with 2.0 s of speech" in out

    run(scenario())


def test_its_metrics_are_where_it_says() -> None:
    async def scenario() -> None:
        words = ("--metrics", "0", "--max-jobs", "2", "--workers", "2", "--memory-mb", "4000")
        async with scripted_scheduler() as scheduler, started(scheduler.url, *words) as process:
            await one_job(scheduler)
            assert process.stdout is not None
            url = ""
            while not url:
                line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
                url = line.partition("metrics at ")[2].strip()
            assert url.startswith("http://127.0.0.1:")
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                text = await answer.text()
            process.terminate()
            await ended(process)
        assert "lingua_node_slots 2.0" in text
        assert 'lingua_node_workers{stage="asr"} 2.0' in text
        assert 'lingua_node_jobs_total{outcome="done"} 1.0' in text

    run(scenario())


def test_a_killed_node_leaves_no_worker_behind() -> None:
    async def scenario() -> None:
        words = ("--max-jobs", "1")
        async with scripted_scheduler() as scheduler, started(scheduler.url, *words) as process:
            await one_job(scheduler)
            workers = children(process.pid)
            assert len(workers) == 3
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
            await until(lambda: not any(process_exists(pid) for pid in workers), "they are gone")

    run(scenario())


def test_a_signal_while_it_loads_ends_it_and_a_second_one_ends_jobs() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            async with started(scheduler.url) as process:
                assert process.stdout is not None
                await process.stdout.readline()
                process.terminate()
                code, out, err = await ended(process)
            assert (code, out, err) == (0, "stopped before it was ready\n", "")
            async with started(scheduler.url, "--max-jobs", "1") as process:
                connection = await asyncio.wait_for(scheduler.connections.get(), 30)
                await connection.expect(NodeRegister)
                connection.send(job(audio=spoken("asr!slow!once!met", 500)))
                await connection.expect(JobStarted)
                process.terminate()
                await connection.expect(NodeDrain)
                process.terminate()
                code, out, _ = await ended(process)
        assert code == 0
        assert "1 jobs, 0 done, 0 failed, 1 cancelled in " in out

    run(scenario())


def test_a_refused_node_says_why_and_fails() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = lambda _: NodeErrorMessage(code="UNAUTHORIZED", message="no")
            async with started(scheduler.url, "--max-jobs", "1", "--token", "t") as process:
                code, out, _ = await ended(process)
        assert code == 1
        assert "n1: refused for good: UNAUTHORIZED: no" in out
        assert scheduler.all[0].of(NodeRegister)[0].token == "t"

    run(scenario())


@pytest.mark.parametrize(
    "words",
    [
        ["--workers", "0"],
        ["--max-rtf", "0"],
        ["--metrics", "nowhere"],
        ["--metrics", "127.0.0.1:70000"],
        ["--memory-mb", "-1"],
    ],
)
def test_wrong_usage_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        parsed("--engines", "default", *words)
    assert refused.value.code == 2


def test_impossible_settings_are_refused(tmp_path: Path) -> None:
    noise = tmp_path / "noise.wav"
    noise.write_bytes(b"none")
    for words in (["asr=nobody"], ["mt=marker"], ["asr=scribe", "--calibrate-with", str(noise)]):
        args = parsed("--engines", *words)
        with pytest.raises(ConfigError):
            args.run(args)


def test_a_second_node_with_the_same_page_of_metrics_says_that_it_is_taken() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
            port = taken.sockets[0].getsockname()[1]
            words = ("--max-jobs", "1", "--metrics", str(port))
            async with taken, started(scheduler.url, *words) as process:
                code, _, err = await ended(process)
        assert code == 2
        assert f"--metrics: http://127.0.0.1:{port}" in err
        assert "Traceback" not in err

    run(scenario())
