"""The measurement of readers and consoles: how it compares, and a small run of all of it."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest

from lingua_bench.audience import (
    ROUND,
    AudiencePlan,
    AudienceTurn,
    Measured,
    by_turn,
    compare,
    measure,
)
from lingua_bench.audience import report as report_of

pytestmark = pytest.mark.stress

TURN_S, EACH = 10.0, 200


def measured(cost: float, noise: float = 0.2, seed: int = 1) -> Measured:
    """Return made results: a machine that becomes slower, readers that make a speaker slower."""
    chance = random.Random(seed)
    turns, samples = [], []
    for at, case in enumerate(ROUND * 6):
        began = at * TURN_S
        turns.append(AudienceTurn(case, began, began + TURN_S, 0.1, 0.0, 0.0))
        slow = (1 + at / 50) * (cost if case == "here" else 1.0)
        samples += [
            (began + number / EACH, slow * chance.lognormvariate(0, noise))
            for number in range(EACH)
        ]
    return Measured(turns, samples, readers_mb=0.0, consoles_mb=0.0)


@pytest.mark.parametrize("cost", [1.0, 1.3])
def test_the_interval_holds_what_readers_cost_although_the_machine_becomes_slower(
    cost: float,
) -> None:
    found = measured(cost)
    here, nobody = by_turn(found, "here"), by_turn(found, "nobody")
    assert [len(turn) for turn in here] == [EACH] * 12
    ratio = compare(here, nobody, 0.99, random.Random(0))
    assert ratio.low < cost < ratio.high
    assert abs(ratio.ratio - cost) < 0.1


def test_each_case_follows_each_other_it_is_compared_with() -> None:
    neighbours = {frozenset(pair) for pair in pairwise(ROUND * 2)}
    assert {frozenset(("nobody", "here")), frozenset(("here", "elsewhere"))} <= neighbours


def test_a_small_audience_is_measured() -> None:
    plan = AudiencePlan(readers=20, consoles=4, sessions=5, rounds=1, seconds=1.5)
    found = asyncio.run(measure(plan))
    assert [turn.case for turn in found.turns] == list(ROUND)
    for turn in found.turns:
        assert (turn.events_per_s > 5) == (turn.case != "nobody")
        assert turn.scheduler_cpu > 0
    assert all(by_turn(found, case) for case in ROUND)
    assert {"nobody", "here", "p99_here_to_elsewhere"} <= report_of(found).keys()
