"""How soon the jobs of a lost node run elsewhere, measured from histories."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingua_bench.chaos.history import (
    AnyLine,
    AttemptFinished,
    AttemptStarted,
    InjectedFault,
    NodeStarted,
    Recorder,
    running_attempts,
)
from lingua_bench.chaos.redispatch import measure_redispatches

pytestmark = pytest.mark.unit


def started(at: float, job: str, attempt: int) -> AttemptStarted:
    return AttemptStarted(
        at=at, job=job, attempt=attempt, said="0.0:0", target="en", running=1, refused=0
    )


# Node 1 is killed at 2.0 with the first job; node 2 has the second one all the time.
NODES: dict[str, list[AnyLine]] = {
    "node-1-11": [NodeStarted(1.0, "node-1", 2), started(1.5, "j0", 1)],
    "node-2-12": [
        NodeStarted(1.0, "node-2", 2),
        started(1.5, "j1", 1),
        started(2.05, "j0", 2),
        AttemptFinished(2.2, "j0", 2, is_done=True),
        AttemptFinished(2.3, "j1", 1, is_done=True),
    ],
}
KILL = InjectedFault(2.0, "kill_node", "node-1", 2.1)


def test_the_move_of_a_killed_nodes_job_is_measured() -> None:
    found = measure_redispatches(NODES, [KILL])
    assert [round(ms) for ms in found.after_kill_ms] == [50]
    assert (found.after_freeze_ms, found.unseen) == ([], 0)


def test_a_move_after_a_freeze_is_measured_apart() -> None:
    found = measure_redispatches(NODES, [InjectedFault(1.9, "freeze_busy_node", "node-1", 8.0)])
    assert [round(ms) for ms in found.after_freeze_ms] == [150]
    assert found.after_kill_ms == []


@pytest.mark.parametrize(
    "stopped",
    [
        InjectedFault(1.9, "freeze_node", "node-2", 2.04),
        InjectedFault(2.04, "pause_kill_node", "node-2", 2.3, stopped_at=1.9),
    ],
)
def test_a_move_to_a_node_that_was_stopped_itself_is_not_measured(stopped: InjectedFault) -> None:
    found = measure_redispatches(NODES, [KILL, stopped])
    assert found.after_kill_ms == []
    assert found.unseen == 2, "j0, and j1 of the stopped node, which nobody started again"


def test_a_kill_hits_the_process_that_the_node_had_then() -> None:
    again: list[AnyLine] = [NodeStarted(2.1, "node-1", 2), started(2.2, "j2", 1)]
    found = measure_redispatches(NODES | {"node-1-13": again}, [KILL])
    assert [round(ms) for ms in found.after_kill_ms] == [50]
    before = InjectedFault(0.5, "kill_node", "node-1", 0.6)
    assert measure_redispatches(NODES, [before]).after_kill_ms == []


def test_a_job_that_was_taken_from_the_node_before_is_not_measured() -> None:
    late = InjectedFault(2.1, "kill_node", "node-1", 2.2)
    found = measure_redispatches(NODES, [late])
    assert (found.after_kill_ms, found.unseen) == ([], 0)


def test_the_last_attempt_of_a_job_has_no_next_one() -> None:
    nodes: dict[str, list[AnyLine]] = {
        "node-1-11": [NodeStarted(1.0, "node-1", 2), started(1.5, "j0", 3)]
    }
    found = measure_redispatches(nodes, [KILL])
    assert (found.after_kill_ms, found.unseen) == ([], 0)


def test_short_stops_and_faults_of_others_are_no_losses_of_a_node() -> None:
    faults = [
        InjectedFault(2.0, "stutter_node", "node-1", 2.1),
        InjectedFault(2.0, "kill_instance", "instance-0", 2.1),
    ]
    assert measure_redispatches(NODES, faults).after_kill_ms == []


def test_the_attempts_that_a_node_runs_are_read_from_its_history(tmp_path: Path) -> None:
    path = tmp_path / "node-2-12.node"
    assert running_attempts(path) == 0
    recorder = Recorder(path)
    counts = []
    for line in NODES["node-2-12"]:
        recorder.note(line)
        counts.append(running_attempts(path))
    recorder.close()
    assert counts == [0, 1, 2, 1, 0]
