"""The table of measured routes: reading, writing, and invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_speech.routing import table
from lingua_speech.routing.routes import TranslationRoute
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

ONE = table.Score(
    direction="en>es",
    route="bergamot:en>pt apertium:pt>es",
    set="everyday",
    sentences=500,
    chrf=58.24,
    bleu=32.7,
    p50_ms=31.5,
    p95_ms=80.0,
    date="2026-11-17",
)
OTHER = table.Score(
    direction="en>es",
    route="apertium:en>es",
    set="everyday",
    sentences=500,
    chrf=60.0,
    bleu=33.0,
    p50_ms=4.0,
    p95_ms=9.0,
    date="2026-11-17",
)


def test_a_table_is_read_as_it_was_written_the_best_first() -> None:
    text = table.written([ONE, OTHER])
    assert table.read(text) == (OTHER, ONE)
    assert text.splitlines()[0] == table.HEAD


def test_what_was_measured_again_replaces_what_was(tmp_path: Path) -> None:
    again = table.Score(**{**{f: getattr(ONE, f) for f in ONE.__struct_fields__}, "chrf": 1.0})
    assert set(table.merged([ONE, OTHER], [again])) == {again, OTHER}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "first line"),
        ("direction\troute\n", "first line"),
        (f"{table.HEAD}\nen>es\tx\n", "line 2 has 2 fields"),
        (f"{table.HEAD}\n" + "\t".join(["x"] * 9), "line 2: Expected `int`"),
    ],
)
def test_a_line_that_is_none_is_told_by_its_number(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        table.read(text)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        table.load(tmp_path / "nothing.tsv")


def test_the_package_has_a_table_of_routes_that_can_be_read() -> None:
    assert table.default_path().is_file()
    for score in table.load():
        assert ">".join(TranslationRoute.parse(score.route).direction) == score.direction
