"""The scenarios by name, each in three sizes: `quick` and `ci` for every day, `full` for the proof.

A scenario defines the processes, the faults, the dangerous paths that the run must take, and the
rules that it must keep. The sizes change numbers and never the checks, except that the time limits
of the two small sizes leave room for a busy machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from lingua_bench.chaos.findings import ROOM_DANGERS, UNLIMITED, ChaosRules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_bench.chaos.findings import Danger
    from lingua_bench.chaos.proxy import ProxiedLink

Size = Literal["quick", "ci", "full"]
SIZES: Final[tuple[Size, ...]] = ("quick", "ci", "full")
# The small sizes are not for measuring.
PATIENCE: Final = 2.0
BOUND_S: Final = 150.0
CLUSTER_CELLS: Final = 6
DEFAULT_RULES: Final = ChaosRules()


# Changes that participants make right after an utterance; the last one, in the middle of it.
ROOM_ACTS: Final = ("move", "leave", "language", "reconnect", "reconnect_move", "midway")
CALM_ACTS: Final = ("move", "leave", "language")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run."""

    name: str
    what: str
    # Fault -> how often; `link:toxic` for a fault of a proxy.
    faults: Mapping[str, int] = field(default_factory=dict)
    rules: ChaosRules = DEFAULT_RULES
    instances: int = 3
    nodes: int = 8
    max_jobs: int = 4
    # Streams of each node besides its jobs, where there are rooms.
    max_streams: int = 3
    sessions: int = 50
    utterances: int = 10_000
    window: int = 3
    pause_s: float = 0.5
    # Participants of rooms, in addition to the sessions above, and their mean pause.
    rooms: int = 0
    room_size: int = 4
    room_pause_s: float = 1.0
    room_acts: tuple[str, ...] = ROOM_ACTS
    # The part of utterances that nodes can listen to.
    room_slow: float = 0.3
    # How long nothing may arrive before missing outcomes are given up.
    room_silence_s: float = 14.0
    # How often each session moves to another instance by itself.
    moves: int = 0
    # Mean pause before each fault, and how many faults are in progress at the same time.
    gap_s: float = 1.0
    hands: int = 1
    is_cluster: bool = False
    # One scheduler in `local` mode with its private store.
    is_private: bool = False
    # Recordings are spoken into real engines, instead of marked audio into simulated nodes.
    is_real_speech: bool = False
    # The schedulers end by SIGTERM, with the exit code 0.
    ends_by_term: bool = False
    cells: int = 1
    links: tuple[ProxiedLink, ...] = ()
    nodes_on_first: bool = False
    least_ms: float = 20.0
    most_ms: float = 200.0
    settings: dict[str, str] = field(default_factory=dict)
    # A fault planted into the schedulers on purpose; see `planted.py`.
    planted: str = ""
    size: Size = "full"
    seed: int = 1
    # After this the run is given up.
    bound_s: float = 1500.0


def is_counted(scenario: Scenario) -> bool:
    """Tell whether the counts of the schedulers are complete and can be compared.

    The counts of a killed scheduler are lost, a lost store has work done twice, and the histories
    do not show every language of an utterance in a room.
    """
    safe = all(fault.endswith("_node") for fault in scenario.faults)
    return safe and not scenario.rooms and not scenario.moves and not scenario.links


def needs(*paths: Danger) -> frozenset[Danger]:
    """Return the dangerous paths that a run must take; to hit open work is always one of them."""
    return frozenset({"hit", *paths})


ROOM_NEEDS: Final = needs("resume", "stream", "overheard", *ROOM_DANGERS)

TOXIC_LINKS: Final = tuple(
    f"{link}:{toxic}"
    for link in ("client", "node", "store")
    for toxic in ("late", "crumbs", "cut_off", "deaf_up", "deaf_down")
)

FULL: Final[dict[str, Scenario]] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "instances",
            "kill -9 of instances, half of them stopped for a moment before",
            faults={"kill_instance": 50, "pause_kill_instance": 50},
            rules=ChaosRules(needs=needs("resume", "adoption")),
            rooms=2,
        ),
        Scenario(
            "nodes",
            "kill -9 of nodes",
            faults={"kill_node": 100, "pause_kill_node": 50},
            hands=2,
            gap_s=0.6,
            rules=ChaosRules(all_accepted=True),
        ),
        Scenario(
            "redispatch",
            "busy nodes killed and frozen: how soon another node has their jobs",
            faults={"kill_busy_node": 330, "pause_kill_node": 330, "freeze_busy_node": 12},
            hands=4,
            gap_s=0.04,
            rules=ChaosRules(
                all_accepted=True,
                after_kill_p50_max_ms=300.0,
                after_kill_p99_max_ms=300.0,
                after_freeze_p50_max_ms=6500.0,
                after_freeze_max_ms=6500.0,
                failed_attempts_percent_min=10.0,
                # A job whose last attempt is lost fails by design; on a busy machine many do.
                missing_percent_max=30.0,
                needs=needs("stale", "after_kill", "after_freeze"),
            ),
            instances=1,
            is_private=True,
            ends_by_term=True,
            settings={"LINGUA_JOBS__ATTEMPTS_MAX": "3"},
            nodes=10,
            max_jobs=32,
            sessions=100,
            utterances=5000,
            window=4,
            pause_s=0.6,
            most_ms=300.0,
        ),
        Scenario(
            "freeze",
            "SIGSTOP and SIGCONT of instances and nodes, for long and for short",
            faults={
                "freeze_instance": 15,
                "stutter_instance": 20,
                "freeze_node": 30,
                "stutter_node": 20,
            },
            hands=2,
            rules=ChaosRules(needs=needs("stale", "resume")),
            utterances=6000,
            rooms=2,
        ),
        Scenario(
            "proxy",
            "every link slow, byte by byte, reset, and silent one way",
            faults=dict.fromkeys(TOXIC_LINKS, 4),
            links=("client", "node", "store"),
            gap_s=0.5,
            rules=ChaosRules(needs=needs("resume")),
            utterances=6000,
        ),
        Scenario(
            "pause_kill",
            "stops and kills of instances and nodes at the same time",
            faults={
                "pause_kill_instance": 40,
                "pause_kill_node": 40,
                "freeze_node": 10,
                "stutter_instance": 20,
            },
            hands=3,
            rules=ChaosRules(needs=needs("stale", "resume", "adoption")),
            utterances=6000,
            rooms=2,
        ),
        Scenario(
            "store",
            "kill -9 and SIGSTOP of the store (AOF everysec)",
            faults={"kill_store": 20, "freeze_store": 10},
            utterances=4000,
            rules=ChaosRules(store_forgets=True),
            rooms=2,
        ),
        Scenario(
            "failover",
            "failovers of cluster masters, several cells",
            faults={"kill_master": 12, "move_master": 8},
            is_cluster=True,
            cells=6,
            rules=ChaosRules(store_forgets=True, needs=needs("failover"), affected_max_s=12.0),
            utterances=4000,
        ),
        Scenario(
            "flush",
            "FLUSHALL under load",
            faults={"flush": 10},
            gap_s=3.0,
            utterances=2000,
            rules=ChaosRules(store_forgets=True, needs=needs("epoch")),
        ),
        Scenario(
            "reconnect",
            "sessions that change their instance while speaking",
            moves=20,
            utterances=3000,
            rules=ChaosRules(needs=frozenset({"resume", "move"})),
            rooms=2,
            cells=3,
        ),
        Scenario(
            "rolling",
            "SIGTERM of one instance after another under load",
            faults={"term_instance": 3},
            utterances=2000,
            gap_s=2.0,
            rules=ChaosRules(missing_percent_max=0.0, needs=needs("resume")),
        ),
        Scenario(
            "rooms",
            "participants in rooms; instances killed, half of them during a delivery",
            faults={
                "kill_in_delivery": 50,
                "kill_instance": 30,
                "pause_kill_instance": 20,
                "kill_node": 20,
                "kill_store": 4,
            },
            rules=ChaosRules(needs=ROOM_NEEDS, store_forgets=True),
            sessions=0,
            rooms=12,
            room_size=8,
            room_pause_s=2.5,
            nodes=8,
            max_jobs=16,
            hands=2,
            gap_s=1.5,
            bound_s=3600.0,
            cells=3,
        ),
        Scenario(
            "listeners",
            "kill -9 of nodes that listen while somebody speaks; instances and the store as well",
            faults={
                "kill_listening_node": 110,
                "kill_instance": 6,
                "pause_kill_instance": 4,
                "kill_store": 2,
            },
            rules=ChaosRules(needs=needs("stream", "overheard", "resume"), store_forgets=True),
            sessions=0,
            rooms=8,
            room_size=6,
            room_pause_s=1.0,
            room_slow=0.9,
            utterances=2500,
            max_jobs=16,
            hands=2,
            gap_s=0.5,
            cells=3,
        ),
        Scenario(
            "hop",
            "the cost of a node on another instance than the speaker's",
            instances=2,
            nodes=4,
            max_jobs=16,
            sessions=16,
            window=2,
            pause_s=0.1,
            nodes_on_first=True,
            least_ms=20,
            most_ms=20,
            rules=ChaosRules(needs=frozenset()),
        ),
        Scenario(
            "mixed",
            "instances and nodes killed, stopped and both",
            faults={
                "kill_instance": 20,
                "pause_kill_instance": 20,
                "kill_node": 30,
                "pause_kill_node": 10,
                "freeze_busy_node": 6,
                "stutter_instance": 6,
            },
            hands=2,
            rules=ChaosRules(needs=needs("stale", "resume", "adoption")),
            utterances=5000,
            rooms=2,
        ),
    )
}

# Scenario -> what the small sizes change; everything else is as in the full size.
SMALL: Final[dict[str, dict[str, Any]]] = {
    "instances": {"faults": {"kill_instance": 3, "pause_kill_instance": 5}, "utterances": 500},
    "nodes": {"faults": {"kill_node": 15, "pause_kill_node": 8}, "utterances": 400},
    "redispatch": {
        "faults": {"kill_busy_node": 100, "pause_kill_node": 30, "freeze_busy_node": 2},
        "utterances": 800,
        "nodes": 6,
        "max_jobs": 16,
        "sessions": 40,
        "pause_s": 0.4,
    },
    "freeze": {
        "faults": {
            "freeze_instance": 1,
            "stutter_instance": 2,
            "freeze_node": 2,
            "stutter_node": 2,
        },
        "utterances": 300,
    },
    "proxy": {"faults": dict.fromkeys(TOXIC_LINKS, 1), "utterances": 400, "gap_s": 0.2},
    "pause_kill": {
        "faults": {
            "pause_kill_instance": 4,
            "pause_kill_node": 4,
            "freeze_node": 2,
            "stutter_instance": 2,
        },
        "utterances": 300,
    },
    "store": {"faults": {"kill_store": 3, "freeze_store": 1}, "utterances": 250},
    "failover": {"faults": {"kill_master": 1, "move_master": 1}, "utterances": 250, "cells": 3},
    "flush": {"faults": {"flush": 2}, "utterances": 200, "gap_s": 2.0},
    "reconnect": {"moves": 4, "utterances": 250},
    "rolling": {"faults": {"term_instance": 3}, "utterances": 250, "gap_s": 0.5},
    "rooms": {
        "faults": {
            "kill_in_delivery": 8,
            "kill_instance": 3,
            "pause_kill_instance": 2,
            "kill_node": 3,
            "kill_store": 1,
        },
        "utterances": 600,
        "sessions": 0,
        "rooms": 4,
        "room_size": 6,
        "room_pause_s": 0.8,
        "gap_s": 1.0,
    },
    "listeners": {
        "faults": {"kill_listening_node": 20, "kill_instance": 1, "kill_store": 1},
        "utterances": 300,
        "sessions": 0,
        "rooms": 4,
    },
    "hop": {},
    "mixed": {
        "faults": {
            "kill_instance": 2,
            "pause_kill_instance": 3,
            "kill_node": 4,
            "freeze_busy_node": 2,
        },
        "utterances": 400,
    },
}
# What the smallest size changes in addition: three of these runs must end within a minute.
SMALLEST: Final[dict[str, dict[str, Any]]] = {
    "mixed": {
        "faults": {
            "kill_instance": 1,
            "pause_kill_instance": 2,
            "kill_node": 3,
            "freeze_busy_node": 1,
        },
        "utterances": 150,
        "gap_s": 0.4,
    },
    "store": {"faults": {"kill_store": 2, "freeze_store": 1}, "utterances": 100, "gap_s": 0.5},
    "rolling": {"utterances": 100},
    "rooms": {
        "faults": {
            "kill_in_delivery": 4,
            "kill_instance": 1,
            "pause_kill_instance": 1,
            "kill_node": 2,
        },
        "utterances": 250,
        "sessions": 0,
        "rooms": 3,
        "room_size": 6,
        "room_pause_s": 0.6,
        "gap_s": 0.7,
        "cells": 1,
    },
}
DEPLOYMENT_SIZES: Final[dict[Size, dict[str, Any]]] = {
    "quick": {"nodes": 6, "sessions": 24},
    "ci": {"nodes": 4, "sessions": 12},
}
# The selections: one small run, the reduced pass of the tests, all scenarios in at most ten
# minutes, and the proof.
Selection = tuple[tuple[str, Size], ...]
QUICK: Final[Selection] = (("mixed", "quick"),)
CI: Final[Selection] = tuple(
    (name, "ci") for name in ("mixed", "store", "rolling", "rooms", "redispatch")
)
CHAOS: Final[Selection] = tuple((name, "quick") for name in FULL if name != "mixed")
LONG: Final[Selection] = tuple((name, "full") for name in FULL if name != "mixed")


def on_cluster(scenario: Scenario) -> Scenario:
    """Return a scenario on a cluster of several cells, without the faults of a single server.

    A cluster announces its own addresses, so that no proxy can be put in front of it.
    """
    faults = {
        name: count
        for name, count in scenario.faults.items()
        if not name.startswith("store:") and not name.endswith("_store")
    }
    links = tuple(link for link in scenario.links if link != "store")
    return replace(scenario, is_cluster=True, cells=CLUSTER_CELLS, faults=faults, links=links)


def with_fault(planted: str, seed: int = 1) -> Scenario:
    """Return a run of rooms over schedulers with a planted fault; nothing else is harmed."""
    calm = scenario("rooms", "ci", seed)
    return replace(
        calm, planted=planted, faults={}, utterances=130, room_acts=CALM_ACTS, room_silence_s=3.0
    )


def scenario(name: str, size: Size, seed: int = 1) -> Scenario:
    """Return a scenario in a size."""
    full = replace(FULL[name], seed=seed)
    if size == "full":
        return full
    rules = replace(
        full.rules,
        affected_max_s=full.rules.affected_max_s * PATIENCE,
        refusal_max_ms=full.rules.refusal_max_ms * PATIENCE,
        resume_max_ms=full.rules.resume_max_ms * 8 * PATIENCE,
        # Of the moves to other nodes the small sizes limit only the median.
        after_kill_p99_max_ms=UNLIMITED,
        after_freeze_max_ms=UNLIMITED,
    )
    changes = (
        DEPLOYMENT_SIZES[size] | SMALL[name] | (SMALLEST.get(name, {}) if size == "ci" else {})
    )
    return replace(full, **changes, size=size, rules=rules, bound_s=BOUND_S)
