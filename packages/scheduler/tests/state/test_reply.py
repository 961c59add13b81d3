"""The answers of the scripts: each has a meaning, the correct sign, and a script."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from lingua_scheduler.state.reply import MEANINGS, RETRYABLE, UNPLACEABLE, Reply, replies_page

pytestmark = pytest.mark.unit

LUA = files("lingua_scheduler.state").joinpath("lua")


def lua_texts() -> list[str]:
    folders = (LUA, LUA.joinpath("includes"))
    entries = [entry for folder in folders for entry in folder.iterdir()]
    return [entry.read_text() for entry in entries if entry.name.endswith(".lua")]


def test_codes_are_distinct_and_have_no_holes() -> None:
    codes = sorted(int(reply) for reply in Reply)
    assert codes == list(range(codes[0], codes[-1] + 1))
    assert len(codes) == len(Reply.__members__)


@pytest.mark.parametrize("reply", Reply, ids=lambda reply: reply.name)
def test_every_answer_has_a_sentence(reply: Reply) -> None:
    assert re.fullmatch(r"[A-Z].*\.", reply.meaning)


def test_meanings_are_not_shared() -> None:
    assert len(set(MEANINGS.values())) == len(Reply)


def test_only_refusals_are_worth_a_retry() -> None:
    assert all(reply < 0 for reply in RETRYABLE)
    assert {reply for reply in Reply if reply.retryable} == RETRYABLE


@pytest.mark.parametrize(
    ("reply", "retryable"),
    [
        (Reply.QUEUE_FULL, True),
        (Reply.IN_FLIGHT_LIMIT, True),
        (Reply.NO_AVAILABLE_NODE, True),
        (Reply.RATE_LIMITED, True),
        (Reply.OK, False),
        (Reply.STALE_ATTEMPT, False),
        (Reply.NODE_MISMATCH, False),
        (Reply.INDEX_RELEASED, False),
        (Reply.INDEX_TAKEN, False),
        (Reply.SESSION_CLOSED, False),
        (Reply.FENCED, False),
    ],
)
def test_a_retry_helps_where_time_can(reply: Reply, retryable: bool) -> None:
    assert reply.retryable is retryable


def test_what_nobody_can_take_may_be_taken_later() -> None:
    assert {"NO_POOL_FOR_LANG_PAIR", "EMPTY_POOL", "NO_AVAILABLE_NODE"} == {
        reply.name for reply in UNPLACEABLE
    }
    assert UNPLACEABLE <= RETRYABLE


def test_every_answer_is_given_by_some_script() -> None:
    named = {name for text in lua_texts() for name in re.findall(r"Reply\.([A-Z_]+)", text)}
    assert named == set(Reply.__members__)


def test_the_page_has_a_row_for_each_answer() -> None:
    rows = [line for line in replies_page().splitlines() if line.startswith("| ")][1:]
    assert len(rows) == len(Reply)
    assert "| 1 | `PLACED` | no | The job has a node, an attempt number and a lease. |" in rows
    assert "| -8 | `QUEUE_FULL` | yes | Too many jobs wait for a node. |" in rows
    assert replies_page().endswith("|\n")
