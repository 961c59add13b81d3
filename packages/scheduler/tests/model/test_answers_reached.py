"""Scripted runs of the machine that reach every important answer.

The random runs of `test_machine.py` search for unknown faults; whether one of them gets a certain
answer depends on chance. Here each answer is reached by construction, with the same steps and the
same comparison of the whole state after each.
"""

from __future__ import annotations

import contextlib

import pytest

import servers
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection
from model.owners import FORMER_OWNERS_DO
from model.samples import DEMANDS, POLICIES, SESSIONS
from model.test_machine import Machine, World, loop_of_its_own

pytestmark = pytest.mark.model

UNSERVED_DEMAND = next(at for at, wish in enumerate(DEMANDS) if wish.text.startswith("xx>"))
ANSWERS = frozenset(
    {"PLACED", "QUEUED", "SETTLED", "DUPLICATE", "STALE_ATTEMPT", "NODE_MISMATCH", "FENCED"}
    | {"JOB_ENDED", "IN_FLIGHT_LIMIT", "DEFERRED", "EPOCH_CHANGED", "NO_POOL_FOR_LANG_PAIR"}
    | {"TOO_EARLY"}
    | {"STREAM_OPENED", "NO_AVAILABLE_NODE", "NO_SESSION", "SESSION_CLOSED", "renewed", "closed"}
    | {"OPENED", "RESUMED", "fetch with audio", "resume starts over"}
    | {"resume after what was confirmed"}
    | {f"resume {end}" for end in ("RESUMED", "FENCED", "TRIMMED", "SESSION_CLOSED")}
    | {f"former {act} FENCED" for act in FORMER_OWNERS_DO}
)
ANSWERS_ELSEWHERE = frozenset({"PARKED", "RESERVED", "PLACED", "STALE_ATTEMPT", "SETTLED", "OK"})


@contextlib.contextmanager
def led(directory, cells: int):
    """Yield a machine on a server of its own, which must have no open work in the end."""
    with servers.start_server(directory) as server, loop_of_its_own() as loop:
        connection = loop.run_until_complete(
            SingleConnection.open(server.address, LinkOptions(call_timeout_ms=10_000))
        )
        machine = type("Led", (Machine,), {"world": World(connection, loop, cells)})()
        yield machine
        machine.the_server_holds_what_the_twin_holds()
        machine.teardown()
        loop.run_until_complete(connection.close())


def step(machine, rule: str, *args, **kwargs) -> None:
    """Run one step of the machine and the comparison after it."""
    getattr(machine, rule)(*args, **kwargs)
    machine.the_server_holds_what_the_twin_holds()


def say(machine, which: int, demand: int = 0, *, ahead: int = 0, **more) -> None:
    part = {"turn": "", "part": "whole", "preferred": None, "park": 0, "audio": False, **more}
    step(machine, "submit", which, "es", demand, ahead, unwanted=False, **part)


def come_back(machine, which: int, **claim) -> None:
    usual = {"token": "right", "tenant": False, "epoch": "now", "base": "seq", "off": 0}
    usual |= {"forgets": False, "confirms": False}
    step(machine, "resume", which, "i2", **{**usual, **claim})


def report(machine, which: int, kind: str = "completed", *, off: int = 0, other=False) -> None:
    step(machine, "settle", which, kind, off, other=other, unknown=False)


def speak_in_streams(machine) -> None:
    """Streams up to what the node takes: one goes on, one is closed, one gets its job."""
    for _ in range(3):
        step(machine, "begin_to_speak", 1, "es", 0)
    step(machine, "begin_to_speak", 1, "es", 0, again=True)
    step(machine, "begin_to_speak", 0, "es", 0)
    step(machine, "begin_to_speak", 1, "es", 0, former=True)
    step(machine, "begin_to_speak", 1, "es", UNSERVED_DEMAND)
    step(machine, "go_on_speaking", [0, 1], 4999)
    step(machine, "fall_silent", 0)
    step(machine, "fall_silent", 0)
    step(machine, "finish_speaking", 3, "fr", 2)


def test_every_answer_to_jobs_sessions_and_owners_is_come_by(tmp_path) -> None:
    with led(tmp_path, 1) as machine:
        machine.begin(POLICIES[2], abilities=[0], slots=1, acks=False)
        say(machine, 0, audio=True)
        held = {"live": True, "off": False, "other": False, "audio": True}
        for newer in (False, True):  # for the process that holds it, and for the one after it
            step(machine, "fetch", 0, boot=True, newer=newer, **held)
        say(machine, 0)  # waits: the node has one slot
        step(machine, "submit_again", 0)
        say(machine, 1, UNSERVED_DEMAND)
        say(machine, 0, ahead=9)
        say(machine, 0, early=True)
        report(machine, 0, off=1)
        report(machine, 0, other=True)
        report(machine, 0)
        report(machine, 0, "failed")
        report(machine, 1)
        say(machine, 1, turn="t1", part="slice")
        step(machine, "a_while_passes_in_good_health")

        speak_in_streams(machine)
        step(machine, "acknowledge", 0, 0, wrong=True, mine=True, confirms=True)
        come_back(machine, 0)
        come_back(machine, 0, token="wrong")
        come_back(machine, 0, base="trimmed", off=-1, forgets=True)
        come_back(machine, 0, base="trimmed", off=-1, forgets=True, confirms=True)
        come_back(machine, 0, off=1)
        grant = next(grant for name, grant in machine.former() if name == SESSIONS[0])
        for act in FORMER_OWNERS_DO:
            step(machine, "a_former_owner_does", act, SESSIONS[0], grant, "es")
        step(machine, "close_session", 2, sure=True, mine=True)
        come_back(machine, 2)
        step(machine, "begin_to_speak", 2, "es", 0)

        assert machine.world.replies.keys() >= ANSWERS


def test_every_step_of_a_placement_in_another_cell_is_come_by(tmp_path) -> None:
    with led(tmp_path, 3) as machine:
        machine.begin(POLICIES[0], abilities=[0, 0, 0, 0], slots=2, acks=False)
        for which in range(len(SESSIONS)):
            for where in (0, 1):
                step(machine, "speak_to_another_cell", which, "es", "", where, delay=0, crash="")
        held = machine.held()
        report(machine, held[0], off=1)
        for at in held:
            report(machine, at)

        assert machine.reservations
        assert machine.world.replies.keys() >= ANSWERS_ELSEWHERE


@pytest.mark.parametrize("ms", [200_000, -60_000])
def test_a_step_of_the_clock_rings_no_timer_and_takes_nothing_away(tmp_path, ms) -> None:
    with led(tmp_path, 1) as machine:
        machine.begin(POLICIES[0], abilities=[0], slots=1, acks=False)
        say(machine, 0)
        say(machine, 0)
        _, twin = machine.home(SESSIONS[0])
        before = dict(twin.due)
        step(machine, "the_clock_of_the_server_is_set", ms)
        step(machine, "timers_ring")
        assert twin.due == before
        assert not twin.sessions[SESSIONS[0]].closed
        machine.tick(machine.policy.pending_ms)
        step(machine, "timers_ring")
        assert [row[0] for row in twin.sessions[SESSIONS[0]].outbox] == []
        assert twin.jobs[machine.requests[1][1]].job.outcome == "expired"
