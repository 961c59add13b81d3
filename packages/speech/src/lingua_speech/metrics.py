"""The Prometheus metrics of a node: jobs, stages, workers and the real-time factor.

The scheduler counts other things about a node (docs/metrics.md). `metrics_server.py` serves these
over HTTP from a thread, so everything read at a scrape must be safe to read from there. No label
holds an id or a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from lingua_speech.routing.guards import REMARKS
from lingua_wire.codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.metrics import MetricWrapperBase
    from prometheus_client.metrics_core import Metric

    from lingua_speech.host import WorkerPool

PREFIX: Final = "lingua_node_"
BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SERVICES: Final = ("asr", "nmt", "tts")
ROLES: Final = ("file", "vad", "asr", "lid", "mt", "tts")
OUTCOMES: Final = ("done", "silent", "cancelled")
# A stream that was shed had no more passes, for lack of time.
STREAM_OUTCOMES: Final = ("ended", "dropped", "shed", "failed")
PASS_OUTCOMES: Final = ("done", "preempted", "abandoned", "failed")
KNOWN_CODES: Final = frozenset(ErrorCode)
OTHER: Final = "other"


class NodeMetrics:
    """The metrics of one node, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.jobs = self._counter(
            "jobs_total", "Jobs by outcome; failed jobs by error code.", ("outcome",)
        )
        self.jobs_running = self._gauge("jobs_running", "Jobs in progress.")
        self.slots = self._gauge("slots", "Jobs that this node accepts at a time.")
        self.job_seconds = self._histogram(
            "job_seconds", "From the arrival of a job to its result."
        )
        self.engine_seconds = self._histogram(
            "engine_seconds", "Duration of an engine call, waiting included.", ("role",)
        )
        self.second_tries = self._counter(
            "second_tries_total", "Calls repeated because their worker was lost.", ("stage",)
        )
        self.audio = self._counter("audio_seconds_total", "Speech in successful jobs.")
        self.busy = self._counter(
            "busy_seconds_total", "Time from arrival to result of successful jobs."
        )
        self.recognitions_shared = self._counter(
            "recognitions_shared_total", "Recognitions that served one more language."
        )
        self.streams = self._counter(
            "streams_total", "Utterances heard while they were spoken, by outcome.", ("outcome",)
        )
        self.stream_passes = self._counter(
            "stream_passes_total", "Recognitions of speech that goes on, by outcome.", ("outcome",)
        )
        self.head_starts = self._counter(
            "head_starts_total",
            "Jobs whose speech was heard before: whether that was used.",
            ("outcome",),
        )
        self.remarks = self._counter(
            "translation_remarks_total",
            "Translations that took another route, were repaired or may be wrong, by remark.",
            ("remark",),
        )
        _create_children(self.jobs, OUTCOMES)
        _create_children(self.engine_seconds, ROLES)
        _create_children(self.second_tries, SERVICES)
        _create_children(self.remarks, REMARKS)
        _create_children(self.streams, STREAM_OUTCOMES)
        _create_children(self.stream_passes, PASS_OUTCOMES)
        _create_children(self.head_starts, ("used", "unused"))
        self._real_time_factor = _RealTimeFactor()
        self.registry.register(self._real_time_factor)
        # CPU and memory of the node's own process, without its workers.
        ProcessCollector(registry=self.registry)

    def add_worker_pools(self, pools: Mapping[str, WorkerPool]) -> None:
        """Expose the state of these worker pools, by stage."""
        self.registry.register(_WorkerPools(pools))

    def count_job(self, outcome: str, audio_s: float, took_s: float) -> None:
        """Count the end of a job."""
        is_known = outcome in OUTCOMES or outcome in KNOWN_CODES
        self.jobs.labels(outcome if is_known else OTHER).inc()
        self.job_seconds.observe(took_s)
        if outcome == "done":
            self.audio.inc(audio_s)
            self.busy.inc(took_s)
            self._real_time_factor.add(audio_s, took_s)

    def count_remarks(self, remarks: tuple[str, ...]) -> None:
        """Count the remarks on a translation."""
        for remark in remarks:
            self.remarks.labels(remark if remark in REMARKS else OTHER).inc()

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"{PREFIX}{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{PREFIX}{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"{PREFIX}{name}", text, labels, registry=self.registry, buckets=BUCKETS_S)


def _create_children(metric: MetricWrapperBase, values: tuple[str, ...]) -> None:
    """Expose the known label values from the start, with 0."""
    for value in values:
        metric.labels(value)


class _RealTimeFactor(Collector):
    """Processing time divided by speech time, over all successful jobs; absent before the first."""

    def __init__(self) -> None:
        self._audio_s = 0.0
        self._busy_s = 0.0

    def add(self, audio_s: float, took_s: float) -> None:
        """Add a successful job."""
        self._audio_s += audio_s
        self._busy_s += took_s

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge once there is speech to divide by."""
        if self._audio_s:
            yield GaugeMetricFamily(
                f"{PREFIX}real_time_factor",
                "Processing time divided by the length of the speech, over all jobs so far.",
                value=self._busy_s / self._audio_s,
            )


class _WorkerPools(Collector):
    """The state of worker pools, read at each scrape."""

    def __init__(self, pools: Mapping[str, WorkerPool]) -> None:
        self._pools = dict(pools)

    def collect(self) -> Iterator[Metric]:
        """Yield the state of each pool, labelled with its stage."""
        ready = _stage_gauge("ready", "Whether the workers of a stage can work.")
        queue = _stage_gauge("queue", "Calls that wait for a worker.")
        workers = _stage_gauge("workers", "Worker processes.")
        restarts = CounterMetricFamily(
            f"{PREFIX}worker_restarts_total", "Lost workers that were replaced.", labels=["stage"]
        )
        for stage, pool in self._pools.items():
            ready.add_metric([stage], pool.is_ready)
            queue.add_metric([stage], pool.waiting)
            workers.add_metric([stage], len(pool.pids))
            restarts.add_metric([stage], pool.restarts)
        yield from (ready, queue, restarts, workers)


def _stage_gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}{name}", text, labels=["stage"])
