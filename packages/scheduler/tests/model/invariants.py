"""The invariants of the guarantees, asserted on the server's data after every step."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lingua_scheduler.jobs.job import TRANSITIONS
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.records import AS_SPOKEN
from model.twin import CellTwin

States = dict[str, dict[str, Any]]

ENDED = ("FINISHED", "RELEASED")


def check_invariants(states: States, twins: dict[str, CellTwin], policy: FleetPolicy) -> None:
    """Assert everything that must hold between any two steps."""
    for name, state in states.items():
        check_leases(name, state, states, twins[name].now)
        check_streams(state, twins[name].now)
        check_jobs(state, policy, twins[name])
        check_order(state, policy)
        check_queue(state, policy)


class Watch:
    """What must hold between one step and the next: positions, owners and what is kept."""

    def __init__(self) -> None:
        # Session -> its state after the last step.
        self._before: dict[str, dict[str, Any]] = {}
        # Sessions whose positions start over in this step -> whether their outbox is kept.
        self._starts_over: dict[str, bool] = {}
        # (session, epoch) -> the highest position that was acknowledged.
        self._acknowledged: dict[tuple[str, int], int] = {}

    def starts_over(self, session: str, *, keeps_outbox: bool) -> None:
        """Expect a new epoch."""
        self._starts_over[session] = keeps_outbox

    def acknowledged(self, session: str, epoch: int, seq: int) -> None:
        """Expect that nothing is kept up to a position."""
        highest = self._acknowledged.get((session, epoch), 0)
        self._acknowledged[session, epoch] = max(highest, seq)

    def step(self, states: States) -> None:
        """Compare with the last step."""
        after = {k: v for state in states.values() for k, v in state["sessions"].items()}
        for name, session in after.items():
            # Nothing goes that was not acknowledged.
            acknowledged = self._acknowledged.get((name, session["epoch"]), 0)
            assert session["trimmed"] == acknowledged
            if name in self._before:
                self._compare(name, self._before[name], session)
        assert after.keys() >= self._before.keys()
        self._before = after
        self._starts_over = {}

    def _compare(self, name: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        # A fence never comes back, and another owner has another one.
        assert after["fence"] >= before["fence"]
        assert after["owner"] == before["owner"] or after["fence"] > before["fence"]
        keeps_outbox = self._starts_over.get(name)
        if keeps_outbox is None:
            # No position is given twice, none is left out, and none is taken back.
            assert after["epoch"] == before["epoch"]
            assert after["seq"] >= before["seq"]
            gone = after["trimmed"] - before["trimmed"]
            assert gone >= 0
            kept = before["outbox"][gone:]
            assert after["outbox"][: len(kept)] == kept
        else:
            assert after["epoch"] > before["epoch"]
            assert after["outbox"] == (before["outbox"] if keeps_outbox else [])


def check_leases(name: str, state: dict, states: States, now: int) -> None:
    for node_id, node in state["nodes"].items():
        live = {member for member, expiry in node["leases"].items() if expiry > now}
        for member in live:
            job_id, attempt, *home = member.split("|")
            job = states[home[0] if home else name]["jobs"].get(job_id)
            assert job is not None, f"a lease of no job: {member}"
            current = (job["attempt"], job["node"]) == (int(attempt), node_id)
            # The lease is the job's own; a lease in another cell may be reserved for the next
            # attempt, or left behind by one that moved on: both have a timer that ends them.
            if home:
                assert f"l|{node_id}|{member}" in state["due"]
            else:
                assert current
                assert job["state"] not in ENDED, "a job that ended holds no slot"
        for job_id, job in state["jobs"].items():
            held_here = job["holder"] is not None and job["holder"][0] == name
            if held_here and job["node"] == node_id and job["state"] not in ENDED:
                # No attempt without a lease taken first.
                assert f"{job_id}|{job['attempt']}" in node["leases"]


def check_streams(state: dict, now: int) -> None:
    for node_id, node in state["nodes"].items():
        live = {stream for stream, expiry in node["streams"].items() if expiry > now}
        # Never more than the node takes.
        assert len(live) <= node["streams_max"]
        assert not live or node["status"] != "offline"
        # Each is heard by one node, which a repeated call finds.
        assert all(state["heard_streams"][stream] == node_id for stream in live)
    for ranked in state["streaming"].values():
        for node_id in ranked:
            assert state["nodes"][node_id]["status"] == "ready"


def check_jobs(state: dict, policy: FleetPolicy, twin: CellTwin) -> None:
    for job_id, job in state["jobs"].items():
        # Attempts are numbered from 1 and bounded.
        assert 0 <= job["attempt"] <= policy.attempts_max + twin.jobs[job_id].spared
        # What lives has a timer that will end or move it.
        assert (f"j|{job_id}" in state["due"]) == (job["state"] not in ENDED)
        if job["state"] not in ENDED and not job["node"]:
            assert job["state"] == "CREATED"
        history = twin.jobs[job_id].history
        # Only the moves of the table.
        assert all(move in TRANSITIONS for move in pairwise(history)), history


def check_order(state: dict, policy: FleetPolicy) -> None:
    for session in state["sessions"].values():
        # `seq` is contiguous from 1, the outbox is exactly what was not trimmed.
        assert len(session["outbox"]) == session["seq"] - session["trimmed"]
        for lane_name, lane in session["lanes"].items():
            entries = lane["entries"]
            head = entries.get(lane["next"])
            # Nothing that could be released waits.
            assert head is None or head[2] is None
            assert all(index >= lane["next"] for index in entries)
            if lane_name == AS_SPOKEN:
                continue
            live = [e for e in entries.values() if e[0][0] not in "-="]
            assert len(live) <= policy.in_flight_max
            for job_id, _, outcome in live:
                ended = state["jobs"][job_id]["state"] in ENDED
                assert ended == (outcome is not None)
        indices: dict[tuple[str, bool], list[int]] = {}
        for kind, index, lane_name, *_ in session["outbox"]:
            if kind != "heard":
                # What others must have first may come after a later one of the speaker's own.
                indices.setdefault((lane_name, kind.startswith("+")), []).append(index)
        # By index, without repeats.
        assert all(list_ == sorted(set(list_)) for list_ in indices.values())


def check_queue(state: dict, policy: FleetPolicy) -> None:
    queued = {job for queue in state["queues"].values() for job in queue}
    assert queued == set(state["pending"])
    for job in queued:
        assert state["jobs"][job]["node"] == ""
        assert state["jobs"][job]["state"] == "CREATED"


def check_quiet(states: States, admitted: list[tuple[str, str]]) -> None:
    """After faults stopped and time passed: everything admitted has ended, nothing is held."""
    jobs = {job: row for state in states.values() for job, row in state["jobs"].items()}
    for _, job in admitted:
        assert jobs[job]["state"] == "RELEASED", (job, jobs[job])
        assert jobs[job]["seq"] > 0 or "audience" in jobs[job]["spec"]
    for state in states.values():
        # Everybody has what was for them.
        assert not state["relays"]
        assert not state["pending"]
        assert not state["waiting"]
        assert not state["reserved"]
        assert not any(node["leases"] or node["streams"] for node in state["nodes"].values())
        assert not any(timer[0] in "jlgrx" for timer in state["due"])
        assert all(session["closed"] for session in state["sessions"].values())
