"""The machine of a node: its default id and its usage."""

from __future__ import annotations

import re

import pytest

from lingua_node import Node
from lingua_node.machine import MachineUsage, default_node_id

pytestmark = pytest.mark.unit


def test_the_default_id_stays_the_same_and_fits_into_a_key() -> None:
    assert Node().node_id == Node().node_id == default_node_id()
    assert re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", default_node_id())
    assert Node().boot_id != Node().boot_id


def test_usage_is_a_percentage() -> None:
    usage = MachineUsage()
    sum(range(2_000_000))
    now = usage.now(3)
    assert 0 <= now.cpu_percent <= 100
    assert now.running_jobs == 3
