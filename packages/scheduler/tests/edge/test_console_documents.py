from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edge.console_states import NOW_MS, instance, node, queue, row, whole_state
from lingua_scheduler.edge.console.documents import (
    ConsoleRates,
    ConsoleState,
    update_between,
    updated,
)

pytestmark = pytest.mark.unit


def told(before: ConsoleState, after: ConsoleState) -> dict[str, Any]:
    """Return an update as a reader gets it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(update_between(before, after)))
    return found


def rates(*rows: Any) -> ConsoleRates:
    return ConsoleRates(of="box", bucket_ms=10_000, rows=rows)


def test_an_update_of_nothing_is_the_time() -> None:
    before, after = whole_state(), whole_state(at_ms=NOW_MS + 1000)
    assert told(before, after) == {"at_ms": NOW_MS + 1000}


def test_an_update_has_what_changed_and_the_nodes_that_did() -> None:
    before = whole_state(nodes={"n1": node(), "n2": node("n2"), "n3": node("n3")})
    after = whole_state(
        nodes={"n1": node(), "n2": node("n2", leased=1), "n4": node("n4")},
        queues=(queue(3),),
        instances=(instance(), instance("i2")),
    )
    found = told(before, after)
    assert found.keys() == {"at_ms", "nodes", "queues", "instances"}
    assert found["nodes"].keys() == {"n2", "n3", "n4"}
    assert (found["nodes"]["n2"]["leased"], found["nodes"]["n3"]) == (1, None)


def test_an_update_has_the_rows_that_changed() -> None:
    before = whole_state(rates=rates(row(2, utterances=1), row(1)))
    after = whole_state(rates=rates(row(2, utterances=1), row(1, utterances=2), row(0)))
    assert [one.get("utterances", 0) for one in told(before, after)["rates"]["rows"]] == [2, 0]


@pytest.mark.parametrize(
    "after",
    [
        whole_state(),
        whole_state(at_ms=NOW_MS + 1, nodes={}),
        whole_state(nodes={"n1": node(leased=2), "n2": node("n2")}, nodes_total=2),
        whole_state(queues=(queue(9),), rates=rates(row(1, utterances=9), row(0, utterances=1))),
    ],
)
def test_a_reader_that_applies_updates_has_the_state(after: ConsoleState) -> None:
    before = whole_state()
    text = msgspec.json.encode(update_between(before, after))
    assert updated(before, msgspec.json.decode(text, type=ConsoleState), 360) == after


def test_a_reader_keeps_an_hour_of_rows() -> None:
    state = whole_state(rates=rates(row(2), row(1)))
    update = ConsoleState(at_ms=NOW_MS, rates=rates(row(0)))
    kept = updated(state, update, 2).rates
    assert kept
    assert [one.at_ms for one in kept.rows] == [NOW_MS - 10_000, NOW_MS]
