"""Nodes killed and frozen under load: every accepted utterance has one outcome, in its place.

A small load of `live_load.py`, whose full one is played by hand; its checker is also shown to
object. The times here are for a busy machine: the full load holds the real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stress.live_cast import recorded
from stress.live_history import Fault, Figures, check, percentile, problems
from stress.live_load import QUICK, run

pytestmark = pytest.mark.stress

FAILED_PERCENT_MIN = 10
KILL_P50_MS, FREEZE_P50_MS = 300, 6500
TINY = replace(QUICK, sessions=1, max_jobs=2)
ENDED = Figures(stale=1, jobs=2, delivered_by_metric=2, after_kill_ms=[9], after_freeze_ms=[6000])


def test_nodes_killed_and_frozen_under_load_lose_nothing_repeat_nothing_and_reorder_nothing() -> (
    None
):
    figures = asyncio.run(run(QUICK))
    print(figures.table())
    assert problems(figures, QUICK) == []
    assert figures.failed_percent >= FAILED_PERCENT_MIN
    assert percentile(figures.after_kill_ms, 0.5) <= KILL_P50_MS
    assert percentile(figures.after_freeze_ms, 0.5) <= FREEZE_P50_MS


def outcome(at: float, index: int, seq: int, attempt: int = 1) -> list[Any]:
    """One session's result, as the clients write it."""
    said = [f"s {index}", f"en {attempt}"]
    return [at, 0, "outcome", index, "en", "result", seq, f"j{index}", *said, None]


CLIENT = [
    [0.0, 0, "opened", "s"],
    [1.0, 0, "sent", 0, ["en"]], [1.1, 0, "sent", 1, ["en"]],
    [1.2, 0, "accepted", 0], [1.2, 0, "accepted", 1],
    outcome(3.0, 0, 1, attempt=2), outcome(3.1, 1, 2),
    [9.0, 0, "closed", 1000],
]  # fmt: skip
# Node 11 is killed at 2.0 with the first utterance; node 12 has the second one all the time.
NODES = {
    11: [["start", 1.5, "j0", 1, 1, 0]],
    12: [
        ["start", 1.5, "j1", 1, 1, 0], ["start", 2.05, "j0", 2, 2, 0],
        ["end", 2.2, "j0", 2, True], ["end", 2.3, "j1", 1, True],
    ],
}  # fmt: skip
KILL = Fault("kill", 11, 2.0, (2.0, 2.0))


def checked(place: Path, client: list[list[Any]], *faults: Fault) -> Figures:
    histories = {"clients.history": client} | {f"{pid}.node": it for pid, it in NODES.items()}
    for name, lines in histories.items():
        (place / name).write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return check(TINY, place, list(faults))


def test_the_checker_takes_a_good_history_and_measures_the_move(tmp_path: Path) -> None:
    figures = checked(tmp_path, CLIENT, KILL)
    assert (figures.results, figures.attempts, figures.attempts_max) == (2, 3, 2)
    assert [round(ms) for ms in figures.after_kill_ms] == [50]
    assert recorded(tmp_path / "11.node") == NODES[11]
    good = replace(figures, stale=1, after_freeze_ms=[6000.0], delivered_by_metric=2)
    assert problems(good, TINY) == []


def test_a_move_to_a_node_that_was_stopped_itself_is_not_measured(tmp_path: Path) -> None:
    stopped = Fault("freeze", 12, 1.9, (1.9, 2.04))
    figures = checked(tmp_path, CLIENT, KILL, stopped)
    assert figures.after_kill_ms == []
    assert figures.unseen == 2


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda lines: lines.pop(6), "lost: 1"),
        (lambda lines: lines.append(outcome(4.0, 1, 3)), "duplicates: 1"),
        (lambda lines: lines.append(outcome(4.0, 7, 3)), "duplicates: 1"),
        (lambda lines: lines.insert(5, lines.pop(6)), "inversions: 1"),
        (lambda lines: lines[6].__setitem__(6, 3), "seq_breaks: 1"),
        (lambda lines: lines.pop(3), "unaccepted: 1"),
        (lambda lines: lines[6].__setitem__(8, "other 1"), "wrong: 1"),
        (lambda lines: lines[5].__setitem__(9, "en 1"), "wrong: 1"),
        (lambda lines: lines[7].__setitem__(3, 1006), "unclosed: 1"),
    ],
)
def test_the_checker_names_what_is_wrong_with_a_history(
    tmp_path: Path, spoil: Callable[[list[list[Any]]], None], named: str
) -> None:
    client = [list(line) for line in CLIENT]
    spoil(client)
    assert named in problems(checked(tmp_path, client, KILL), TINY)


@pytest.mark.parametrize(
    ("figures", "named"),
    [
        (replace(ENDED, stale=0), "void: no stale result was rejected"),
        (replace(ENDED, after_freeze_ms=[]), "void: nothing was moved after a freeze"),
        (replace(ENDED, running_most=3), "a node ran more than it takes"),
        (replace(ENDED, attempts_max=20), "an utterance had too many attempts"),
        (replace(ENDED, leases_left=1), "leases_left: 1"),
        (replace(ENDED, delivered_by_metric=1), "an outcome the metrics do not know"),
    ],
)
def test_a_run_with_such_figures_is_no_good_run(figures: Figures, named: str) -> None:
    assert problems(ENDED, TINY) == []
    assert problems(figures, TINY) == [named]
