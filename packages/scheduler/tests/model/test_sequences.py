"""Bugs that the model found: the shortest sequence of the machine's steps for each."""

from __future__ import annotations

import pytest

import servers
from lingua_scheduler.state.link import LinkOptions
from lingua_scheduler.state.records import JobSpec, job_id_of
from lingua_scheduler.state.single import SingleConnection
from model.samples import DEMANDS, POLICIES
from model.test_machine import Machine, World, loop_of_its_own

pytestmark = pytest.mark.model


@pytest.fixture
def machine(tmp_path):
    """A machine on a server of its own; each step is followed by the comparison by hand."""
    with servers.start_server(tmp_path) as server, loop_of_its_own() as loop:
        connection = loop.run_until_complete(
            SingleConnection.open(server.address, LinkOptions(call_timeout_ms=10_000))
        )
        kind = type("Sequence", (Machine,), {"world": World(connection, loop, 1)})
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
    """A queued job has attempt 0 and no node; a report of exactly that must not settle it."""
    machine.begin(POLICIES[0], abilities=[], slots=1, acks=False)
    speak(machine)
    machine.settle(0, "completed", 0, other=False, unknown=False)
    machine.progress(0, "RUNNING", off=False, other=False)

    assert machine.world.replies["STALE_ATTEMPT"] == 2


def test_a_silent_slice_does_not_prolong_a_lease_that_has_lapsed(machine) -> None:
    """Its slot may be another's by then: prolonging it blindly would put two jobs on one slot."""
    machine.begin(POLICIES[0], abilities=[0], slots=1, acks=False)
    speak(machine, turn="t1", part="slice")
    machine.a_while_passes_in_good_health()
    machine.the_server_holds_what_the_twin_holds()
    speak(machine, lane="fr")

    assert machine.world.replies["DEFERRED"] == 1
    assert machine.world.replies["QUEUED"] == 1


def test_an_index_inside_a_range_nobody_wanted_is_refused(machine) -> None:
    """If it were admitted there, its outcome would never be released."""
    machine.begin(POLICIES[0], abilities=[0], slots=3, acks=False)
    cell, twin = machine.home("s1")
    for index, unwanted_from in ((0, -1), (3, 1), (2, -1)):
        spec = JobSpec(
            session="s1",
            index=index,
            lane="es",
            demand=DEMANDS[0].text,
            unwanted_from=unwanted_from,
        )
        machine.send(cell, twin, job_id_of("s1", f"index {index}"), spec, 0)
        machine.the_server_holds_what_the_twin_holds()

    assert machine.world.replies["PLACED"] == 2
    assert machine.world.replies["INDEX_RELEASED"] == 1


def test_indices_far_apart_do_not_keep_the_server_busy(machine) -> None:
    """Ends of turns and sessions must not walk index by index through what nobody wanted."""
    machine.begin(POLICIES[0], abilities=[0], slots=3, acks=False)
    cell, twin = machine.home("s1")
    parts = ((0, -1, False), (1_000_000_000, 1, True))
    for index, unwanted_from, closes in parts:
        spec = JobSpec(
            session="s1", index=index, lane="es", demand=DEMANDS[0].text, turn="t1",
            is_slice=not closes, closes_turn=closes, unwanted_from=unwanted_from,
        )  # fmt: skip
        machine.send(cell, twin, job_id_of("s1", f"index {index}"), spec, 0)
    machine.settle(1, "completed", 0, other=False, unknown=False)
    machine.the_server_holds_what_the_twin_holds()
    machine.close(cell, twin, "s1", lapse_only=False)


def test_the_clock_of_a_gap_is_not_put_back_by_later_arrivals(machine) -> None:
    """A hole waits from the first index above it, not from the nearest."""
    machine.begin(POLICIES[0], abilities=[0], slots=3, acks=False)
    cell, twin = machine.home("s1")
    for index in (3, 1):
        spec = JobSpec(session="s1", index=index, lane="es", demand=DEMANDS[0].text)
        machine.send(cell, twin, job_id_of("s1", f"index {index}"), spec, 0)
        machine.tick(2000)
    machine.timers_ring()
    machine.the_server_holds_what_the_twin_holds()

    kinds = [row[:2] for row in twin.sessions["s1"].outbox]
    assert kinds == [("missing", 0)]
    assert not twin.sessions["s1"].lanes["es"].holes()


def test_a_job_that_must_wait_may_get_the_slot_that_it_leaves(machine) -> None:
    """Its node has begun anew, and no other may take it: queued, it is placed in the same step."""
    machine.begin(POLICIES[0], abilities=[0, 0], slots=1, acks=False)
    paired = next(at for at, want in enumerate(DEMANDS) if want.text.endswith("eu,gpu|n1"))
    for demand in (0, paired):
        machine.submit(
            0, "es", demand, 0, unwanted=False, turn="", part="whole", preferred=None, park=0,
            audio=False,
        )  # fmt: skip
    machine.a_while_passes_in_good_health()
    machine.register(0, 0, 1, acks=False, fresh=True, drain=False, streams=0)
    machine.a_while_passes_in_good_health()
    machine.the_server_holds_what_the_twin_holds()

    (held,) = [at for at in machine.held() if machine.requests[at][2].demand.endswith("eu,gpu|n1")]
    session, job, _ = machine.requests[held]
    assert machine.home(session)[1].jobs[job].job.attempt == 2


# Calls that go together: the store remembers between them what it has read.

SAY, ANSWER = False, True


def at_once(machine, *calls: tuple[int, bool]) -> None:
    """Make calls in one turn of the loop: a session speaks, or the job of a place is answered."""
    machine.together([(which, 0, "es", is_answer) for which, is_answer in calls])
    machine.the_server_holds_what_the_twin_holds()


def test_two_jobs_of_one_batch_do_not_share_the_last_slot(machine) -> None:
    machine.begin(POLICIES[0], abilities=[0], slots=1, acks=False)
    at_once(machine, (0, SAY), (1, SAY), (2, SAY))

    assert machine.world.replies["PLACED"] == 1
    assert machine.world.replies["QUEUED"] == 2


def test_a_slot_that_a_batch_frees_is_taken_in_the_same_batch(machine) -> None:
    machine.begin(POLICIES[0], abilities=[0], slots=1, acks=False)
    speak(machine)
    at_once(machine, (0, ANSWER), (1, SAY), (2, SAY), (1, ANSWER))

    assert machine.world.replies["PLACED"] == 2
    assert machine.world.replies["QUEUED"] == 1
    assert len(machine.held()) == 1


def test_a_job_that_waits_since_this_batch_gets_the_slot_that_it_frees(machine) -> None:
    """The first end finds that nothing waits; the second one must look again."""
    machine.begin(POLICIES[0], abilities=[0], slots=2, acks=False)
    at_once(machine, (0, SAY), (1, SAY))
    at_once(machine, (0, ANSWER), (0, SAY), (2, SAY), (0, ANSWER))

    assert machine.world.replies["QUEUED"] == 1
    assert len(machine.held()) == 2


def test_all_slots_that_a_batch_frees_are_free_in_it(machine) -> None:
    machine.begin(POLICIES[0], abilities=[0], slots=3, acks=False)
    at_once(machine, (0, SAY), (1, SAY), (2, SAY))
    at_once(machine, *[(0, ANSWER)] * 3, *[(which, SAY) for which in (0, 1, 2, 0)])

    assert machine.world.replies["PLACED"] == 6
    assert machine.world.replies["QUEUED"] == 1


def test_the_end_of_a_lapsed_lease_frees_no_slot_of_another(machine) -> None:
    """Its slot was given to another meanwhile: that it ends makes no room in the same batch."""
    machine.begin(POLICIES[0], abilities=[0], slots=2, acks=False)
    speak(machine, turn="t1", part="slice")
    machine.tick(machine.policy.attempt_ms + machine.policy.lease_grace_ms + 1)
    at_once(machine, (1, SAY), (2, SAY), (0, ANSWER), (1, SAY))

    assert machine.world.replies["PLACED"] == 3
    assert machine.world.replies["QUEUED"] == 1
