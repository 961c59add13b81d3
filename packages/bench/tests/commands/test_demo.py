"""`lingua demo` as a new user runs it, and that it can fail."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from lingua_bench.commands.demo import Terminal
from lingua_bench.demo import live
from lingua_bench.demo import placement as demo
from lingua_bench.demo.placement import AdmittedUtterance, Story, outcome_problems, result_of
from lingua_cli.main import main
from lingua_scheduler.config import Settings
from lingua_scheduler.state.opening import open_connection
from lingua_scheduler.state.records import Released

pytestmark = pytest.mark.store

BOUND_S = 60
COMMAND = [sys.executable, "-m", "lingua_cli", "demo", "placement"]

# What it promises to show, in this order.
FACTS = [
    "madrid    0 of 2  chosen",
    "tokyo     0 of 2  lang_pair_unsupported",
    "mute      0 of 2  model_not_available",
    "acme-gpu  0 of 2  not_in_public_pool",
    "ana #0  -> madrid    attempt 1",
    "ana #2  -> polyglot  attempt 1  madrid is full",
    "ana #4  waits: madrid and polyglot are full (capacity_exceeded)",
    "ben #0  -> acme-gpu  attempt 1",
    "ana #4  -> lisbon    attempt 1  taken from the queue",
    "ana #2  -> lisbon    attempt 2  moved from polyglot",
    "ana #2  late result of attempt 1 from polyglot: refused, attempt 2 counts",
    "ana #5  from lisbon    kept back, an earlier one is missing",
    "ana #2  from lisbon    comes out: #2 #3 #4 #5",
    "ana was heard: #0 #1 #2 #3 #4 #5",
    "7 utterances admitted, 7 outcomes, 0 of 14 slots taken.",
    "Every utterance has exactly one outcome, in order.",
]


def test_the_demo_shows_what_it_promises_and_leaves_nothing_behind(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        COMMAND, capture_output=True, text=True, timeout=BOUND_S, check=False, env=environ
    )
    assert (done.returncode, done.stderr) == (0, "")
    at = [done.stdout.find(fact) for fact in FACTS]
    assert -1 not in at, FACTS[at.index(-1)]
    assert at == sorted(at)
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert list(tmp_path.iterdir()) == []


def test_the_live_path_is_shown_with_a_node_that_dies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "live"]) == 0
    shown = capsys.readouterr().out
    assert "died with work in progress" in shown
    assert "ms of it lost with the dead node" in shown
    for name in ("Ben", "Cleo"):
        assert f"{name}: 6 outcomes for 6 sentences, in order" in shown
    assert "7200 ms of speech admitted, 7200 ms delivered, 0 ms unaccounted for" in shown


def test_a_live_story_that_does_not_hold_is_named() -> None:
    heard = {"type": "translation_result", "utterance_index": 1}
    problems: list[str] = []
    lost = {"admitted_ms": 2000, "delivered_ms": 1000}
    live.judge(Silent(), {"Ben": [heard]}, {"coverage": lost}, problems)
    assert len(problems) == 3
    assert problems[0] == "Ben got the sentences as [1]"


def test_a_claim_that_does_not_hold_is_named_and_ends_with_exit_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NEWCOMER", dataclasses.replace(demo.NEWCOMER, slots=1))
    assert main(["demo", "placement"]) == 1
    output = capsys.readouterr()
    assert "lingua: both waiting utterances should be placed\n" in output.err
    assert "lingua: ana #5 was never placed\n" in output.err
    assert FACTS[-1] not in output.out


class Silent:
    """A terminal that discards everything."""

    def title(self, text: str) -> None: ...

    def say(self, text: str, tone: str = "plain") -> None: ...

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str | int]]) -> None: ...

    async def pause(self) -> None: ...


def test_results_that_never_arrive_are_found_by_the_sum() -> None:
    async def scenario() -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            async with open_connection(Settings(data_dir=Path(directory))) as connection:
                story = Story(connection, Silent())
                for scene in story.scenes():
                    if scene != story._results_arrive:
                        await scene()
        return story.problems

    assert asyncio.run(scenario()) == [
        "ana said [0, 1, 2, 3, 4, 5], but heard are []",
        "ben said [0], but heard are []",
        "7 slots are still taken",
    ]


ADMITTED = {"job-0": AdmittedUtterance("ana", 0), "job-1": AdmittedUtterance("ana", 1)}


def outcome(seq: int, index: int, attempt: int = 1, payload: bytes | None = None) -> Released:
    payload = result_of(AdmittedUtterance("ana", index), attempt) if payload is None else payload
    return Released(seq, "completed", index, "es", f"job-{index}", attempt, "-", payload)


@pytest.mark.parametrize(
    ("outcomes", "problem"),
    [
        ([outcome(1, 0), outcome(2, 1, attempt=2)], None),
        ([outcome(1, 0)], "ana said [0, 1], but heard are [0]"),
        ([outcome(1, 1), outcome(2, 0)], "ana said [0, 1], but heard are [1, 0]"),
        (
            [outcome(1, 0), outcome(2, 1), outcome(3, 1)],
            "ana said [0, 1], but heard are [0, 1, 1]",
        ),
        ([outcome(1, 0), outcome(3, 1)], "the outcomes of ana are not numbered in order"),
        ([outcome(1, 0), outcome(2, 1, payload=b"")], "ana #1 carries another result"),
    ],
    ids=["well", "lost", "swapped", "twice", "numbers", "another"],
)
def test_outcomes_are_exactly_one_each_and_in_order(
    outcomes: list[Released], problem: str | None
) -> None:
    assert outcome_problems(ADMITTED, {"ana": outcomes}) == ([problem] if problem else [])


def test_a_session_nobody_listened_to_is_found() -> None:
    assert outcome_problems(ADMITTED, {}) == ["ana was not heard"]


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "has_colours"),
    [
        ({}, True),
        ({"NO_COLOR": ""}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
    ids=["plain", "empty", "no_color", "dumb"],
)
def test_colours_are_for_terminals_that_want_them(
    environ: dict[str, str], has_colours: bool
) -> None:
    stream = FakeTerminal()
    screen = Terminal(stream, environ)
    screen.title("Scene")
    screen.say("line", "good")
    screen.table(("node", "result"), [("a", "chosen"), ("b", "offline")])
    shown = stream.getvalue()
    assert ("\x1b[1m1. Scene\x1b[0m" in shown) is has_colours
    assert ("\x1b[32ma     chosen\x1b[0m" in shown) is has_colours
    assert ("\x1b" in shown) is has_colours
    assert "b     offline" in shown


def test_on_a_real_terminal_it_is_coloured() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        COMMAND, stdout=theirs, env={**os.environ, "TERM": "xterm", "NO_COLOR": ""}
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # the way Linux reports that the other end is closed
            pass
        assert process.wait(BOUND_S) == 0
    os.close(ours)
    assert b"\x1b[32m" in shown
    assert FACTS[-1].encode() in shown


def test_a_line_that_is_too_long_for_the_terminal_is_broken_between_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = FakeTerminal()
    Terminal(stream, {"NO_COLOR": "1"}).say("one two three four five six seven eight")
    assert stream.getvalue() == "  one two three four five six\n  seven eight\n"


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == 1
    told = capsys.readouterr()
    assert told.err == f"lingua: cannot write {tmp_path}/file/out: Not a directory\n"
    assert told.out == ""
