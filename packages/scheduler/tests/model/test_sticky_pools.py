"""Sessions keep one of several equally broad pools: the server does what the twin does.

The machine of `test_machine.py` seldom has several free pools of this kind; here it always has.
"""

from __future__ import annotations

import random

import pytest

from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import JobSpec, job_id_of
from model.samples import DEMANDS, SESSIONS, SMALL
from model.test_sequences import machine

pytestmark = pytest.mark.model

__all__ = ["machine"]
# Three equally broad abilities and a second node of one of them; demands that all of them serve.
ALIKE = [6, 7, 8, 6]
SERVED = (0, 0, 0, 4)
STEPS = 150
ROOM = {**SMALL, "outbox_max": 1000, "in_flight_max": 64, "attempts_max": 3}


def say(machine, session: str, index: int, wanted: int) -> bool:
    """Submit the next utterance of a session; tells whether a node took it."""
    cell, twin = machine.home(session)
    before = machine.world.replies["PLACED"]
    spec = JobSpec(session=session, index=index, lane="es", demand=DEMANDS[wanted].text)
    machine.send(cell, twin, job_id_of(session, f"index {index}"), spec, 0)
    return machine.world.replies["PLACED"] > before


@pytest.mark.parametrize("rules", [{}, {"spread": True}, {"sticky_pools": False}], ids=str)
def test_a_session_keeps_to_its_pool_as_the_twin_says(machine, rules) -> None:
    rng = random.Random(1)
    machine.begin(FleetPolicy(**ROOM, **rules), abilities=ALIKE, slots=8, acks=False)
    said = dict.fromkeys(SESSIONS, 0)
    chosen = []
    for _ in range(STEPS):
        session, step = rng.choice(SESSIONS), rng.random()
        if step < 0.45 or not machine.requests:
            kept = machine.home(session)[1].sessions[session].pools
            before = kept.get("es")
            if say(machine, session, said[session], rng.choice(SERVED)) and before:
                chosen.append(kept["es"] == before)
            said[session] = 1 + max(
                (spec.index for name, _, spec in machine.requests if name == session), default=-1
            )
        elif step < 0.9:
            which = rng.randrange(len(machine.requests))
            machine.settle(which, "completed", 0, other=False, unknown=False)
        else:
            which = rng.randrange(len(machine.requests))
            machine.take_away(which, off=False, reason="node_error", park=False)
        machine.the_server_holds_what_the_twin_holds()
    # Both happened: the pool was kept, and left for one less loaded or for other languages.
    assert bool(chosen) == rules.get("sticky_pools", True)
    assert set(chosen) in (set(), {True, False})
