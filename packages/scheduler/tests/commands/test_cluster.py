"""`lingua cluster` as an operator runs it: with a serving instance, with none, with --watch."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.live_server import Stage, play
from lingua_cli.main import main
from lingua_wire import __version__
from servers import Server, start_server

pytestmark = pytest.mark.store

BOUND_S = 60
COMMAND = [sys.executable, "-m", "lingua_cli", "cluster"]


@pytest.fixture(name="server")
def server_of_the_test(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path, unix=False) as server:
        yield server


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where neither a lingua.toml nor a variable of ours changes the settings."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)


async def printed(stage: Stage, *words: str) -> str:
    """Return what the command prints about this stage's private store."""
    env = {**os.environ, "LINGUA_DATA_DIR": str(stage.server.settings.data_dir)}
    done = await asyncio.to_thread(
        subprocess.run, [*COMMAND, *words], capture_output=True, text=True, timeout=BOUND_S,
        check=False, env=env,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_a_deployment_is_a_sentence_and_three_tables() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        await stage.client()
        await stage.client()
        name = stage.server.instance.id
        sentence, work, process, cells = (await printed(stage)).split("\n\n")
        assert sentence == "all is well: 1 instance, 1 node, 2 sessions"
        head, row = work.splitlines()
        assert head.split() == [
            "instance", "state", "beat", "sessions", "nodes", "inbox", "pending", "dlq",
        ]  # fmt: skip
        words = row.split()
        assert words[:2] + words[3:] == [name, "alive", "2", "1", "0", "0", "0"]
        assert words[2].endswith("s")
        head, row = process.splitlines()
        assert head.split() == ["instance", "up", "version", "host", "pid", "url"]
        assert row.split()[0] == name
        assert row.split()[2] == __version__
        assert row.split()[4:] == [str(os.getpid()), "http://example.test"]
        head, row = cells.splitlines()
        assert head.split() == ["cell", "nodes", "waiting", "jobs", "timers", "due", "overdue"]
        assert row.split() == ["c0", "1", "0", "3", "0", "0"]

    play(scenario, instances__url="http://example.test")


def test_programs_get_json() -> None:
    async def scenario(stage: Stage) -> None:
        await stage.node("n1")
        answer = json.loads(await printed(stage, "--json"))
        assert answer["well"] is True
        (row,) = answer["instances"]
        assert (row["instance"], row["state"]) == (stage.server.instance.id, "alive")
        assert (row["nodes"], row["sessions"], row["dead_letters"]) == (1, 0, 0)
        assert answer["cells"][0]["cell"] == "c0"

    play(scenario)


def test_it_works_when_no_instance_lives(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
    monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://{server.tcp_address}/0")
    monkeypatch.setenv("LINGUA_CELLS", "2")
    server.ask("ZADD", "lingua:v1:{c0}:instances", 1, "a-machine-of-long-ago")
    server.ask("SADD", "lingua:v1:{c0}:inboxes", "orphan")
    assert main(["cluster"]) == 0
    text = capsys.readouterr().out
    assert " ".join(text.split("\n\n", maxsplit=1)[0].split()) == (
        "not well: no instance is alive (`lingua serve` starts one); a-machine-of-long-ago "
        "is dead; orphan left an inbox without an owner"
    )
    assert max(map(len, text.splitlines())) <= 80
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("orphan ")] == [
        ["orphan", "orphan", "-"]
    ]
    assert [line.split()[0] for line in text.splitlines()[-2:]] == ["c0", "c1"]


def test_a_store_that_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGUA_DATA_DIR", str(Path.cwd() / "nothing"))
    assert main(["cluster"]) == 1
    assert "no scheduler runs in local mode with this data_dir" in capsys.readouterr().err


def test_it_watches_until_it_is_interrupted_and_waits_for_a_store_that_goes_away(
    server: Server,
) -> None:
    env = {
        **os.environ, "LINGUA_DEPLOYMENT_MODE": "cross_instance",
        "LINGUA_REDIS__URL": f"redis://{server.tcp_address}/0", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
    watching = subprocess.Popen(
        [*COMMAND, "--watch", "--json"], stdout=subprocess.PIPE, text=True, env=env
    )
    assert watching.stdout is not None
    try:
        assert json.loads(watching.stdout.readline())["well"] is False
        server.kill()
        line = json.loads(watching.stdout.readline())
        while "error" not in line:  # one look may have been under way
            line = json.loads(watching.stdout.readline())
        assert "unavailable" in line["error"]
        server.start()
        while "error" in line:
            line = json.loads(watching.stdout.readline())
        assert line["instances"] == []
        watching.send_signal(signal.SIGINT)
        assert watching.wait(BOUND_S) == 130
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()
