from __future__ import annotations

import pytest

from lingua_scheduler.edge.console.documents import RateRow
from lingua_scheduler.edge.console.rates import REASONS_MAX, RecentTraffic, ServiceHistory, row_of
from lingua_scheduler.metrics import BUCKETS_MAX, MetricBucket

pytestmark = pytest.mark.unit


def bucket(number: int, covers_ms: int = 10_000, **counts: float) -> MetricBucket:
    return MetricBucket(number, covers_ms, dict(counts), {}, ())


def test_a_row_says_what_a_bucket_counted() -> None:
    counts = {"utterances": 4.0, "outcome completed": 3.0, "refused no node: full": 1.0}
    times = {"total": (2, 1.0), "asr": (2, 0.5), "lag": (1, 0.1)}
    spread = (0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0)
    assert row_of(MetricBucket(7, 12_000, counts, times, spread)) == RateRow(
        at_ms=70_000, covers_ms=10_000, utterances=4, outcomes={"completed": 3},
        refused={"no node: full": 1}, parts_ms={"asr": 250.0}, mean_ms=500.0, p50_ms=350.0,
        p95_ms=485.0,
    )  # fmt: skip


def test_workers_are_added_up_and_one_that_ended_keeps_what_it_did() -> None:
    history = ServiceHistory()
    history.add("w1", [bucket(1, utterances=1), bucket(2, utterances=2)])
    history.add("w2", [bucket(2, utterances=3)])
    assert [row.utterances for row in history.rows()] == [1, 5]
    history.add("w1", [bucket(2, utterances=4), bucket(3)])
    assert [row.utterances for row in history.rows()] == [1, 7, 0]


def test_a_row_that_is_over_stays_the_same_object() -> None:
    history = ServiceHistory()
    history.add("w1", [bucket(1, utterances=1), bucket(2)])
    before = history.rows()
    history.add("w1", [bucket(1, utterances=1), bucket(2, utterances=1)])
    after = history.rows()
    assert after[0] is before[0]
    assert after[1] is not before[1]


def test_an_hour_is_kept_and_only_the_latest_is_asked_for_again() -> None:
    history = ServiceHistory()
    assert (history.asked_after(), history.rows()) == (0, ())
    history.add("w1", [bucket(number) for number in range(1, BUCKETS_MAX + 100)])
    assert len(history.rows()) == BUCKETS_MAX
    assert 0 < BUCKETS_MAX + 99 - history.asked_after() < 10


def test_reasons_are_bounded() -> None:
    counts = {f"refused r{number}": float(number) for number in range(1, REASONS_MAX + 11)}
    refused = row_of(MetricBucket(1, 10, counts, {}, ())).refused
    assert (len(refused), refused["other"]) == (REASONS_MAX + 1, sum(range(1, 11)))


def test_the_last_minute() -> None:
    history = ServiceHistory()
    history.add("w1", [bucket(number, **{"outcome failed": 1}) for number in range(100)])
    assert history.recent().outcomes == {"failed": 6}
    assert RecentTraffic([]).lag_ms == 0
