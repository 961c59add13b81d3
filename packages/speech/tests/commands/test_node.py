"""`lingua node`: its output, its end, and what it refuses."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from commands import node_command
from commands.node_command import ended, parsed
from lingua_node.settings import DEFAULT_URL
from lingua_speech.commands import node as command
from lingua_wire.errors import ConfigError
from lingua_wire.from_node import JobResult, JobStarted, NodeDrain, NodeRegister
from lingua_wire.to_node import NodeErrorMessage
from node_peer import Connection, ScriptedScheduler, ignored, job, run, scripted_scheduler

pytestmark = pytest.mark.unit


def started(
    scheduler: ScriptedScheduler, *words: str
) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    return node_command.started(scheduler.url, "--simulate", *words)


def test_it_must_be_said_what_the_node_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    args = parsed()
    assert args.run(args) == 2
    told = capsys.readouterr().err
    assert "--engines default" in told
    assert "--simulate" in told


def test_the_defaults_are_those_of_the_help_text() -> None:
    args = parsed("--simulate")
    assert (command._urls_of(args, 0), args.max_jobs, args.count) == ([DEFAULT_URL], None, 1)
    assert command._node(args, "n1", 0, ignored).max_jobs == 4
    assert (args.delay_ms, args.jitter_ms, args.fail_percent) == (50, 0, 0)
    assert args.pairs == ()


def test_nodes_of_one_command_begin_at_different_addresses() -> None:
    args = parsed("--simulate", "--url", "ws://a", "--url", "ws://b", "--url", "ws://c")
    assert command._urls_of(args, 0) == ["ws://a", "ws://b", "ws://c"]
    assert command._urls_of(args, 1) == ["ws://b", "ws://c", "ws://a"]
    assert command._urls_of(args, 5) == ["ws://c", "ws://a", "ws://b"]


def test_a_simulated_node_streams_if_it_is_told_to() -> None:
    silent = command._node(parsed("--simulate"), "n1", 0, ignored)
    assert silent.registration.max_streams is None
    words = ("--simulate", "--streams", "3", "--sentence-words", "4", "--parts", "2")
    assert command._node(parsed(*words), "n1", 0, ignored).registration.max_streams == 3
    simulation = command._simulation(parsed(*words), 0)
    assert (simulation.sentence_words, simulation.audio_parts) == (4, 2)


def test_pairs_may_be_written_with_an_arrow_or_a_colon() -> None:
    assert parsed("--pairs", "en>es,en>fr").pairs == ("en>es", "en>fr")
    assert parsed("--pairs", "en:es,en:fr").pairs == ("en>es", "en>fr")


@pytest.mark.parametrize(
    "words",
    [
        ["--pairs", "en>es", "--any"],
        ["--pairs", "what"],
        ["--pairs", "english>spanish"],
        ["--max-jobs", "0"],
        ["--count", "0"],
        ["--count", "many"],
        ["--fail-percent", "101"],
        ["--delay-ms", "-1"],
        ["--delay-ms", "inf"],
        ["--engines", "default"],
    ],
)
def test_wrong_usage_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended_with:
        parsed("--simulate", *words)
    assert ended_with.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--label", "no label"],
        ["--old-protocol", "--token", "t"],
        ["--url", "http://127.0.0.1"],
        ["--url", "ws://127.0.0.1", "--url", "127.0.0.1"],
    ],
)
def test_impossible_settings_are_refused(words: list[str]) -> None:
    args = parsed("--simulate", *words)
    with pytest.raises(ConfigError):
        args.run(args)


async def take_job(connection: Connection, job_id: str = "j1") -> JobResult:
    connection.send(job(job_id))
    result = await connection.expect(JobResult)
    connection.acknowledge(job_id)
    return result


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_it_and_it_says_what_it_did(number: signal.Signals) -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            words = ("--node-id", "n1", "--pairs", "en>es", "--delay-ms", "300", "--token", "t")
            async with started(scheduler, *words) as process:
                connection = await scheduler.node()
                connection.send(job())
                await connection.expect(JobStarted)
                process.send_signal(number)
                await connection.expect(NodeDrain)
                result = await connection.expect(JobResult)
                assert (result.text_translated or "").startswith("[es] simulated speech")
                connection.acknowledge("j1")
                code, out, err = await ended(process)
        assert connection.received[0].token == "t"
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[:3] == [
            f"connecting to {scheduler.url} with 1 simulated node(s)",
            "n1: registered as n1",
            "stopping after the current jobs (repeat to stop at once)",
        ]
        assert lines[3].startswith("1 jobs, 1 done in ")

    run(scenario())


def test_a_second_signal_ends_it_at_once() -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            started(scheduler, "--silent-percent", "100") as process,
        ):
            connection = await scheduler.node()
            connection.send(job())
            await connection.expect(JobStarted)
            process.terminate()
            await connection.expect(NodeDrain)
            process.terminate()
            code, out, err = await ended(process)
        assert (code, err) == (0, "")
        assert "1 jobs, 1 cancelled in " in out

    run(scenario())


def test_several_nodes_get_numbered_ids_and_a_loss_is_told() -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as scheduler,
            started(scheduler, "--node-id", "n", "--count", "3", "--echo") as process,
        ):
            connections = [await scheduler.node() for _ in range(3)]
            for connection in connections:
                assert (await take_job(connection)).text_asr == "utterance 0"
            connections[0].cut()
            again = await scheduler.node()
            process.terminate()
            await asyncio.wait_for(again.lost.wait(), 10)
            code, out, _ = await ended(process)
        assert code == 0
        assert {connection.received[0].node_id for connection in connections} == {
            "n-1",
            "n-2",
            "n-3",
        }
        lost = connections[0].received[0].node_id
        assert f"{lost}: lost: the connection was lost" in out
        assert out.count(f"{lost}: registered as {lost}") == 2
        assert "3 jobs, 3 done, 1 reconnects in " in out

    run(scenario())


@pytest.mark.parametrize("words", [(), ("--old-protocol",)])
def test_nodes_spread_over_several_addresses_and_say_where_they_are(words: tuple[str, ...]) -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as a, scripted_scheduler() as b:
            more = ("--url", b.url, "--node-id", "n", "--count", "2", *words)
            async with started(a, *more) as process:
                at_a, at_b = await a.node(), await b.node()
                process.terminate()
                code, out, err = await ended(process)
        assert (code, err) == (0, "")
        assert (at_a.received[0].node_id, at_b.received[0].node_id) == ("n-1", "n-2")
        assert f"connecting to {a.url}, {b.url} with 2 simulated node(s)" in out
        assert words or f"n-2: registered as n-2 at {b.url}" in out

    run(scenario())


def test_a_lost_instance_is_told_once_and_the_other_one_serves() -> None:
    async def scenario() -> None:
        async with (
            scripted_scheduler() as a,
            scripted_scheduler() as b,
            started(a, "--url", b.url, "--node-id", "n1") as process,
        ):
            first = await a.node()
            first.send(job())
            await first.expect(JobStarted)
            first.cut()
            second = await b.node()
            assert (await second.expect(JobResult)).success
            second.acknowledge("j1")
            process.terminate()
            code, out, err = await ended(process)
        assert (code, err) == (0, "")
        assert out.splitlines()[1:4] == [
            f"n1: registered as n1 at {a.url}",
            "n1: lost: the connection was lost",
            f"n1: registered as n1 at {b.url}",
        ]
        assert "1 jobs, 1 done, 1 reconnects in " in out

    run(scenario())


def test_a_refused_node_says_why_and_fails() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            scheduler.on_register = lambda _: NodeErrorMessage(
                code="UNAUTHORIZED", message="a token is needed"
            )
            async with started(scheduler, "--node-id", "n1", "--json-wire") as process:
                code, out, err = await ended(process)
        assert (code, err) == (1, "")
        assert "n1: refused for good: UNAUTHORIZED: a token is needed" in out
        assert scheduler.all[0].offered == ["lingua.v1.json"]

    run(scenario())


def test_labels_are_declared_and_a_token_file_is_read_for_every_connection(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        (tmp_path / "token").write_text("first\n")
        words = ("--label", "gpu-a", "--label", "eu", "--token-file", str(tmp_path / "token"))
        async with scripted_scheduler() as scheduler, started(scheduler, *words):
            connection = await scheduler.connection()
            said = await connection.expect(NodeRegister)
            assert (said.labels, said.token) == (("eu", "gpu-a"), "first")
            (tmp_path / "token").write_text("second\n")
            connection.cut()
            again = await (await scheduler.connection()).expect(NodeRegister)
            assert (again.labels, again.token) == (("eu", "gpu-a"), "second")

    run(scenario())


def test_the_older_protocol_can_be_tried() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            words = ("--old-protocol", "--node-id", "old", "--delay-ms", "0")
            async with started(scheduler, *words) as process:
                connection = await scheduler.node()
                assert (await take_job(connection)).success
                process.terminate()
                code, out, err = await ended(process)
        assert (code, err) == (0, "")
        assert connection.of(JobStarted) == []
        assert "old: registered as old" in out
        assert "1 jobs, 1 done in " in out

    run(scenario())


def test_a_scheduler_that_is_not_there_is_told_once_and_waited_for() -> None:
    async def scenario() -> None:
        async with scripted_scheduler() as scheduler:
            pass
        async with started(scheduler, "--node-id", "n1") as process:
            assert process.stdout is not None
            lines = [await asyncio.wait_for(process.stdout.readline(), 20) for _ in range(2)]
            assert b"n1: lost: " in lines[1]
            process.terminate()
            code, out, _ = await ended(process)
        assert code == 0
        assert "n1: lost" not in out

    run(scenario())


def test_several_instances_that_are_away_are_each_told_once_until_one_is_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = command.SimulatedNodes(parsed("--simulate", "--node-id", "n1"))._listener("n1")
    for _ in range(3):
        watch("lost", "a is down")
        watch("lost", "b is down")
    watch("registered", "as n1")
    watch("lost", "a is down")
    assert capsys.readouterr().out.splitlines() == [
        "n1: lost: a is down",
        "n1: lost: b is down",
        "n1: registered as n1",
        "n1: lost: a is down",
    ]
