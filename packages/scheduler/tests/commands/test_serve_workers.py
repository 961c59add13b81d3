"""`lingua serve --workers N`: its messages and exit codes are those of one process."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from lingua_process import run, running

pytestmark = pytest.mark.store

UNREACHABLE = {
    "LINGUA_DEPLOYMENT_MODE": "cross_instance",
    "LINGUA_REDIS__URL": "redis://127.0.0.1:1",
    "LINGUA_REDIS__CONNECT_TIMEOUT_MS": "300",
}


def test_it_serves_logs_with_the_names_of_its_workers_and_ends_with_0(tmp_path: Path) -> None:
    more = {"LINGUA_INSTANCE_ID": "box"}
    with running(["serve", "--port", "0", "--workers", "2"], tmp_path, **more) as service:
        url = service.url()
        assert "2 workers, a private server" in service.printed
        second = run(["serve", "--port", "0", "--workers", "2"], tmp_path)
        assert second.returncode == 1
        assert f"is in use by process {service.pid}, which listens on {url}" in second.stderr
        shown = run(["cluster", "--json"], tmp_path)
        names = {one["instance"] for one in json.loads(shown.stdout)["instances"]}
        assert names == {"box-1", "box-2"}
        service.send(signal.SIGTERM)
        assert service.ended() == 0
    lines = [json.loads(line) for line in service.printed.splitlines() if line[:1] == "{"]
    started = {line["worker"] for line in lines if line["event"] == "serve.started"}
    assert started == {"box-1", "box-2"}


def test_a_port_in_use_is_told_as_ever(tmp_path: Path) -> None:
    with running(["serve", "--port", "0", "--workers", "2"], tmp_path) as first:
        port = first.url().rpartition(":")[2]
        more = {"LINGUA_DATA_DIR": str(tmp_path / "other")}
        second = run(["serve", "--port", port, "--workers", "2"], tmp_path, **more)
    assert second.returncode == 1
    told = f"lingua: cannot listen on 127.0.0.1:{port}: a scheduler listens there already, instance"
    assert second.stderr.startswith(told)
    assert second.stderr.count("\n") == 1


def test_a_worker_that_cannot_start_ends_the_service_with_its_error_once(tmp_path: Path) -> None:
    alone = run(["serve", "--port", "0"], tmp_path, **UNREACHABLE)
    service = run(["serve", "--port", "0", "--workers", "3"], tmp_path, **UNREACHABLE)
    assert service.returncode == alone.returncode == 1
    assert service.stderr == alone.stderr


@pytest.mark.parametrize("number", ["0", "65", "two"])
def test_an_impossible_number_of_workers_is_refused(number: str, tmp_path: Path) -> None:
    done = run(["serve", "--workers", number], tmp_path)
    assert done.returncode == 2
    assert "must be `auto` or a number from 1 to 64" in done.stderr
