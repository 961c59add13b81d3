"""The memory of a process with its children, as `lingua bench speech` measures it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_bench.speech.run import family, memory_mb

pytestmark = pytest.mark.unit


def test_the_memory_of_a_process_with_its_children_is_more_than_nothing() -> None:
    own = int(Path("/proc/self").resolve().name)
    assert own in family(own)
    assert memory_mb(own) > 1
