"""What a live load has shown: its recorded histories, checked after the fact.

Nobody asks the scheduler how it went: what clients and nodes wrote is compared with what was done
to the nodes (`Fault`). `check` makes the `Figures`, `problems` says what no run may show.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stress.live_cast import Load, recorded

# As in job_failover.lua.
SPARED_MAX = 16


@dataclass(slots=True)
class Fault:
    """Something that was done to a node process."""

    kind: str
    pid: int
    # When its work was lost: the SIGKILL, or the SIGSTOP of a freeze.
    at: float
    # When it could not work because it was stopped.
    stopped: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True)
class Figures:
    """What a run has shown."""

    utterances: int = 0
    jobs: int = 0
    results: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    attempts_max: int = 0
    failed_percent: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    duplicates: int = 0
    inversions: int = 0
    seq_breaks: int = 0
    # Results whose text or attempt is not that of the utterance's last attempt.
    wrong: int = 0
    unaccepted: int = 0
    refused_by_nodes: int = 0
    running_most: int = 0
    after_kill_ms: list[float] = field(default_factory=list)
    after_freeze_ms: list[float] = field(default_factory=list)
    # Attempts that moved to a node that was stopped itself: when they arrived cannot be seen.
    unseen: int = 0
    node_exits: int = 0
    stale: int = 0
    internal_errors: int = 0
    delivered_by_metric: int = 0
    leases_left: int = 0
    leases_free_s: float = 0.0
    unclosed: int = 0
    exit_code: int = 0
    wall_s: float = 0.0
    # What the times above must be read with: cores used by us and by everything else on this
    # machine, and how late the scheduler's event loop ran.
    cores_ours: float = 0.0
    cores_others: float = 0.0
    loop_lag_ms: str = ""

    def table(self) -> str:
        """Return the figures as a person reads them."""
        rows = {name: getattr(self, name) for name in self.__slots__}
        for name in ("after_kill_ms", "after_freeze_ms"):
            rows[name] = spread(rows[name])
        for name in ("missing", "faults"):
            rows[name] = ", ".join(f"{key} {n}" for key, n in sorted(rows[name].items())) or "none"
        return "\n".join(
            f"{name:<20} {value:.2f}" if isinstance(value, float) else f"{name:<20} {value}"
            for name, value in rows.items()
        )


def spread(values: list[float]) -> str:
    if not values:
        return "none"
    p50, p99, most = (percentile(values, part) for part in (0.5, 0.99, 1))
    return f"{len(values)} jobs: p50 {p50:.0f}, p99 {p99:.0f}, max {most:.0f}"


def percentile(values: Iterable[float], part: float) -> float:
    """Return the smallest value that this part of all is not above."""
    ordered = sorted(values)
    return ordered[max(0, -int(-part * len(ordered) // 1) - 1)]


@dataclass(slots=True)
class Attempt:
    """One run of a handler."""

    pid: int
    job: str
    number: int
    start: float
    end: float = float("inf")


def check(load: Load, place: Path, faults: list[Fault]) -> Figures:
    """Compare what clients and nodes wrote with what was done to the nodes."""
    figures = Figures(faults=Counter(fault.kind for fault in faults))
    attempts = read_attempts(place, figures)
    last: dict[str, int] = defaultdict(int)
    for job, number in attempts:
        last[job] = max(last[job], number)
    check_clients(load, recorded(place / "clients.history"), last, figures)
    figures.attempts = sum(last.values())
    figures.attempts_max = max(last.values())
    failed = figures.attempts - figures.results
    figures.failed_percent = 100 * failed / figures.attempts
    measure_moves(load, attempts, faults, figures)
    return figures


def read_attempts(place: Path, figures: Figures) -> dict[tuple[str, int], Attempt]:
    attempts: dict[tuple[str, int], Attempt] = {}
    for path in place.glob("*.node"):
        pid, refused = int(path.stem), 0
        for kind, at, *rest in recorded(path):
            if kind == "start":
                job, number, running, refused = rest
                assert (job, number) not in attempts, f"{job} attempt {number} was started twice"
                attempts[job, number] = Attempt(pid, job, number, at)
                figures.running_most = max(figures.running_most, running)
            elif kind == "end":
                attempts[rest[0], rest[1]].end = at
            else:
                figures.node_exits += 1
        figures.refused_by_nodes += refused
    return attempts


def check_clients(
    load: Load, history: list[list[Any]], last: dict[str, int], figures: Figures
) -> None:
    wanted: set[tuple[int, int, str]] = set()
    accepted: set[tuple[int, int]] = set()
    got: Counter[tuple[int, int, str]] = Counter()
    newest: dict[tuple[int, str], int] = {}
    seqs: dict[int, int] = defaultdict(int)
    ids: dict[int, str] = {}
    closed: Counter[int] = Counter()
    for _, number, event, *rest in history:
        if event == "opened":
            ids[number] = rest[0]
        elif event == "sent":
            wanted.update((number, rest[0], lang) for lang in rest[1])
        elif event == "accepted":
            accepted.add((number, rest[0]))
        elif event == "closed":
            closed[rest[0]] += 1
        elif event == "outcome":
            index, lang, reason, seq, job, said, translated, detail = rest
            got[number, index, lang] += 1
            figures.inversions += index < newest.get((number, lang), -1)
            newest[number, lang] = max(index, newest.get((number, lang), -1))
            figures.seq_breaks += seq != seqs[number] + 1
            seqs[number] = seq
            if reason == "result":
                figures.results += 1
                good = (f"{ids[number]} {index}", f"{lang} {last[job]}")
                figures.wrong += (said, translated) != good
            else:
                figures.missing[f"{reason}/{detail}"] += 1
                if reason == "failed":
                    last[job] = load.attempts_max
    figures.utterances = len({key[:2] for key in wanted})
    figures.jobs = len(wanted)
    figures.unaccepted = len({key[:2] for key in wanted} - accepted)
    figures.lost = len(wanted - got.keys())
    figures.duplicates = sum(count - 1 for count in got.values()) + len(got.keys() - wanted)
    figures.unclosed = load.sessions - closed[1000]


def measure_moves(
    load: Load, attempts: dict[tuple[str, int], Attempt], faults: list[Fault], figures: Figures
) -> None:
    """Measure how long jobs took from their node's loss to their start on another."""
    by_pid: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in attempts.values():
        by_pid[attempt.pid].append(attempt)
    stops: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for fault in faults:
        stops[fault.pid].append(fault.stopped)
    for fault in faults:
        freezes = fault.kind == "freeze"
        delays = figures.after_freeze_ms if freezes else figures.after_kill_ms
        for held in by_pid[fault.pid]:
            if not held.start < fault.at < held.end or held.number == load.attempts_max:
                continue
            then = attempts.get((held.job, held.number + 1))
            if then is None or any(
                since < then.start and until > fault.at for since, until in stops[then.pid]
            ):
                figures.unseen += 1
            elif then.start > fault.at:  # else it had been taken away before
                delays.append(1000 * (then.start - fault.at))


def problems(figures: Figures, load: Load) -> list[str]:
    """Return what no run may show, however slow the machine."""
    f, found = figures, []
    for name in (
        "lost", "duplicates", "inversions", "seq_breaks", "wrong", "unaccepted", "node_exits",
        "internal_errors", "leases_left", "unclosed", "exit_code",
    ):  # fmt: skip
        found += [f"{name}: {getattr(f, name)}"] if getattr(f, name) else []
    for name, is_so in {
        # The setting's, and as many as may be refused or lost before they are begun.
        "an utterance had too many attempts": f.attempts_max > load.attempts_max + SPARED_MAX,
        "a node ran more than it takes": f.running_most > load.max_jobs,
        "an outcome the metrics do not know": f.delivered_by_metric != f.jobs,
        "void: no stale result was rejected": not f.stale,
        "void: nothing was moved after a kill": not f.after_kill_ms,
        "void: nothing was moved after a freeze": not f.after_freeze_ms,
    }.items():
        if is_so:
            found.append(name)
    return found
