"""The rows of the charts: the buckets of all workers of a service, added up. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.edge.console.documents import RateRow
from lingua_scheduler.metrics import (
    BUCKET_MS,
    BUCKETS_MAX,
    LAG,
    OUTCOME,
    REFUSED,
    TOTAL,
    UTTERANCES,
    quantile_ms,
    summed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lingua_scheduler.metrics import MetricBucket

# Reasons of refusals in one row; the others are counted under `other`.
REASONS_MAX = 20
# Buckets that are asked for again: a worker may have been slow for a while.
REPEATED = 4
# The buckets that a verdict looks at: about a minute.
RECENT = 6


class ServiceHistory:
    """The buckets of the workers of one service, as far as they were heard of.

    A row is made again only if one of its buckets changed: most of them are over.
    """

    def __init__(self) -> None:
        # By number and worker; a worker that has ended keeps what it did.
        self._buckets: dict[int, dict[str, MetricBucket]] = {}
        self._rows: dict[int, RateRow] = {}

    def add(self, worker: str, buckets: Iterable[MetricBucket]) -> None:
        """Add buckets of a worker; one that was not over is replaced."""
        for bucket in buckets:
            known = self._buckets.setdefault(bucket.number, {})
            if known.get(worker) != bucket:
                known[worker] = bucket
                self._rows.pop(bucket.number, None)

    def asked_after(self) -> int:
        """Return after which number buckets are asked for: those before are known and over."""
        return max(0, max(self._buckets, default=0) - REPEATED)

    def rows(self) -> tuple[RateRow, ...]:
        """Return the rows of the last hour, in order; what is older is forgotten."""
        oldest = max(self._buckets, default=0) - BUCKETS_MAX
        for number in [number for number in self._buckets if number <= oldest]:
            del self._buckets[number]
            self._rows.pop(number, None)
        for number in self._buckets.keys() - self._rows.keys():
            self._rows[number] = row_of(summed(self._buckets[number].values()))
        return tuple(self._rows[number] for number in sorted(self._rows))

    def recent(self) -> RecentTraffic:
        """Return the last minute."""
        recent = sorted(self._buckets)[-RECENT:]
        return RecentTraffic([one for n in recent for one in self._buckets[n].values()])


class RecentTraffic:
    """The last minute, for the verdict."""

    def __init__(self, buckets: list[MetricBucket]) -> None:
        whole = summed(buckets) if buckets else None
        self.outcomes = _named(whole, OUTCOME)
        self.refused = _named(whole, REFUSED)
        count, seconds = whole.times.get(LAG, (0, 0.0)) if whole is not None else (0, 0.0)
        self.lag_ms = seconds / count * 1000 if count else 0.0


def row_of(bucket: MetricBucket) -> RateRow:
    """Return a bucket as a row of the charts."""
    means = {name: round(s / count * 1000, 1) for name, (count, s) in bucket.times.items()}
    means.pop(LAG, None)
    total = means.pop(TOTAL, None)
    return RateRow(
        at_ms=bucket.number * BUCKET_MS,
        covers_ms=min(bucket.covers_ms, BUCKET_MS),
        utterances=int(bucket.counts.get(UTTERANCES, 0)),
        outcomes=_named(bucket, OUTCOME),
        refused=_bounded(_named(bucket, REFUSED)),
        parts_ms=means,
        mean_ms=total,
        p50_ms=quantile_ms(bucket.spread, 0.5),
        p95_ms=quantile_ms(bucket.spread, 0.95),
    )


def _named(bucket: MetricBucket | None, start: str) -> dict[str, int]:
    if bucket is None:
        return {}
    return {
        name.removeprefix(start): int(value)
        for name, value in bucket.counts.items()
        if name.startswith(start)
    }


def _bounded(reasons: dict[str, int]) -> dict[str, int]:
    if len(reasons) <= REASONS_MAX:
        return reasons
    ranked = sorted(reasons, key=lambda name: -reasons[name])
    kept = {name: reasons[name] for name in ranked[:REASONS_MAX]}
    return {**kept, "other": sum(reasons[name] for name in ranked[REASONS_MAX:])}
