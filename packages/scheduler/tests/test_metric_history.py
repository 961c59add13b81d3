from __future__ import annotations

import pytest

from lingua_scheduler.metrics import (
    BUCKET_MS,
    BUCKETS_MAX,
    LiveMetrics,
    MetricBucket,
    MetricHistory,
    quantile_ms,
    summed,
)

pytestmark = pytest.mark.unit

START = 1_000_000 * BUCKET_MS


def test_a_bucket_has_what_grew_and_ends_with_its_time() -> None:
    metrics = LiveMetrics()
    metrics.speech.utterances_total.inc(5)
    history = MetricHistory(metrics)
    assert history.buckets(0, START) == ()
    history.tick(START + 1)
    metrics.speech.utterances_total.inc(2)
    metrics.jobs.jobs_total.labels(outcome="failed").inc()
    metrics.jobs.no_available_node_total.labels(selector="submit", reason="full").inc()
    metrics.jobs.no_available_node_total.labels(selector="failover", reason="full").inc()
    metrics.results.end_to_end_seconds.observe(0.5)
    history.tick(START + 9000)
    [under_way] = history.buckets(0, START + 9000)
    assert under_way.counts == {"utterances": 2, "outcome failed": 1, "refused no node: full": 2}
    assert under_way.times == {"total": (1, 0.5)}
    assert (under_way.covers_ms, sum(under_way.spread)) == (8999, 1)
    history.tick(START + BUCKET_MS)
    ended, empty = history.buckets(0, START + BUCKET_MS + 10)
    assert (ended.number, ended.counts) == (START // BUCKET_MS, under_way.counts)
    assert (empty.counts, empty.times, empty.spread, empty.covers_ms) == ({}, {}, (), 10)
    assert history.buckets(ended.number, START + BUCKET_MS) == (
        MetricBucket(empty.number, 0, {}, {}, ()),
    )


def test_numbers_that_others_count_are_fetched() -> None:
    metrics = LiveMetrics()
    refused = metrics.sockets.connections_refused_total.labels(reason="going away")

    def fetch() -> None:
        refused.value += 1

    history = MetricHistory(metrics)
    metrics.sources.append(fetch)
    history.tick(START)
    [bucket] = history.buckets(0, START)
    assert bucket.counts == {"refused connection: going away": 1}


def test_a_clock_that_is_set_back_makes_a_bucket_longer_and_nothing_worse() -> None:
    metrics = LiveMetrics()
    history = MetricHistory(metrics)
    history.tick(START)
    history.tick(START - 5 * BUCKET_MS)
    metrics.speech.utterances_total.inc()
    [bucket] = history.buckets(0, START - 5 * BUCKET_MS)
    assert (bucket.number, bucket.covers_ms, bucket.counts) == (
        START // BUCKET_MS, 0, {"utterances": 1},
    )  # fmt: skip


def test_an_hour_is_kept() -> None:
    history = MetricHistory(LiveMetrics())
    for number in range(BUCKETS_MAX + 50):
        history.tick(START + number * BUCKET_MS)
    last = START + (BUCKETS_MAX + 49) * BUCKET_MS
    assert len(history.buckets(0, last)) == BUCKETS_MAX + 1
    assert len(history.buckets(last // BUCKET_MS - 3, last)) == 3


def test_buckets_are_added_up() -> None:
    one = MetricBucket(7, 9000, {"a": 1}, {"x": (1, 0.5)}, (1, 0))
    two = MetricBucket(7, 10_000, {"a": 2, "b": 1}, {"x": (2, 1.0)}, (0, 3))
    empty = MetricBucket(7, 10, {}, {}, ())
    whole = MetricBucket(7, 10_000, {"a": 3, "b": 1}, {"x": (3, 1.5)}, (1, 3))
    assert summed([one, two, empty]) == whole


@pytest.mark.parametrize(
    ("counts", "share", "wanted"),
    [
        ({}, 0.5, None),
        # All between 200 and 500 ms.
        ({8: 10}, 0.5, 350.0),
        ({8: 10}, 1.0, 500.0),
        ({0: 1, 8: 1}, 0.5, 1.0),
        # Longer than the histogram can tell.
        ({12: 1}, 0.95, 5000.0),
    ],
)
def test_a_quantile_lies_inside_its_bucket(
    counts: dict[int, int], share: float, wanted: float | None
) -> None:
    assert quantile_ms(tuple(counts.get(i, 0) for i in range(13)), share) == wanted
