"""The `lingua` command: its verbs, its exit codes, and how fast it starts."""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import lingua_wire
from lingua_cli import main as cli
from lingua_wire.errors import ConfigError, LinguaError

pytestmark = pytest.mark.unit


def ending_with(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (ConfigError("jobs.gap_ms", "is odd"), 2, "lingua: jobs.gap_ms: is odd\n"),
        (LinguaError("no luck"), 1, "lingua: no luck\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_of_ours_is_one_line_and_an_exit_code(
    error: BaseException, code: int, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli._run(argparse.Namespace(run=ending_with(error))) == code
    assert capsys.readouterr().err == shown


def test_an_error_that_is_not_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        cli._run(argparse.Namespace(run=lambda _: 1 // 0))


def test_the_exit_code_of_the_command_is_passed_on() -> None:
    assert cli._run(argparse.Namespace(run=lambda _: 7)) == 7


@pytest.mark.parametrize("arguments", [[], ["--config", "config"]])
def test_without_a_command_the_help_is_shown_and_the_exit_code_is_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert {*cli.HELP_ORDER} == {*cli.installed_verbs()}
    for name in cli.HELP_ORDER:
        assert name in output.err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["config"], ["config", "nonsense"], ["--conf", "x", "config"]]
)
def test_wrong_usage_ends_with_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: lingua" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"lingua {lingua_wire.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["config", "print"], "config"),
        (["--config", "bench", "config"], "config"),
        (["--config=bench", "config", "demo"], "config"),
        (["--help"], ""),
        (["--config"], ""),
    ],
)
def test_the_command_is_found_before_anything_is_imported(
    arguments: list[str], command: str
) -> None:
    assert cli._command_in(arguments) == command


def test_a_reader_that_closed_the_output_ends_the_command_quietly() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "lingua_cli", "config", "print"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_full_disk_behind_the_output_is_one_line() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 a device
        done = subprocess.run(
            [sys.executable, "-m", "lingua_cli", "config", "print"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    told = b"lingua: cannot write standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)
