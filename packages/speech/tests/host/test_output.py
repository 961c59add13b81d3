"""The output of worker processes: limited, and never speech."""

from __future__ import annotations

import asyncio
import logging

import pytest

from lingua_cli.logs import FIELDS
from lingua_speech.host.output import LINE_BYTES_MAX, LINES_PER_S_MAX, WorkerOutput, loggable

pytestmark = pytest.mark.unit

SAID = "please call my sister"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.msg == "engine.said"]
    return [record.__dict__[FIELDS]["line"] for record in records]


def printed(*pieces: bytes, is_private: bool) -> WorkerOutput:
    """Return an output that received these chunks and ended, within one second."""

    async def scenario() -> WorkerOutput:
        output = WorkerOutput(clock=lambda: 5.0)
        output.is_private = is_private
        for piece in pieces:
            output.data_received(piece)
        output.connection_lost(None)
        return output

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    "line",
    [
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "Fatal Python error: Segmentation fault",
        '  File "/lib/engine.py", line 12 in translate',
    ],
)
def test_how_a_process_died_may_always_be_told(line: str) -> None:
    assert loggable(line, is_private=True) == line


@pytest.mark.parametrize("line", [SAID, f"heard: {SAID}", f"ValueError: {SAID}"])
def test_nothing_else_is_told_once_somebody_may_have_said_something(line: str) -> None:
    assert loggable(line, is_private=True) == ""


def test_while_loading_words_are_told_up_to_where_they_quote() -> None:
    assert loggable("no model in ['/home/me']", is_private=False) == "no model in"


def test_lines_are_told_whole_however_they_arrive(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        printed(b"loading a mo", b"del\nloading an", b"other\nand the last", is_private=False)
    assert lines(caplog) == ["loading a model", "loading another", "and the last"]


def test_a_line_without_end_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        output = printed(*[b"x" * 5000] * 50, is_private=False)
    assert len(lines(caplog)) == 1
    assert len(lines(caplog)[0]) < LINE_BYTES_MAX
    assert output.lines_withheld == 0


def test_a_flood_of_lines_is_counted_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        output = printed(b"a warning\n" * 1000, is_private=False)
    assert len(lines(caplog)) == LINES_PER_S_MAX
    assert output.lines_withheld == 1000 - LINES_PER_S_MAX


def test_what_was_withheld_is_told_as_a_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        printed(f"{SAID}\n".encode() * 3, is_private=True)
    told = {record.msg: record.__dict__[FIELDS] for record in caplog.records}
    assert told == {"engine.output_withheld": {"pid": 0, "lines": 3}}


def test_a_process_that_got_no_memory_is_understood() -> None:
    last_words = b"  what():  std::bad_alloc\n"
    assert printed(last_words, is_private=True).reported_no_memory
    assert not printed(b"all is well\n", is_private=True).reported_no_memory
