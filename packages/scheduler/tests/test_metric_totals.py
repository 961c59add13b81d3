from __future__ import annotations

import pytest

from lingua_scheduler.metrics import LiveMetrics, MetricTotals

pytestmark = pytest.mark.unit


def numbers(text: bytes) -> dict[str, float]:
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def worker(utterances: int, alive: int) -> LiveMetrics:
    metrics = LiveMetrics()
    metrics.speech.utterances_total.inc(utterances)
    metrics.speech.sessions.set(utterances)
    metrics.peers.instances.labels(state="alive").set(alive)
    metrics.jobs.failovers_total.labels(reason=f"reason_{utterances}").inc()
    for _ in range(utterances):
        metrics.jobs.queue_wait_seconds.observe(0.003)
    return metrics


def test_one_text_stays_as_it_is() -> None:
    text = worker(3, 2).render()
    totals = MetricTotals()
    totals.add(text)
    assert totals.render() == text


def test_counters_histograms_and_gauges_of_workers_are_summed() -> None:
    totals = MetricTotals()
    for utterances in (3, 4):
        totals.add(worker(utterances, 2).render())
    found = numbers(totals.render())
    assert found["scheduler_utterances_total"] == 7
    assert found["scheduler_sessions"] == 7
    assert found["scheduler_workers"] == 2
    assert found['scheduler_queue_wait_seconds_bucket{le="0.002"}'] == 0
    assert found['scheduler_queue_wait_seconds_bucket{le="0.005"}'] == 7
    assert found["scheduler_queue_wait_seconds_count"] == 7
    assert found['scheduler_failovers_total{reason="reason_3"}'] == 1
    assert found['scheduler_failovers_total{reason="reason_4"}'] == 1


def test_what_all_workers_read_from_the_same_place_is_not_summed() -> None:
    totals = MetricTotals()
    for _ in range(2):
        totals.add(worker(1, 2).render())
    assert numbers(totals.render())['scheduler_instances{state="alive"}'] == 2


def test_of_an_ended_worker_the_counters_stay_and_the_gauges_go() -> None:
    totals = MetricTotals()
    totals.add(worker(3, 2).render(), lasting_only=True)
    totals.add(worker(4, 1).render())
    found = numbers(totals.render())
    assert found["scheduler_utterances_total"] == 7
    assert found["scheduler_queue_wait_seconds_count"] == 7
    assert found["scheduler_sessions"] == 4
    assert found["scheduler_workers"] == 1
