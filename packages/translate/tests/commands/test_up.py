"""`lingua up` as a user runs it: one command starts everything, and nothing is left afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lingua_client import Outcome, connect
from lingua_process import Running, run, running
from local.test_service import is_alive, until

pytestmark = pytest.mark.stress

UP = r"lingua is up: open (http://127\.0\.0\.1:\d+) \(Ctrl-C ends it\)"


def children_of(pid: int) -> set[int]:
    """Return the processes that descend from one."""
    found = {pid}
    while True:
        more = {
            int(stat.parent.name)
            for stat in Path("/proc").glob("[0-9]*/stat")
            if _parent(stat) in found
        } - found
        if not more:
            return found - {pid}
        found |= more


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def answer(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.loads(reply.read())


def up(command: Running) -> str:
    """Wait until it is up; return where."""
    return command.until(UP)[1]


def test_it_serves_says_where_and_ctrl_c_ends_all_of_it(tmp_path: Path) -> None:
    with running(["up", "--simulate", "--port", "0"], tmp_path) as command:
        url = up(command)
        [node] = answer(f"{url}/api/v1/nodes")["nodes"]
        assert node["status"] == "ready"
        command.until(re.escape(f"{url.replace('http', 'ws', 1)}/ws/session"))
        command.until(re.escape(f"OPENAI_BASE_URL={url}/v1"))
        family = children_of(command.pid)
        # The scheduler, its store, the node.
        assert len(family) >= 3
        command.send(signal.SIGINT)
        assert command.ended() == 0
        until(lambda: not any(is_alive(pid) for pid in family), "all of it is gone")
    assert command.printed.endswith("ended\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ways_to_be_told_to_end(number: signal.Signals, tmp_path: Path) -> None:
    with running(["up", "--simulate", "--port", "0"], tmp_path) as command:
        up(command)
        family = children_of(command.pid)
        command.send(number)
        assert command.ended() == 0
        until(lambda: not any(is_alive(pid) for pid in family), "all of it is gone")


def test_killed_it_takes_its_processes_along(tmp_path: Path) -> None:
    with running(["up", "--simulate", "--port", "0"], tmp_path) as command:
        up(command)
        family = children_of(command.pid)
        command.send(signal.SIGKILL)
        command.ended()
        until(lambda: not any(is_alive(pid) for pid in family), "all of it is gone")


def test_a_process_of_it_that_ends_ends_it_and_that_is_told(tmp_path: Path) -> None:
    with running(["up", "--simulate", "--port", "0"], tmp_path) as command:
        url = up(command)
        pid = int(answer_json(url)["instance"].split("-")[-2])
        os.kill(pid, signal.SIGKILL)
        assert command.ended() == 1
    assert "lingua: the scheduler has ended (exit code -9)" in command.printed


def answer_json(url: str) -> Any:
    ask = urllib.request.Request(f"{url}/health", headers={"Accept": "application/json"})
    with urllib.request.urlopen(ask, timeout=10) as reply:
        return json.loads(reply.read())


def test_one_that_runs_already_is_told_and_what_to_do(tmp_path: Path) -> None:
    with running(["up", "--simulate", "--port", "0"], tmp_path) as command:
        url = up(command)
        port = url.rpartition(":")[2]
        second = run(["up", "--simulate", "--port", port], tmp_path)
        assert second.returncode == 1
        assert second.stderr.startswith(f"lingua: a scheduler runs at {url} already (instance ")
        assert "`lingua nodes` shows its nodes" in second.stderr
        # The same data with another port.
        third = run(["up", "--simulate", "--port", "0"], tmp_path)
        assert third.returncode == 1
        assert f"which listens on {url}" in third.stderr
        assert "Traceback" not in third.stderr


def test_a_port_of_another_program_is_told_before_anything_is_fetched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        more = {"LINGUA_MODELS": str(tmp_path / "models")}
        done = run(["up", "--port", str(port)], tmp_path, **more)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"lingua: cannot listen on 127.0.0.1:{port}: another program")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"LINGUA_AUTH__NODE_KEYS": f'["{"k" * 40}"]'}, "auth.node_keys"),
        ({"LINGUA_SERVER__TLS_CERT_FILE": "c", "LINGUA_SERVER__TLS_KEY_FILE": "k"}, "server.tls"),
    ],
    ids=["keys", "TLS"],
)
def test_it_is_for_this_machine_alone(more: dict[str, str], path: str, tmp_path: Path) -> None:
    done = run(["up", "--simulate", "--port", "0"], tmp_path, **more)
    assert done.returncode == 2
    assert done.stderr.startswith(f"lingua: {path}")
    assert "`lingua serve`" in done.stderr


def test_shared_it_has_a_certificate_tokens_a_code_and_a_node_that_works(tmp_path: Path) -> None:
    words = ["up", "--simulate", "--port", "0", "--share", "127.0.0.1"]
    with running(words, tmp_path) as command:
        command.until(r"lingua is up \(Ctrl-C ends it\)\n  translates   \S+")
        page = command.until(r"https://127\.0\.0\.1:\d+/#token=\S+")[0]
        url, token = page.split("/#token=")
        command.until("Its fingerprint:")
        folder = tmp_path / "data" / "share"
        trust = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
        with urllib.request.urlopen(f"{url}/web/config.json", context=trust) as reply:
            assert json.load(reply)["tokens_required"]
        heard = asyncio.run(asyncio.wait_for(said(url, token, trust), 30))
        assert heard.startswith("[es] simulated")
        # Its own node is there: how to start one is not told.
        assert "lingua node" not in command.printed
        command.send(signal.SIGINT)
        assert command.ended() == 0


async def said(url: str, token: str, trust: ssl.SSLContext) -> str:
    """Say something as the bearer of a token; return its translation."""
    address = f"{url.replace('http', 'ws', 1)}/ws/session"
    async with connect(address, source="en", targets="es", token=token, tls=trust) as session:
        await session.send(b"\x00\x30\x00\xd0" * 8000)
        await session.cut()
        while not isinstance(event := await anext(session), Outcome):
            pass
        return event.text


def test_settings_with_keys_are_not_shared_in_another_way(tmp_path: Path) -> None:
    more = {"LINGUA_AUTH__NODE_KEYS": f'["{"k" * 40}"]'}
    done = run(["up", "--simulate", "--share", "127.0.0.1", "--port", "0"], tmp_path, **more)
    assert done.returncode == 2
    assert "without --share" in done.stderr


def test_interrupted_before_it_is_up_it_leaves_nothing(tmp_path: Path) -> None:
    with running(["up", "--simulate", "--port", "0"], tmp_path) as command:
        command.until("starting a scheduler")
        until(lambda: bool(children_of(command.pid)), "something is started")
        family = children_of(command.pid)
        command.send(signal.SIGINT)
        assert command.ended() in {130, 0}
        until(lambda: not any(is_alive(pid) for pid in family), "all of it is gone")
