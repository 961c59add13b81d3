"""Tables for terminals: alignment and empty cells."""

import pytest

from lingua_cli.table import render_table

pytestmark = pytest.mark.unit


def test_text_goes_left_and_numbers_go_right_under_their_headers() -> None:
    table = render_table(
        ("node", "jobs", "load"),
        [("gpu-1", 4, 0.5), ("b", 12, 10.25)],
    )
    assert table.splitlines() == [
        "node   jobs   load",
        "gpu-1     4    0.5",
        "b        12  10.25",
    ]


def test_a_missing_number_leaves_its_cell_empty() -> None:
    assert render_table(("n", "note"), [(None, "x"), (10, None)]).splitlines() == [
        " n  note",
        "    x",
        "10",
    ]


def test_a_column_with_text_and_numbers_is_text() -> None:
    assert render_table(("value",), [("none",), (7,)]).splitlines() == ["value", "none", "7"]


def test_without_rows_only_the_headers_are_shown() -> None:
    assert render_table(("node", "jobs"), []) == "node  jobs"


def test_a_row_of_the_wrong_length_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 headers"):
        render_table(("node", "jobs"), [("a",)])
    with pytest.raises(ValueError, match="2 headers"):
        render_table(("node", "jobs"), [("a", 1, 2)])
