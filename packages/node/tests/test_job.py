"""A job as its handler sees it: the fields of its assignment and the time that is left."""

from __future__ import annotations

import pytest

from lingua_node import Job
from lingua_node.job import Field
from lingua_wire.to_node import JobAssign
from node_peer import (
    job,
)

pytestmark = pytest.mark.unit


def test_a_job_has_every_field_of_its_assignment() -> None:
    fields = {name for name, value in vars(Job).items() if isinstance(value, Field)}
    assert fields == set(JobAssign.__struct_fields__)
    assigned = job(dialect="mx", turn_id="t", is_manual_cut=True, deadline_ms=5)
    given = Job(assigned, "n1", lambda message: None)
    for name in fields:
        assert getattr(given, name) == getattr(assigned, name)


def test_a_job_knows_how_long_the_scheduler_still_waits() -> None:
    given = Job(job(deadline_ms=5000), "n1", lambda message: None)
    remaining = given.remaining_ms
    assert remaining is not None
    assert 0 < remaining <= 5000
    given.started_at -= 2
    assert given.remaining_ms is not None
    assert given.remaining_ms <= remaining - 2000
    given.started_at -= 4
    assert given.remaining_ms == 0
    assert Job(job(), "n1", lambda message: None).remaining_ms is None
