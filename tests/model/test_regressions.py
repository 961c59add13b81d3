"""Bugs the model found, as the shortest way to each, played by the machine's own steps."""

from __future__ import annotations

import pytest
import servers
from model.scenery import POLICIES
from model.test_machine import Machine, World, loop_of_its_own

from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.single import SingleConnection

pytestmark = pytest.mark.model


@pytest.fixture
def machine(tmp_path):
    """A machine on a server of its own; each step is followed by the comparison by hand."""
    with servers.start_server(tmp_path) as server, loop_of_its_own() as loop:
        connection = loop.run_until_complete(SingleConnection.open(server.address, LinkOptions()))
        kind = type("Regression", (Machine,), {"world": World(connection, loop, 1)})
        made = kind()
        yield made
        made.the_server_holds_what_the_twin_holds()
        made.teardown()
        loop.run_until_complete(connection.close())


def speak(machine, turn: str = "", part: str = "whole", lane: str = "es") -> None:
    machine.submit(
        0, lane, 0, 0, unwanted=False, turn=turn, part=part, preferred=None, park=0, audio=False
    )
    machine.the_server_holds_what_the_twin_holds()


def test_a_report_about_a_job_that_nobody_holds_is_stale(machine) -> None:
    """A queued job has attempt 0 and no node; a report of exactly that once settled it."""
    machine.begin(POLICIES[0], abilities=[], slots=1, acks=False)
    speak(machine)
    machine.settle(0, "completed", 0, other=False, unknown=False)
    machine.progress(0, "RUNNING", off=False, other=False)

    assert machine.world.replies["STALE_ATTEMPT"] == 2


def test_a_silent_slice_does_not_prolong_a_lease_that_has_lapsed(machine) -> None:
    """Its slot may be another's by then: prolonging it blindly put two jobs on one slot."""
    machine.begin(POLICIES[0], abilities=[0], slots=1, acks=False)
    speak(machine, turn="t1", part="slice")
    machine.a_while_passes_in_good_health()
    machine.the_server_holds_what_the_twin_holds()
    speak(machine, lane="fr")

    assert machine.world.replies["DEFERRED"] == 1
    assert machine.world.replies["QUEUED"] == 1
