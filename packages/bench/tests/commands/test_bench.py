"""`lingua bench placement` as a user runs it, with small numbers."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lingua_bench.commands.bench import NODES, SIGNATURES, run_placement
from lingua_bench.commands.progress import ProgressLine
from lingua_cli.main import build_parser, main
from servers import wait_until

pytestmark = pytest.mark.store

SUMMARY = [
    "ratio_to_ceiling",
    "growth_10_to_10000",
    "pairs_per_s_64",
    "pairs_per_s_256",
    "submit_server_us",
    "settle_server_us",
    "client_us_per_call",
]
SMALL = ["bench", "placement", "--quick", "--seconds", "0.8", "--signatures", "20"]
BOUND_S = 60.0


def test_json_is_one_object_per_fleet_and_a_summary_of_exactly_these_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*SMALL, "--nodes", "1000,10", "--json"]) == 0
    output = capsys.readouterr()
    *rows, last = [json.loads(line) for line in output.out.splitlines()]
    assert list(last) == SUMMARY
    assert last["growth_10_to_10000"] is None, "10,000 nodes were not measured"
    assert all(last[name] > 0 for name in SUMMARY if name != "growth_10_to_10000")
    assert [(row["nodes"], row["aof"]) for row in rows] == [
        (10, False),
        (1000, False),
        (1000, True),
    ]
    assert rows[1]["ratio_to_ceiling"] == last["ratio_to_ceiling"]
    assert "registering 10 nodes, 20 signatures\n" in output.err


def test_the_table_says_what_was_measured_and_that_nothing_went_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*SMALL, "--nodes", "5"]) == 0
    shown = capsys.readouterr().out
    assert "Server commands per pair: 27, ceiling 27\n" in shown
    assert "each placed, settled and released in order; all slots are free.\n" in shown
    assert "256 in flight): not measured\n" in shown
    text = [line for line in shown.splitlines() if line[:1].isupper()]
    assert max(len(line) for line in text) <= 80


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nodes", "0"],
        ["--nodes", "10,"],
        ["--nodes", "1000000"],
        ["--signatures", "129"],
        ["--seconds", "0"],
        ["--seconds", "soon"],
        ["--seconds", "nan"],
    ],
    ids=" ".join,
)
def test_impossible_numbers_are_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "placement", *arguments])
    assert ended.value.code == 2
    assert "usage: lingua bench placement" in capsys.readouterr().err


def test_without_a_name_everything_there_is_runs_with_defaults() -> None:
    bare = build_parser(("bench",)).parse_args(["bench"])
    named = build_parser(("bench",)).parse_args(["bench", "placement"])
    assert vars(bare) == vars(named)
    assert (bare.run, bare.nodes, bare.signatures) == (run_placement, NODES, SIGNATURES)


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_in_place_on_a_terminal() -> None:
    stream = FakeTerminal()
    progress = ProgressLine(stream)
    progress.tell("registering", 0.0)
    progress.tell("pairs", 0.255)
    progress.end()
    assert stream.getvalue() == "\r\x1b[K  0%  registering\r\x1b[K 26%  pairs\r\x1b[K"


def test_progress_is_plain_lines_without_repetition_elsewhere() -> None:
    stream = io.StringIO()
    progress = ProgressLine(stream)
    for doing in ("registering", "pairs", "pairs", "batches", "pairs"):
        progress.tell(doing, 0.5)
    progress.end()
    assert stream.getvalue() == "registering\npairs\nbatches\n"


@contextmanager
def running_bench(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a benchmark that is in the middle of its work."""
    errors = directory / "stderr"
    (directory / "tmp").mkdir()
    command = [sys.executable, "-m", "lingua_cli", *SMALL, "--nodes", "5", "--seconds", "50"]
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            text=True,
            env={**os.environ, "TMPDIR": str(directory / "tmp")},
        )
        try:
            wait_until(lambda: "pairs: 5 nodes" in errors.read_text(), BOUND_S, "it measures")
            yield process
        finally:
            process.kill()
            process.wait()


def servers_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the servers a benchmark started (Linux: by its children)."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_an_interrupt_ends_it_with_130_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with running_bench(tmp_path) as process:
        servers = servers_of(process)
        process.send_signal(signal.SIGINT)
        assert process.wait(BOUND_S) == 130
    assert len(servers) == 2
    assert all(is_gone(pid) for pid in servers)
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_server_that_dies_is_an_error_and_not_a_result(tmp_path: Path) -> None:
    with running_bench(tmp_path) as process:
        for pid in servers_of(process):
            os.kill(pid, signal.SIGKILL)
        assert process.wait(BOUND_S) == 1
    last = (tmp_path / "stderr").read_text().splitlines()[-1]
    assert last.startswith("lingua: store unix:")
    assert list((tmp_path / "tmp").iterdir()) == []
