"""The last hour of some metrics of an instance, in buckets of ten seconds, in memory.

The metrics themselves only grow; what an operator wants to see is how fast. `tick` is called every
second and costs one comparison, except when a bucket ends. Buckets are numbered by the wall clock,
so that those of several workers of one machine can be added up.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.metrics.registry import BUCKETS_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lingua_scheduler.metrics.catalogue import LiveMetrics
    from lingua_scheduler.metrics.registry import Histogram

BUCKET_MS = 10_000
BUCKETS_MAX = 360
UTTERANCES = "utterances"
# Before the name of an outcome, and before the reason of a refusal.
OUTCOME, REFUSED = "outcome ", "refused "
# The whole time of an utterance; the other names are parts of it, and the event loop's lag.
TOTAL, LAG = "total", "lag"


class MetricBucket(msgspec.Struct, frozen=True):
    """What some metrics grew by in one bucket of time; what did not grow is left out."""

    # Of the wall clock, in units of BUCKET_MS.
    number: int
    covers_ms: int
    counts: dict[str, float]
    # Observations and their sum in seconds.
    times: dict[str, tuple[int, float]]
    # Observations of the whole time, by bucket of the histograms; empty if there are none.
    spread: tuple[int, ...]


class _Totals(msgspec.Struct, frozen=True):
    """The metrics as they are at one moment."""

    counts: dict[str, float]
    times: dict[str, tuple[int, float]]
    spread: tuple[int, ...]


class MetricHistory:
    """The buckets of one instance."""

    def __init__(self, metrics: LiveMetrics) -> None:
        self._metrics = metrics
        self._closed: deque[MetricBucket] = deque(maxlen=BUCKETS_MAX)
        # The bucket under way: its number, when it began, and the metrics at that time.
        self._number = -1
        self._since_ms = 0
        self._base = _Totals({}, {}, ())

    def tick(self, wall_ms: int) -> None:
        """End the bucket under way if its time is over."""
        number = wall_ms // BUCKET_MS
        if number <= self._number:
            return  # also if the clock was set back: the bucket lasts longer
        totals = self._read()
        if self._number >= 0:
            self._closed.append(self._growth(totals, wall_ms))
        self._number, self._since_ms, self._base = number, wall_ms, totals

    def buckets(self, after: int, wall_ms: int) -> tuple[MetricBucket, ...]:
        """Return the ended buckets after a number, and the one under way."""
        closed = tuple(bucket for bucket in self._closed if bucket.number > after)
        return closed if self._number < 0 else (*closed, self._growth(self._read(), wall_ms))

    def _growth(self, now: _Totals, wall_ms: int) -> MetricBucket:
        before = self._base
        counts = {
            name: value - before.counts.get(name, 0)
            for name, value in now.counts.items()
            if value > before.counts.get(name, 0)
        }
        times = {}
        for name, (count, seconds) in now.times.items():
            count_before, seconds_before = before.times.get(name, (0, 0.0))
            if count > count_before:
                times[name] = (count - count_before, seconds - seconds_before)
        spread = tuple(a - b for a, b in zip(now.spread, before.spread, strict=True))
        covers_ms = max(0, wall_ms - self._since_ms)
        return MetricBucket(self._number, covers_ms, counts, times, spread if any(spread) else ())

    def _read(self) -> _Totals:
        metrics = self._metrics
        metrics.fetch()
        total = metrics.results.end_to_end_seconds
        parts = {**_parts(metrics), TOTAL: total, LAG: metrics.instance.loop_lag_seconds}
        return _Totals(
            counts=dict(_counts(metrics)),
            times={name: (part.count, part.sum) for name, part in parts.items()},
            spread=tuple(total.counts),
        )


def _counts(metrics: LiveMetrics) -> Iterator[tuple[str, float]]:
    yield UTTERANCES, metrics.speech.utterances_total.value
    for (outcome,), counted in metrics.jobs.jobs_total.items():
        yield f"{OUTCOME}{outcome}", counted.value
    refused: dict[str, float] = {}
    for (_, reason), counted in metrics.jobs.no_available_node_total.items():
        _add(refused, f"no node: {reason}", counted.value)
    for (reason,), counted in metrics.sockets.connections_refused_total.items():
        _add(refused, f"connection: {reason}", counted.value)
    for (action,), counted in metrics.sockets.backpressure_total.items():
        _add(refused, f"slow down: {action}", counted.value)
    for (_, code), counted in metrics.sockets.invalid_messages_total.items():
        _add(refused, f"message: {code}", counted.value)
    for (reason,), counted in metrics.peers.resumes_rejected_total.items():
        _add(refused, f"resume: {reason}", counted.value)
    yield from ((f"{REFUSED}{name}", value) for name, value in refused.items())


def _add(to: dict[str, float], name: str, value: float) -> None:
    to[name] = to.get(name, 0) + value


def _parts(metrics: LiveMetrics) -> dict[str, Histogram]:
    results = metrics.results
    stages = {stage: child for (stage,), child in results.stage_seconds.items()}
    return {
        "wait": metrics.jobs.accept_to_assign_seconds,
        **{name: stages[name] for name in ("asr", "nmt", "tts")},
        "order": results.order_wait_seconds,
        "deliver": results.result_to_deliver_seconds,
    }


def summed(buckets: Iterable[MetricBucket]) -> MetricBucket:
    """Return buckets of several workers, or of several times, as one; at least one is needed."""
    some = list(buckets)
    counts: dict[str, float] = {}
    times: dict[str, tuple[int, float]] = {}
    for name, value in chain.from_iterable(bucket.counts.items() for bucket in some):
        counts[name] = counts.get(name, 0) + value
    for name, (count, seconds) in chain.from_iterable(bucket.times.items() for bucket in some):
        known = times.get(name, (0, 0.0))
        times[name] = (known[0] + count, known[1] + seconds)
    spreads = [bucket.spread for bucket in some if bucket.spread]
    return MetricBucket(
        number=max(bucket.number for bucket in some),
        covers_ms=max(bucket.covers_ms for bucket in some),
        counts=counts,
        times=times,
        spread=tuple(map(sum, zip(*spreads, strict=True))),
    )


def quantile_ms(spread: tuple[int, ...], share: float) -> float | None:
    """Return a quantile of a histogram, evenly spread inside its bucket; None without a sample.

    Durations beyond the last bound count as that bound.
    """
    wanted = share * sum(spread)
    if not wanted:
        return None
    below = 0
    lower = 0.0
    for count, upper in zip(spread, BUCKETS_S, strict=False):
        if below + count >= wanted:
            return round((lower + (upper - lower) * (wanted - below) / count) * 1000, 1)
        below, lower = below + count, upper
    return BUCKETS_S[-1] * 1000
