"""The report of chaos runs, for people and for machines: a row per run and one object for all."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from lingua_bench.chaos.findings import ChaosFindings
    from lingua_bench.chaos.scenarios import Scenario

    # Receives what is being done, and how much of everything is done.
    Tell = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class CrossInstanceCost:
    """The cost of speaker and node on two instances; times are without the node's work."""

    same_p50_ms: float
    same_p99_ms: float
    cross_p50_ms: float
    cross_p99_ms: float
    # CPU per utterance: of both schedulers, and of the store.
    same_cpu_us: float
    cross_cpu_us: float
    same_store_us: float
    cross_store_us: float


@dataclass(frozen=True, slots=True)
class Run:
    """One scenario that was played, with its findings."""

    scenario: Scenario
    findings: ChaosFindings
    cost: CrossInstanceCost | None = None

    @property
    def problems(self) -> list[str]:
        """Return the violations, and the reasons why the run proves nothing."""
        rules = self.scenario.rules
        void = [f"VOID: {reason}" for reason in self.findings.voids(rules)]
        return [*self.findings.violations(rules), *void]

    @property
    def verdict(self) -> str:
        """Return the result of the run in one word."""
        if self.findings.violations(self.scenario.rules):
            return "VIOLATED"
        return "VOID" if self.problems else "good"


def summary(runs: Sequence[Run]) -> dict[str, float]:
    """Return the numbers to quote, over all runs."""
    found = [run.findings for run in runs]
    totals = ("utterances", "kills", "lost", "duplicates", "inversions")
    counted: dict[str, float] = {
        name: sum(getattr(one, name) for one in found)
        for name in (
            *totals,
            "stale_rejected",
            "adopted",
            "leases_left",
            "streams_opened",
            "streams_lost",
            "listeners_killed",
        )
    }
    affected = max((one.affected_p99_s for one in found), default=0.0)
    missing, outcomes = (
        sum(one.missing.total() for one in found),
        sum(one.outcomes for one in found),
    )
    return counted | {
        "affected_p99_s": round(affected, 3),
        "heard_wrong": sum(one.heard_wrong for one in found),
        "listeners_lost": sum(one.listeners_lost for one in found),
        "rooms": sum(one.room_utterances for one in found),
        "untranslated_share": round(missing / max(1, outcomes), 5),
    }


def as_json_object(run: Run) -> dict[str, Any]:
    """Return everything that a run has shown."""
    found = run.findings
    names = [field.name for field in fields(found) if field.name != "counted"]
    values = {name: getattr(found, name) for name in names}
    rounded = {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in values.items()
    }
    cost = {} if run.cost is None else {k: round(v, 2) for k, v in asdict(run.cost).items()}
    return {
        "scenario": run.scenario.name,
        "size": run.scenario.size,
        "seed": run.scenario.seed,
        "verdict": run.verdict,
        "problems": run.problems,
        "kills": found.kills,
        "streams_lost": found.streams_lost,
        "untranslated_share": round(found.untranslated_share, 5),
        **rounded,
        **cost,
    }


HEADS = (
    "scenario",
    "size",
    "utterances",
    "in rooms",
    "faults",
    "kills",
    "lost",
    "missed",
    "twice",
    "order",
    "misdelivered",
    "stale",
    "adopted",
    "resumed",
    "no text",
    "p99 s",
    "took s",
    "verdict",
)


def row(run: Run) -> tuple[str | int, ...]:
    """Return the row of a run in the table, under `HEADS`."""
    found = run.findings
    return (
        run.scenario.name,
        run.scenario.size,
        found.utterances,
        found.room_utterances,
        found.faults.total(),
        found.kills,
        found.lost,
        found.listeners_lost,
        found.duplicates,
        found.inversions,
        found.heard_wrong,
        found.stale_rejected,
        found.adopted,
        found.resumes,
        f"{found.missing_percent:.2f}%",
        f"{found.affected_p99_s:.2f}",
        f"{found.wall_s:.0f}",
        run.verdict,
    )


def notes(run: Run) -> list[str]:
    """Return the notes below the table."""
    found = run.findings
    lines = [f"{run.scenario.name}: {problem}" for problem in run.problems]
    lines += [f"{run.scenario.name}: for example {example}" for example in found.examples]
    for what, counter in (
        ("without translation", found.missing),
        ("told", found.told),
        ("in rooms", found.dangers),
    ):
        if counter:
            lines.append(f"{run.scenario.name}: {what}: {counted(counter)}")
    if found.streams_opened:
        lines.append(
            f"{run.scenario.name}: {found.streams_opened} streams, {found.streams_lost} of them "
            f"ended early; {found.listeners_killed} nodes were killed while they listened; "
            f"{found.partials} partial texts, {found.partials_of_others} of others"
        )
    if found.moves:
        lines.append(
            f"{run.scenario.name}: {found.moves} moves, resumed within p50 "
            f"{found.resume_p50_ms:.0f} ms, p99 {found.resume_p99_ms:.0f} ms"
        )
    if found.metrics:
        compared = ", ".join(f"{name} {told}" for name, (told, _) in found.metrics.items())
        lines.append(f"{run.scenario.name}: /metrics and the checker agree: {compared}")
    return lines + ([] if run.cost is None else cross_instance_lines(run.cost))


def counted(counter: Counter[str]) -> str:
    """Return counts in a line."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))


def cross_instance_lines(cost: CrossInstanceCost) -> list[str]:
    """Return the cost of another instance, in words."""
    p50_ms, p99_ms = cost.cross_p50_ms - cost.same_p50_ms, cost.cross_p99_ms - cost.same_p99_ms
    return [
        "A speaker on another instance than the node, beside one on the same:",
        f"  p50 {cost.same_p50_ms:.1f} -> {cost.cross_p50_ms:.1f} ms ({p50_ms:+.1f})",
        f"  p99 {cost.same_p99_ms:.1f} -> {cost.cross_p99_ms:.1f} ms ({p99_ms:+.1f})",
        f"  schedulers {cost.same_cpu_us:.0f} -> {cost.cross_cpu_us:.0f} us per utterance",
        f"  store {cost.same_store_us:.0f} -> {cost.cross_store_us:.0f} us per utterance",
    ]
