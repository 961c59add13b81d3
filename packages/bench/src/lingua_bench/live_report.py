"""The results of `lingua bench live` as data: a row per measurement and one summary.

Nothing here measures or prints. Times are milliseconds or microseconds as the names say, memory is
kilobytes of the scheduler's process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_bench.live_orders import OrderResult

OVERHEAD_MS_MAX = 20.0
# A load that is later than this with one frame in a hundred is not paced any more.
LATE_MS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class ClosedRow:
    """Utterances as fast as they are answered; medians over the slices."""

    case: str
    per_s: float
    p50_ms: float
    p99_ms: float
    scheduler_cpu_us: float
    store_cpu_us: float
    nodes_cpu_us: float
    clients_cpu_us: float
    slices: int
    # The store rewrites its file now and then in a child: the mean over the slices, in which a
    # median would find either nothing or too much.
    rewrites_cpu_us: float
    # All processes of the service together: every scheduler process, the store, its rewrites.
    all_cpu_us: float


@dataclass(frozen=True, slots=True)
class PacedRow:
    """Sessions that speak in real time."""

    sessions: int
    utterances: int
    # What the control plane added, by the clocks of client and node.
    p50_ms: float
    p99_ms: float
    # The same by the scheduler's timeline.
    timeline_p99_ms: float
    scheduler_cpu_percent: float
    late_p99_ms: float
    load_limited: bool
    # What clients were told in this try that they should not have been.
    errors: int = 0

    @property
    def is_within(self) -> bool:
        """Tell whether so many sessions were served as promised."""
        within = self.timeline_p99_ms <= OVERHEAD_MS_MAX and not self.errors
        return not self.load_limited and self.p99_ms > 0 and within


@dataclass(frozen=True, slots=True)
class LiveSummary:
    """The numbers to quote."""

    utterances_per_s_64: float
    utterances_per_s_256: float
    round_trip_p50_ms: float
    round_trip_p99_ms: float
    cpu_us_per_utterance: float
    cpu_us_per_frame: float
    # None: not even the fewest sessions that were tried were served as promised.
    paced_sessions: int | None
    # Of that many sessions; if no number fitted, of the fewest that were tried.
    paced_p99_ms: float
    rss_kb_per_session: float
    lost: int
    duplicates: int
    inversions: int
    # CPU per utterance at 256 in flight: of all processes of the service, and of the store alone.
    cpu_us_all: float
    cpu_us_store: float
    workers: int
    # Messages between instances per outcome.
    letters_per_outcome: float
    # Scheduler CPU of a frame that a node hears at once, and its ratio to a plain one in the same
    # run; None unless asked for.
    frame_us_streamed: float | None = None
    frame_streamed_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LiveReport:
    """All results."""

    closed: Sequence[ClosedRow]
    paced: Sequence[PacedRow]
    # The same load over more and more open sessions; empty unless asked for.
    growth: Sequence[ClosedRow]
    # Scheduler CPU per utterance, over that of the bare relay per message.
    relay_ratio: float
    rss_kb_per_speaking_session: float
    # Utterances that got `missing_result`, and errors that clients received, by code.
    missing: int
    errors: dict[str, int]
    summary: LiveSummary

    @property
    def growth_of_sessions(self) -> float | None:
        """Return how many times more an utterance costs with the most sessions than the fewest."""
        if len(self.growth) < 2:
            return None
        few, many = (
            row.scheduler_cpu_us + row.store_cpu_us for row in (self.growth[0], self.growth[-1])
        )
        return many / few


def closed_row(case: str, slices: Sequence[OrderResult], *, relayed: bool = False) -> ClosedRow:
    """Return one row from all slices of a case."""

    def us(*names: str) -> float:
        spent = (sum(float(getattr(part, name)) for name in names) for part in slices)
        return 1e6 * median(
            cpu_s / max(1, part.utterances) for cpu_s, part in zip(spent, slices, strict=True)
        )

    scheduler = "relay_cpu_s" if relayed else "scheduler_cpu_s"
    utterances = sum(part.utterances for part in slices)
    rewrites_us = 1e6 * sum(part.rewrites_cpu_s for part in slices) / max(1, utterances)
    return ClosedRow(
        case=case,
        per_s=median(part.utterances / part.seconds for part in slices),
        p50_ms=median(part.p50_ms for part in slices),
        p99_ms=median(part.p99_ms for part in slices),
        scheduler_cpu_us=us(scheduler),
        store_cpu_us=0.0 if relayed else us("store_cpu_s"),
        nodes_cpu_us=us("nodes_cpu_s"),
        clients_cpu_us=us("clients_cpu_s"),
        slices=len(slices),
        rewrites_cpu_us=0.0 if relayed else rewrites_us,
        all_cpu_us=us(scheduler) if relayed else us(scheduler, "store_cpu_s") + rewrites_us,
    )


def paced_row(sessions: int, found: OrderResult, errors: int = 0) -> PacedRow:
    """Return one row of the paced case; `errors` came in this try."""
    planned = sessions * 10 * found.seconds
    return PacedRow(
        sessions=sessions,
        utterances=found.utterances,
        p50_ms=found.p50_ms,
        p99_ms=found.p99_ms,
        timeline_p99_ms=found.timeline_p99_ms,
        scheduler_cpu_percent=100 * found.scheduler_cpu_s / found.seconds,
        late_p99_ms=found.late_p99_ms,
        load_limited=found.late_p99_ms > LATE_MS_MAX or found.frames < 0.97 * planned,
        errors=errors,
    )


def best_of(rows: Sequence[PacedRow]) -> PacedRow | None:
    """Return the highest number of sessions that were served as promised."""
    return max((row for row in rows if row.is_within), key=lambda row: row.sessions, default=None)


def as_json_object(found: ClosedRow | PacedRow | LiveSummary) -> dict[str, Any]:
    """Return the fields with numbers rounded to the precision of the measurement."""
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in asdict(found).items()
    }
