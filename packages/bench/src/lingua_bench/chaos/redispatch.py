"""How long the jobs of a lost node take until another node has them, from the histories of nodes.

An attempt that was running when its node was killed or frozen must start again elsewhere, as the
next attempt of its job. A next attempt on a node that was stopped itself is not measured: when it
arrived there cannot be seen.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lingua_bench.chaos.history import AttemptFinished, AttemptStarted, InjectedFault, NodeStarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lingua_bench.chaos.history import AnyLine

KILLS: Final = ("kill_node", "pause_kill_node", "kill_busy_node")
# A stutter is shorter than the time after which a silent node is declared lost.
FREEZES: Final = ("freeze_node", "freeze_busy_node")
# The setting's: after so many attempts a job fails.
ATTEMPTS_MAX: Final = 3
NEVER: Final = float("inf")


@dataclass(slots=True)
class NodeAttempt:
    """One attempt of a job on one node process."""

    process: str
    number: int
    start: float
    end: float = NEVER


@dataclass(slots=True)
class Redispatches:
    """The delays of all moves, and the moves that could not be measured."""

    after_kill_ms: list[float] = field(default_factory=list)
    after_freeze_ms: list[float] = field(default_factory=list)
    unseen: int = 0


def measure_redispatches(
    nodes: Mapping[str, Sequence[AnyLine]], faults: Iterable[InjectedFault]
) -> Redispatches:
    """Measure every move; `nodes` has the history of each node process."""
    attempts = _attempts(nodes)
    struck = [
        (fault, process)
        for fault in faults
        if fault.kind in (*KILLS, *FREEZES) and (process := _process_of(fault, nodes))
    ]
    stops: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault, process in struck:
        is_freeze = fault.kind in FREEZES
        since = fault.stopped_at or fault.at
        stops[process].append((since, fault.until if is_freeze else fault.at))
    found = Redispatches()
    for fault, process in struck:
        delays = found.after_freeze_ms if fault.kind in FREEZES else found.after_kill_ms
        for (job, number), held in attempts.items():
            is_struck = held.process == process and held.start < fault.at < held.end
            if not is_struck or number >= ATTEMPTS_MAX:
                continue
            then = attempts.get((job, number + 1))
            if then is None or any(
                since < then.start and until > fault.at for since, until in stops[then.process]
            ):
                found.unseen += 1
            elif then.start > fault.at:  # else it had been taken from the node before
                delays.append(1000 * (then.start - fault.at))
    return found


def _attempts(nodes: Mapping[str, Sequence[AnyLine]]) -> dict[tuple[str, int], NodeAttempt]:
    found: dict[tuple[str, int], NodeAttempt] = {}
    for process, lines in nodes.items():
        for line in lines:
            if isinstance(line, AttemptStarted):
                found[line.job, line.attempt] = NodeAttempt(process, line.attempt, line.at)
            elif isinstance(line, AttemptFinished) and (line.job, line.attempt) in found:
                found[line.job, line.attempt].end = line.at
    return found


def _process_of(fault: InjectedFault, nodes: Mapping[str, Sequence[AnyLine]]) -> str:
    """Return the process that a node had at the moment of a fault; empty if it had none yet."""
    started = [
        (line.at, process)
        for process, lines in nodes.items()
        for line in lines
        if isinstance(line, NodeStarted) and line.node == fault.target and line.at <= fault.at
    ]
    return max(started)[1] if started else ""
