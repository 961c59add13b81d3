from __future__ import annotations

from typing import Any

import pytest

from edge.console_states import NOW_MS, instance, node, queue, row, session, whole_state
from lingua_scheduler.commands.top_screen import bars, in_columns, languages_text, screen
from lingua_scheduler.edge.answers import NodeLanguages
from lingua_scheduler.edge.console.documents import (
    ConsoleProblem,
    ConsoleRates,
    ConsoleSessions,
    ConsoleState,
    ConsoleVerdict,
)

pytestmark = pytest.mark.unit


def shown(state: ConsoleState, columns: int = 80, rows: int = 24) -> list[str]:
    lines = screen(state, columns, rows, has_colours=False)
    assert len(lines) <= rows
    assert all(len(line) <= columns for line in lines)
    return lines


def test_all_is_well_in_one_look() -> None:
    busy = row(1, utterances=60, outcomes={"completed": 60}, mean_ms=400.0, p95_ms=900.0)
    rates = ConsoleRates(of="box", bucket_ms=10_000, rows=(busy, row(0)))
    lines = shown(whole_state(rates=rates))
    assert lines[0].startswith("box  lingua 1, up 60s")
    assert lines[1] == "✓ all is well"
    text = "\n".join(lines)
    for part in ("sessions 1", "3.0/s", "time to result 400 ms", "95 % 900 ms", "nodes 1/1"):
        assert part in text
    assert any(line.startswith("n1    ready   ░░░░░░░░░░  0/4") for line in lines)


def test_trouble_comes_first_and_long_trouble_is_cut() -> None:
    problems = tuple(
        ConsoleProblem(level="bad", code=f"c{n}", text=f"trouble {n} " + "x " * 200)
        for n in range(8)
    )
    verdict = ConsoleVerdict(state="bad", sentence="s", problems=problems)
    many = {f"n{n}": node(f"n{n}", "ready" if n else "offline") for n in range(40)}
    lines = shown(whole_state(verdict=verdict, nodes=many, nodes_total=40))
    assert lines[1].startswith("✗ trouble 0")
    assert "  and 3 more" in lines
    rows = [line for line in shown(whole_state(nodes=many)) if line.startswith("n")]
    assert rows[1].startswith("n0    offline 3s")
    assert any(line.startswith("… ") for line in shown(whole_state(nodes=many)))


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (160, 50), (40, 10), (200, 3), (80, 1)])
def test_it_fits_into_any_window(columns: int, rows: int) -> None:
    sessions = ConsoleSessions(total=90, newest=tuple(session(f"s-{n:040}") for n in range(50)))
    nodes: dict[str, Any] = {f"node-{n}": node(f"node-{n}") for n in range(9)}
    state = whole_state(
        sessions=sessions, nodes=nodes, queues=(queue(5),), instances=(instance(), instance("i2"))
    )
    lines = shown(state, columns, rows)
    assert lines[0].startswith("box  lingua 1")


def test_a_name_cannot_steer_the_terminal() -> None:
    state = whole_state(nodes={"n1": node(platform="\x1b[2Jevil\u202e")})
    text = "\n".join(shown(state, 160))
    assert "?[2Jevil?" in text
    assert "\x1b" not in text


def test_colours_are_around_whole_lines() -> None:
    lines = screen(whole_state(), 80, 24, has_colours=True)
    assert lines[1] == "\x1b[32m✓ all is well\x1b[0m"


def test_the_hour_is_put_into_columns() -> None:
    rows = [row(number, utterances=number) for number in range(360)]
    columns = in_columns(rows, NOW_MS, 60, lambda one: one.utterances, "max")
    assert (columns[-1], columns[0], len(columns)) == (5, 359, 60)
    means = in_columns(rows, NOW_MS, 60, lambda one: one.utterances, "mean")
    assert means[-1] == 2.5


def test_what_is_not_nothing_is_seen() -> None:
    assert bars([0, 0]) == ""
    assert bars([0, 1, 800]) == " ▁█"


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"pairs": ("en>es", "es>en")}, "en>es es>en"),
        ({"sources": ("a", "b", "c", "d", "e"), "targets": None}, "a b c d +1 → any"),
    ],
)
def test_languages_in_few_words(known: dict[str, Any], text: str) -> None:
    nothing: dict[str, Any] = {"pairs": None, "sources": None, "targets": None, "voices": None}
    assert languages_text(NodeLanguages(**(nothing | known))) == text
