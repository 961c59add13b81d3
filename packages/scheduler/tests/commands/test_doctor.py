"""`lingua doctor` as an operator runs it: its output and its exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_cli.interpreter import this_interpreter
from lingua_cli.main import main
from lingua_scheduler.state.acl import OPERATOR_COMMANDS
from lingua_scheduler.state.script import Script
from servers import Server, free_port, start_server
from workspace import ROOT

pytestmark = pytest.mark.store

BASE = "lingua:v1:{c0}:"
WELL = f"nothing is wrong (1 key, 0 instances alive)\n\nPython: {this_interpreter()}\n"


@pytest.fixture(name="server", scope="module")
def server_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("doctor"), unix=False) as server:
        yield server


@pytest.fixture(autouse=True)
def shared_store(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run against an empty store, where nothing else changes the settings.

    Whoever looks at a cell sets its clock going, which is a key.
    """
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("LINGUA_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "cross_instance")
    monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://{server.tcp_address}/0")
    monkeypatch.setattr("lingua_scheduler.maintenance.doctor.PAUSE_S", 0.02)
    server.ask("FLUSHALL")


def spoil(server: Server) -> None:
    server.ask("HSET", f"{BASE}audio:ghost|1", "audio", "x", "job-1", "")
    for number in range(12):
        server.ask("ZADD", f"{BASE}due", 1, f"j|ghost-{number:02}")
    server.ask("SET", f"{BASE}nonsense", 1)


def test_an_empty_store_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert capsys.readouterr() == (WELL, "")


def test_findings_are_told_and_nothing_is_changed(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(server)
    for _ in range(2):
        assert main(["doctor"]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert " ".join(lines[:2]) == (
            "14 findings (4 keys, 0 instances alive); nothing was changed, --repair does what is "
            "described below"
        )
        at = lines.index("audio_without_job: audio is kept for a job that has ended")
        assert lines[at + 1] == "  would: remove that job from it, and the audio with the last job"
        assert lines[at + 2] == "  c0  ghost|1  for job-1"
        at = lines.index("timer_of_nothing: a timer is set for an object that does not exist")
        assert lines[at + 1] == "  would: delete the timer"
        assert re.fullmatch(r"  c0  j\|ghost-00  no such job for \d+d", lines[at + 2])
        assert lines[at + 12] == "  and 2 more (--json has all)"
        assert "  an operator must decide; not repaired" in lines
        assert max(map(len, lines)) <= 80


def test_what_is_repaired_and_what_is_left_is_told(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(server)
    assert main(["doctor", "--repair"]) == 1
    text = capsys.readouterr().out
    assert text.startswith("14 findings (4 keys, 0 instances alive); 13 repaired, 1 left\n")
    assert "      repaired: delete the timer\n" in text
    assert "      left: an operator must decide\n" in text
    left = {f"{BASE}clock".encode(), f"{BASE}nonsense".encode()}
    assert set(server.ask("KEYS", "*")) == left
    server.ask("DEL", f"{BASE}nonsense")
    assert main(["doctor", "--repair"]) == 0


def test_libraries_of_other_releases_are_named_and_are_no_damage(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Script.of("other", "return 1").library
    server.ask("FUNCTION", "LOAD", other.source)
    assert main(["doctor"]) == 0
    assert f"  FUNCTION DELETE {other.name}\n" in capsys.readouterr().out
    server.ask("FUNCTION", "DELETE", other.name)
    assert main(["doctor"]) == 0
    assert "FUNCTION" not in capsys.readouterr().out


def test_all_repaired_is_exit_code_0(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.ask("HSET", f"{BASE}audio:ghost|1", "audio", "x", "job-1", "")
    assert main(["doctor", "--repair"]) == 0
    assert "1 finding (2 keys, 0 instances alive); 1 repaired, 0 left\n" in capsys.readouterr().out


def test_programs_get_json(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(server)
    assert main(["doctor", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["interpreter"] == str(this_interpreter())
    assert (len(answer["findings"]), answer["repairs"], answer["keys"]) == (14, False, 4)
    audio = next(f for f in answer["findings"] if f["kind"] == "audio_without_job")
    assert audio == {
        "kind": "audio_without_job", "where": "c0", "name": "ghost|1",
        "what": "audio is kept for a job that has ended", "about": "for job-1", "state": "found",
        "remedy": "remove that job from it, and the audio with the last job", "age_ms": None,
    }  # fmt: skip


def test_a_store_that_is_not_there_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://127.0.0.1:{free_port()}/0")
    assert main(["doctor"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("lingua: store 127.0.0.1:")


@pytest.mark.parametrize("words", [["doctor"], ["cluster"], ["dlq", "ls"]], ids=" ".join)
def test_in_local_mode_the_running_private_server_is_meant(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("LINGUA_REDIS__URL")
    monkeypatch.setenv("LINGUA_DEPLOYMENT_MODE", "local")
    monkeypatch.setenv("LINGUA_DATA_DIR", str(Path.cwd() / "nothing"))
    assert main(words) == (2 if words == ["doctor"] else 1)
    assert "no scheduler runs in local mode with this data_dir" in capsys.readouterr().err
    assert not (Path.cwd() / "nothing").exists(), "nothing is started for a look"


def test_a_user_without_scan_is_told_which_one_to_take(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.ask("ACL", "SETUSER", "weak", "reset", "on", ">pw", "~*", "+@all", "-scan")
    monkeypatch.setenv("LINGUA_REDIS__URL", f"redis://weak:pw@{server.tcp_address}/0")
    assert main(["doctor"]) == 2
    assert "this user of the store may not use SCAN: use the user of" in capsys.readouterr().err


def test_the_page_for_operators_names_the_commands_it_needs() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert " ".join(f"+{name}" for name in OPERATOR_COMMANDS) in page


def test_it_runs_as_a_command(server: Server) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lingua_cli", "doctor"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, WELL)
