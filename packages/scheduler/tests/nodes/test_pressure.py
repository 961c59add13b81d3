"""When a machine is too busy for new work, and how the reason is written and read back."""

from __future__ import annotations

import pytest

from lingua_scheduler.nodes.pressure import (
    Excess,
    NodeUsage,
    over_threshold,
    pressure_text,
    read_pressure,
)

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("usage", "is_over"),
    [
        (NodeUsage(cpu=10, memory=10, gpu=10), False),
        (NodeUsage(cpu=86, memory=10, gpu=10), True),
        (NodeUsage(cpu=10, memory=86, gpu=10), True),
        (NodeUsage(cpu=10, memory=10, gpu=86), True),
        (NodeUsage(cpu=99, memory=99, gpu=99), True),
        (NodeUsage(cpu=85, memory=85, gpu=85), False),
        (NodeUsage(cpu=85.01, memory=0), True),
        (NodeUsage(cpu=0, memory=0), False),
    ],
    ids=["none", "cpu", "memory", "gpu", "all", "at the threshold", "just above", "no gpu"],
)
def test_a_machine_is_too_busy_above_the_threshold(usage: NodeUsage, is_over: bool) -> None:
    assert over_threshold(usage, 85) is is_over


def test_the_threshold_is_a_setting() -> None:
    assert over_threshold(NodeUsage(cpu=51, memory=0), 50)
    assert not over_threshold(NodeUsage(cpu=100, memory=100, gpu=100), 100)


def test_what_is_over_the_threshold_is_told_in_numbers_and_read_back() -> None:
    assert pressure_text(NodeUsage(cpu=85, memory=10), 85) == ""
    assert read_pressure("") == ()
    told = pressure_text(NodeUsage(cpu=97.23, memory=40, gpu=91), 85.5)
    assert told == "cpu 97.2 85.5, gpu 91.0 85.5"
    assert read_pressure(told) == (Excess("cpu", 97.2, 85.5), Excess("gpu", 91.0, 85.5))
