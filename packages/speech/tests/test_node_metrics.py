"""The metrics of a node: names, label values and buckets."""

from __future__ import annotations

import pytest

from lingua_speech.metrics import NodeMetrics

pytestmark = pytest.mark.unit


def value(metrics: NodeMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"lingua_node_{name}", labels)


def test_known_label_values_are_exposed_from_the_start() -> None:
    metrics = NodeMetrics()
    assert value(metrics, "jobs_total", outcome="silent") == 0
    assert value(metrics, "engine_seconds_count", role="lid") == 0
    assert value(metrics, "second_tries_total", stage="nmt") == 0
    assert value(metrics, "translation_remarks_total", remark="mt_repaired") == 0


def test_an_unknown_outcome_or_remark_is_counted_as_other() -> None:
    metrics = NodeMetrics()
    for outcome in ("done", "JOB_TIMEOUT", "anything an engine made up"):
        metrics.count_job(outcome, audio_s=1.0, took_s=0.5)
    metrics.count_remarks(("mt_repaired", "anything an engine made up"))
    assert value(metrics, "jobs_total", outcome="JOB_TIMEOUT") == 1
    assert value(metrics, "jobs_total", outcome="other") == 1
    assert value(metrics, "translation_remarks_total", remark="other") == 1
    assert value(metrics, "translation_remarks_total", remark="mt_repaired") == 1


def test_the_real_time_factor_is_of_successful_jobs_and_absent_before_the_first() -> None:
    metrics = NodeMetrics()
    metrics.count_job("silent", audio_s=4.0, took_s=1.0)
    assert value(metrics, "real_time_factor") is None
    metrics.count_job("done", audio_s=4.0, took_s=1.0)
    metrics.count_job("done", audio_s=4.0, took_s=3.0)
    assert value(metrics, "real_time_factor") == 0.5
    assert value(metrics, "audio_seconds_total") == 8
    assert value(metrics, "busy_seconds_total") == 4
    assert value(metrics, "job_seconds_count") == 3


def test_the_buckets_reach_from_a_millisecond_to_five_seconds() -> None:
    metrics = NodeMetrics()
    metrics.count_job("done", audio_s=1.0, took_s=0.3)
    assert value(metrics, "job_seconds_bucket", le="0.001") == 0
    assert value(metrics, "job_seconds_bucket", le="0.5") == 1
    assert value(metrics, "job_seconds_bucket", le="5.0") == 1
