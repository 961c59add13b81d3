"""Leases of streams: none outlives its speaker, none is too many; kills of nodes that listen."""

from __future__ import annotations

import pytest

from lingua_bench.chaos.findings import ChaosFindings, ChaosRules
from lingua_bench.chaos.history import (
    AnyLine,
    CutRequested,
    InjectedFault,
    NodeStarted,
    ParticipantConnected,
    StreamBegun,
    StreamEnded,
    StreamLeaseSeen,
)
from lingua_bench.chaos.stream_leases import (
    OUTLIVES_S,
    check_stream_leases,
    killed_while_listening,
)

pytestmark = pytest.mark.unit

PEOPLE: list[AnyLine] = [
    ParticipantConnected(1.0, 7, "s-1", "sdk", "en", ("es",)),
    # It spoke for a second.
    CutRequested(20.0, 7, 0, 10, 0, "final"),
]
NODES: list[list[AnyLine]] = [[NodeStarted(0.5, "n-0", 4, 1)]]


def checked(*seen: StreamLeaseSeen) -> ChaosFindings:
    findings = ChaosFindings()
    check_stream_leases(seen, PEOPLE, NODES, findings)
    return findings


@pytest.mark.parametrize("at", [19.0, 20.1, 20.0 + OUTLIVES_S - 0.1])
def test_a_lease_is_held_while_one_speaks_and_for_a_moment_after(at: float) -> None:
    found = checked(StreamLeaseSeen(at, "s-1-h1.1", "n-0"))
    assert (found.stream_leases_seen, found.streams_outlived) == (1, 0)


@pytest.mark.parametrize(
    ("at", "stream"), [(20.1 + OUTLIVES_S, "s-1-h1.1"), (20.1, "s-2-h1.1"), (5.0, "s-1-h1.1")]
)
def test_a_lease_outlives_its_speaker(at: float, stream: str) -> None:
    found = checked(StreamLeaseSeen(at, stream, "n-0"), StreamLeaseSeen(at + 0.1, stream, "n-0"))
    assert found.streams_outlived == 1
    assert found.examples[0].startswith("streams_outlived: ")


def test_a_node_has_no_more_leases_than_it_declared() -> None:
    one = StreamLeaseSeen(20.0, "s-1-h1.1", "n-0")
    assert checked(one, StreamLeaseSeen(20.25, "s-1-h1.2", "n-0")).stream_leases_over == 0
    assert checked(one, StreamLeaseSeen(20.01, "s-1-h1.2", "n-0")).stream_leases_over == 1


def test_a_kill_met_a_stream_if_the_history_ends_with_one() -> None:
    first: list[AnyLine] = [NodeStarted(1.0, "n-0", 4, 2), StreamBegun(2.0, "a", 1)]
    second: list[AnyLine] = [
        NodeStarted(3.5, "n-0", 4, 2),
        StreamBegun(4.0, "b", 1),
        StreamEnded(5.0, "b", is_cut=True),
    ]
    processes = {"n-0-1": first, "n-0-2": second}
    faults = [
        InjectedFault(3.0, "kill_listening_node", "n-0", 3.5),
        InjectedFault(6.0, "kill_node", "n-0", 6.5),
        InjectedFault(3.0, "kill_instance", "n-0", 3.5),
    ]
    assert killed_while_listening(processes, faults) == 1


def test_a_run_is_void_if_a_killed_node_listened_to_nobody() -> None:
    findings = ChaosFindings(listeners_killed=1)
    findings.faults["kill_listening_node"] = 2
    assert "1 of 2 nodes listened when they were killed" in findings.voids(ChaosRules())
