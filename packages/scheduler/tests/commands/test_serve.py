"""`lingua serve` when it cannot listen: one line with the cause and a remedy."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from lingua_process import run, running

pytestmark = pytest.mark.store


def test_a_second_one_is_told_that_one_runs_where_and_as_which_process(tmp_path: Path) -> None:
    with running(["serve", "--port", "0"], tmp_path) as first:
        url = first.url()
        # A process that serves does not end by itself, and this would fail at its bound.
        second = run(["serve", "--port", "0"], tmp_path)
        assert second.returncode == 1
        assert second.stderr == (
            f"lingua: a scheduler runs already: {tmp_path}/data/store is in use by process "
            f"{first.pid}, which listens on {url}\n"
            f"use that one, stop it (kill {first.pid}), or give this one a directory and a port "
            "of its own: LINGUA_DATA_DIR=DIR lingua serve --port N\n"
        )
        assert second.stdout == ""


def test_the_note_of_a_killed_one_misleads_nobody(tmp_path: Path) -> None:
    with running(["serve", "--port", "0"], tmp_path) as first:
        first.url()
        first.send(signal.SIGKILL)
        first.ended()
    assert (tmp_path / "data" / "store" / "owner.address").exists()
    with running(["serve", "--port", "0"], tmp_path) as second:
        second.url()
    assert not (tmp_path / "data" / "store" / "owner.address").exists()


def test_a_port_that_a_scheduler_has_is_told_in_one_line(tmp_path: Path) -> None:
    with running(["serve", "--port", "0"], tmp_path) as first:
        port = int(first.url().rpartition(":")[2])
        more = {"LINGUA_DATA_DIR": str(tmp_path / "other")}
        second = run(["serve", "--port", str(port)], tmp_path, **more)
        assert second.returncode == 1
        told = (
            f"lingua: cannot listen on 127.0.0.1:{port}: a scheduler listens there already, "
            "instance "
        )
        assert second.stderr.startswith(told)
        assert f"-{first.pid}-" in second.stderr
        todo = f"; give this one another port: --port {port + 1}, or --port 0 for a free one\n"
        assert second.stderr.endswith(todo)
        assert second.stderr.count("\n") == 1


def test_a_port_that_another_program_has_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(["serve", "--port", str(port)], tmp_path)
    assert (done.returncode, done.stderr) == (
        1,
        (
            f"lingua: cannot listen on 127.0.0.1:{port}: another program listens there; give "
            f"this one another port: --port {port + 1}, or --port 0 for a free one\n"
        ),
    )


def test_an_address_of_another_machine_is_told_in_one_line(tmp_path: Path) -> None:
    keys = {f"LINGUA_AUTH__{kind}_KEYS": f'["{"k" * 40}"]' for kind in ("CLIENT", "NODE")}
    done = run(
        ["serve", "--host", "192.0.2.1", "--port", "0"],
        tmp_path,
        LINGUA_SERVER__BEHIND_PROXY="true",
        **keys,
    )
    assert (done.returncode, done.stderr) == (
        1,
        (
            "lingua: cannot listen on 192.0.2.1:0: this machine has no such address; "
            "--host 127.0.0.1 is for this machine alone\n"
        ),
    )


@pytest.mark.parametrize("is_before", [True, False])
def test_the_settings_file_may_be_named_before_or_after_the_command(
    is_before: bool, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text("[server]\nport = 99999\n")
    named = ["--config", "own.toml"]
    done = run([*named, "serve"] if is_before else ["serve", *named], tmp_path)
    assert done.returncode == 2
    assert "server.port" in done.stderr
