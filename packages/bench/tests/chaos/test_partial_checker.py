"""The checker of partial texts: it accepts good ones and rejects what no ear may receive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.test_room_checker import (
    ANN,
    BEN,
    CALM,
    CHO,
    DAN,
    EVE,
    HEAR,
    NODE,
    ROOM,
    SAY,
    checked,
    session,
    told_all,
)
from lingua_bench.chaos import marked_audio
from lingua_bench.chaos.findings import ChaosRules
from lingua_bench.chaos.history import (
    AnyLine,
    ChangeRequested,
    NodeStarted,
    PartialReceived,
    StreamBegun,
    StreamEnded,
)
from lingua_bench.chaos.report import Run, as_json_object
from lingua_bench.chaos.scenarios import scenario

pytestmark = pytest.mark.unit


def heard(
    at: float, listener: int, chunks: int = 1, speaker: int = ANN, **changes: Any
) -> PartialReceived:
    """A partial of Ann's first utterance, unless something is changed."""
    marks = marked_audio.MarkedUtterance(speaker, changes.pop("number", 0), tuple(range(chunks)))
    told: dict[str, Any] = {
        "session": session(ANN),
        "index": 0,
        "revision": chunks,
        "stream": "h1",
        "stable": marked_audio.written(marks),
        "lanes": ("en",),
        **changes,
    }
    return PartialReceived(at=at, participant=listener, **told)


GOOD: list[AnyLine] = [
    heard(9.6, ANN),
    heard(9.6, BEN),
    heard(9.6, CHO),
    heard(9.8, BEN, 2),
    # Another node heard it from its beginning.
    heard(9.9, BEN, 1, stream="h2"),
]


def test_partials_of_a_room_that_come_before_the_outcome_are_good(tmp_path: Path) -> None:
    findings = checked(tmp_path, *GOOD, *SAY, *HEAR)
    assert findings.violations(CALM) == []
    assert (findings.partials, findings.partials_of_others) == (5, 4)


BAD: list[tuple[str, list[AnyLine], str]] = [
    ("after its outcome", [*SAY, *HEAR, heard(10.3, BEN, 2)], "partials_late: 1"),
    ("after others were told", [*SAY, *HEAR, heard(10.3, ANN, 2)], "partials_late: 1"),
    ("somebody in another room", [heard(9.6, DAN), *SAY, *HEAR], "partials_misheard: 1"),
    ("somebody in no room", [heard(9.6, EVE), *SAY, *HEAR], "partials_misheard: 1"),
    (
        "speech of somebody else under a speaker's name",
        [heard(9.6, BEN, speaker=DAN), *SAY, *HEAR],
        "partials_misheard: 1",
    ),
    (
        "stable words that became fewer",
        [heard(9.6, BEN, 2), heard(9.7, BEN, 1), *SAY, *HEAR],
        "partials_changed: 1",
    ),
    (
        "stable words that became others",
        [heard(9.6, BEN), heard(9.7, BEN, number=1), *SAY, *HEAR],
        "partials_changed: 1",
    ),
    (
        "somebody who has left long ago",
        [
            ChangeRequested(1.0, BEN, "leave", ROOM, ""),
            *told_all(1.1, ANN, CHO),
            *SAY,
            *HEAR[1:],
            heard(10.5, BEN, number=1, index=1),
        ],
        "partials_misheard: 1",
    ),
]


@pytest.mark.parametrize(("lines", "found"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_partial_is_a_violation(lines: list[AnyLine], found: str, tmp_path: Path) -> None:
    assert found in checked(tmp_path, *lines).violations(CALM)


def test_where_the_store_may_forget_an_utterance_may_be_heard_again(tmp_path: Path) -> None:
    rules = ChaosRules(needs=frozenset(), store_forgets=True)
    findings = checked(tmp_path, *SAY, *HEAR, heard(10.3, BEN, 2))
    assert findings.violations(rules) == []


def test_streams_are_counted_and_more_than_a_node_declared_are_a_violation(tmp_path: Path) -> None:
    node: list[AnyLine] = [
        NodeStarted(0.0, "node-0", 2, 1),
        *NODE[1:],
        StreamBegun(9.0, "h1", 1),
        StreamEnded(9.5, "h1", is_cut=True),
        StreamBegun(9.6, "h2", 1),
        StreamBegun(9.7, "h3", 2),
    ]
    findings = checked(tmp_path, *SAY, *HEAR, node=node)
    assert findings.violations(CALM) == ["streams_over_capacity: 1"]
    run = Run(scenario("rooms", "ci"), findings)
    row = as_json_object(run)
    assert (row["streams_opened"], row["streams_lost"]) == (3, 2)


def test_a_run_of_rooms_in_which_nobody_listened_proves_nothing(tmp_path: Path) -> None:
    voids = checked(tmp_path, *SAY, *HEAR).voids(scenario("rooms", "ci").rules)
    assert "no node listened while somebody spoke" in voids
    assert "no listener received a partial text" in voids
