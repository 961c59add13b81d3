"""Numbers for Prometheus: a registry for the hot path, and the catalogue of what we count.

One event loop writes and the same loop renders, so there are no locks and an increment is one
addition. Labelled metrics hand out children that callers bind once and keep; how many children a
metric may have is bounded, and whatever comes beyond is counted under `other`. Not a time series
store, and no ids, texts or addresses ever become labels. `LiveMetrics` is what the product counts;
docs/metrics.md is generated from it.
"""

from __future__ import annotations

import math
import os
import re
import time
from bisect import bisect_left
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PREFIX = "scheduler_"
OTHER = "other"
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
CHILDREN_MAX = 64
LABEL_CHARS_MAX = 64

# The values a label is known to take; those are there from the start, with 0.
Labels = dict[str, tuple[str, ...]]
MetricType = Literal["counter", "gauge", "histogram"]
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SUFFIX: dict[MetricType, str] = {"counter": "_total", "gauge": "", "histogram": "_seconds"}


class _Number:
    """What a counter and a gauge have in common."""

    __slots__ = ("_source", "value")

    def __init__(self) -> None:
        # Public, so that the hottest paths may add to it without a call.
        self.value: float = 0
        # Where the number comes from instead, if somebody else counts.
        self._source: Callable[[], float | None] | None = None

    def inc(self, amount: float = 1) -> None:
        """Add to it."""
        self.value += amount

    def follow(self, source: Callable[[], float | None]) -> None:
        """Ask this function at every scrape instead; None leaves the sample out."""
        self._source = source

    def samples(self, name: str, labels: str) -> Iterator[str]:
        """Give its lines of the exposition."""
        value = self.value if self._source is None else self._source()
        if value is not None:
            yield f"{name}{_braced(labels)} {number_text(value)}\n"


class Counter(_Number):
    """A number that only grows."""

    __slots__ = ()


class Gauge(_Number):
    """A number that comes and goes."""

    __slots__ = ()

    def set(self, value: float) -> None:
        """Replace it."""
        self.value = value

    def dec(self, amount: float = 1) -> None:
        """Take from it."""
        self.value -= amount


class Histogram:
    """How often a duration fell into which bucket."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        # One per bucket and one for what is longer than the last; not yet cumulative.
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        """Return how many were observed."""
        return sum(self.counts)

    def samples(self, name: str, labels: str) -> Iterator[str]:
        """Give its lines of the exposition."""
        before = f"{labels}," if labels else ""
        total = 0
        for bound, count in zip((*BUCKETS_S, math.inf), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{before}le="{number_text(bound)}"}} {total}\n'
        yield f"{name}_sum{_braced(labels)} {number_text(self.sum)}\n"
        yield f"{name}_count{_braced(labels)} {total}\n"


class _Child(Protocol):
    def samples(self, name: str, labels: str) -> Iterator[str]: ...


ChildT = TypeVar("ChildT", bound=_Child)


class Family(Generic[ChildT]):
    """A metric with labels: one child for each combination of values, up to a bound."""

    def __init__(self, make: Callable[[], ChildT], labels: Labels, children_max: int) -> None:
        self.label_names = tuple(labels)
        # How children are made, and how many there may be beside `other`.
        self._make = make
        self._children_max = children_max
        # By label values, in the order of `label_names`.
        self._children: dict[tuple[str, ...], ChildT] = {}
        for values in product(*labels.values()):
            self._children[values] = make()
        assert len(self._children) <= children_max
        # Kept apart, so that a value that is really `other` and the overflow are one sample.
        self._other_values = (OTHER,) * len(labels)
        self._other = self._children.pop(self._other_values, None)

    def labels(self, *values: str, **by_name: str) -> ChildT:
        """Return the child of these values, given in order or by name; the hot path keeps it."""
        if by_name:
            values = tuple([by_name.pop(name) for name in self.label_names])
        assert len(values) == len(self.label_names), "one value for each label"
        assert not by_name, "no label of that name"
        child = self._children.get(values)
        return self._new(values) if child is None else child

    def samples(self, name: str) -> Iterator[str]:
        """Give the lines of all children."""
        for values, child in self._children.items():
            yield from child.samples(name, self._text(values))
        if self._other is not None:
            yield from self._other.samples(name, self._text(self._other_values))

    def _new(self, values: tuple[str, ...]) -> ChildT:
        is_full = len(self._children) >= self._children_max
        is_other = values == self._other_values
        if is_full or is_other or not all(map(_is_plain, values)):
            if self._other is None:
                self._other = self._make()
            return self._other
        child = self._children[values] = self._make()
        return child

    def _text(self, values: tuple[str, ...]) -> str:
        pairs = zip(self.label_names, values, strict=True)
        return ",".join(f'{name}="{escape_label(value)}"' for name, value in pairs)


class Metric:
    """One named metric of a registry: what it is and where its samples come from."""

    __slots__ = ("_samples", "help", "labels", "name", "type")

    def __init__(
        self, kind: MetricType, name: str, text: str, labels: Labels,
        samples: Callable[[str], Iterator[str]],
    ) -> None:  # fmt: skip
        assert _NAME.fullmatch(name), name
        assert name.endswith(_SUFFIX[kind]), f"{name} is a {kind}"
        assert kind == "counter" or not name.endswith("_total"), f"{name} is a {kind}"
        self.type = kind
        self.name = name
        self.help = text
        self.labels = labels
        self._samples = samples

    def lines(self) -> Iterator[str]:
        """Give its part of the exposition, nothing if it has no sample."""
        samples = list(self._samples(self.name))
        if samples:
            yield f"# HELP {self.name} {escape_help(self.help)}\n"
            yield f"# TYPE {self.name} {self.type}\n"
            yield from samples


class Registry:
    """The metrics of one process, in the order they were declared."""

    def __init__(self, prefix: str = PREFIX) -> None:
        self._prefix = prefix
        self._metrics: dict[str, Metric] = {}

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Return every metric by its full name."""
        return self._metrics

    def counter(self, name: str, text: str, *, prefix: str | None = None) -> Counter:
        """Declare a counter."""
        return self._single("counter", name, text, Counter(), prefix)

    def gauge(self, name: str, text: str, *, prefix: str | None = None) -> Gauge:
        """Declare a gauge."""
        return self._single("gauge", name, text, Gauge(), prefix)

    def histogram(self, name: str, text: str) -> Histogram:
        """Declare a histogram of durations."""
        return self._single("histogram", name, text, Histogram(), None)

    def counters(
        self, name: str, text: str, labels: Labels, children_max: int = CHILDREN_MAX
    ) -> Family[Counter]:
        """Declare a counter with labels."""
        return self._family("counter", name, text, labels, Family(Counter, labels, children_max))

    def gauges(
        self, name: str, text: str, labels: Labels, children_max: int = CHILDREN_MAX
    ) -> Family[Gauge]:
        """Declare a gauge with labels."""
        return self._family("gauge", name, text, labels, Family(Gauge, labels, children_max))

    def histograms(
        self, name: str, text: str, labels: Labels, children_max: int = CHILDREN_MAX
    ) -> Family[Histogram]:
        """Declare a histogram of durations with labels."""
        made = Family(Histogram, labels, children_max)
        return self._family("histogram", name, text, labels, made)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format, version 0.0.4."""
        return "".join(
            line for metric in self._metrics.values() for line in metric.lines()
        ).encode()

    def _single(
        self, kind: MetricType, name: str, text: str, child: ChildT, prefix: str | None
    ) -> ChildT:
        whole = f"{self._prefix if prefix is None else prefix}{name}"
        self._add(Metric(kind, whole, text, {}, lambda given: child.samples(given, "")))
        return child

    def _family(
        self, kind: MetricType, name: str, text: str, labels: Labels, family: Family[ChildT]
    ) -> Family[ChildT]:
        assert labels
        assert all(_NAME.fullmatch(label) and label != "le" for label in labels)
        self._add(Metric(kind, f"{self._prefix}{name}", text, labels, family.samples))
        return family

    def _add(self, metric: Metric) -> None:
        assert metric.name not in self._metrics, f"{metric.name} is declared twice"
        self._metrics[metric.name] = metric


class LiveMetrics:
    """Everything the product counts; an attribute is named as its metric without the prefix."""

    def __init__(self) -> None:
        self.registry = Registry()
        # Called before each rendering, to take over what others count.
        self.sources: list[Callable[[], None]] = []
        self._declare_connections()
        self._declare_speech()
        self._declare_jobs()
        self._declare_nodes()
        self._declare_results()
        self._declare_neighbours()
        self._declare_instance()
        self._declare_process()

    def render(self) -> bytes:
        """Return the body of `/metrics`; what is counted elsewhere is fetched first."""
        for fetch in self.sources:
            fetch()
        return self.registry.render()

    def _declare_connections(self) -> None:
        add = self.registry
        self.connections = add.gauges(
            "connections", "Open connections.", {"kind": ("session", "node", "http")}
        )
        self.connections_refused_total = add.counters(
            "connections_refused_total", "Connections refused at the door.", {"reason": ()}
        )
        self.closes_total = add.counters(
            "closes_total", "WebSockets closed, by close code.", {"code": ()}
        )
        self.messages_total = add.counters(
            "messages_total", "Messages received.", {"socket": ("session", "node"), "type": ()}, 128
        )
        self.invalid_messages_total = add.counters(
            "invalid_messages_total", "Messages refused, by the error code that answered them.",
            {"socket": ("session", "node"), "code": ()}, 128,
        )  # fmt: skip
        self.backpressure_total = add.counters(
            "backpressure_total", "Times a client was told to slow down.", {"action": ()}
        )

    def _declare_speech(self) -> None:
        add = self.registry
        self.sessions = add.gauge("sessions", "Sessions this instance holds.")
        self.rooms = add.gauge("rooms", "Rooms this instance knows.")
        self.audio_bytes_total = add.counter("audio_bytes_total", "Bytes of audio received.")
        self.audio_chunks_total = add.counter("audio_chunks_total", "Chunks of audio received.")
        self.utterances_total = add.counter("utterances_total", "Utterances cut or received.")
        self.web_task_finalized_total = add.counters(
            "web_task_finalized_total", "Utterances by what ended them; `send`: the client did.",
            {"reason": ("send", "timeout", "max_duration", "max_bytes", "close")},
        )  # fmt: skip
        self.web_task_pause_ms = add.gauge(
            "web_task_pause_ms", "The configured pause that ends an utterance."
        )
        self.empty_finalize_total = add.counter(
            "empty_finalize_total", "Ends of an utterance that had no audio; no index was used."
        )
        self.coverage_ms_total = add.counters(
            "coverage_ms_total", "Milliseconds of admitted audio by what became of them.",
            {"fate": ("delivered", "silent", "failed", "skipped")},
        )  # fmt: skip

    def _declare_jobs(self) -> None:
        add = self.registry
        ended = ("completed", "completed_no_text", "failed", "expired", "cancelled", "missing")
        self.jobs_total = add.counters("jobs_total", "Outcomes of utterances.", {"outcome": ended})
        self.duplicate_job_blocked_total = add.counter(
            "duplicate_job_blocked_total", "Requests answered with the job they already had."
        )
        self.queue_depth = add.gauge(
            "queue_depth",
            "Jobs that wait for a node, of the cells this instance speaks for: sum over instances.",
        )
        self.queue_wait_seconds = add.histogram(
            "queue_wait_seconds", "How long jobs waited until a node was free."
        )
        self.reserve_attempt_total = add.counters(
            "reserve_attempt_total",
            "Tries to take a slot for a job; error: the store did not answer.",
            {"result": ("success", "fail", "error")},
        )  # fmt: skip
        self.pool_selected_total = add.counters(
            "pool_selected_total",
            "Choices among pools: hit, one of the narrowest that serve the job; fallback, a "
            "broader one or another cell's; miss, none could take it.",
            {"pool": (), "outcome": ("hit", "fallback", "miss")}, 256,
        )  # fmt: skip
        self.no_available_node_total = add.counters(
            "no_available_node_total", "Jobs no node could take at once, by the best reason.",
            {"selector": ("submit", "failover"), "reason": ()},
        )  # fmt: skip
        self.dispatch_latency_seconds = add.histogram(
            "dispatch_latency_seconds", "From the creation of a job to its push to a node."
        )
        self.accept_to_assign_seconds = add.histogram(
            "accept_to_assign_seconds", "From an utterance's end to the push of its job."
        )
        self.failovers_total = add.counters(
            "failovers_total", "Jobs taken from a node for another to do.", {"reason": ()}
        )
        self.redispatch_seconds = add.histogram(
            "redispatch_seconds",
            "From the loss of a node to the push of a job it had to another; 0 jobs, 0 samples.",
        )
        self.cancels_acknowledged_total = add.counter(
            "cancels_acknowledged_total", "Cancelled jobs that their node says it dropped."
        )
        self.ack_timeout_total = add.counter(
            "ack_timeout_total", "Jobs a node that acknowledges did not acknowledge in time."
        )

    def _declare_nodes(self) -> None:
        add = self.registry
        statuses = ("registering", "ready", "degraded", "draining", "offline")
        self.nodes = add.gauges(
            "nodes",
            "Nodes with a socket here by status, draining ones apart; offline: of the cells this "
            "instance speaks for. Sum over instances.",
            {"status": statuses},
        )
        self.slots = add.gauges(
            "slots", "Slots of nodes here: taken, and free on nodes that take work now.",
            {"state": ("taken", "free")},
        )  # fmt: skip
        self.node_overload_reject_total = add.counters(
            "node_overload_reject_total", "Jobs a node handed back because it could not take them.",
            {"reason": ("full", "not_ready", "other")},
        )  # fmt: skip
        self.model_na_received_total = add.counter(
            "model_na_received_total", "MODEL_NOT_AVAILABLE reports of nodes."
        )
        self.model_na_rate_limited_total = add.counter(
            "model_na_rate_limited_total", "Such reports dropped because a node sent too many."
        )
        self.model_na_marked_total = add.counter(
            "model_na_marked_total", "Such reports that took a service of a node out of placement."
        )

    def _declare_results(self) -> None:
        add = self.registry
        self.results_stale_total = add.counters(
            "results_stale_total", "Results of an attempt or node that no longer counts.",
            {"reason": ()},
        )  # fmt: skip
        self.result_gap_timeout_total = add.counter(
            "result_gap_timeout_total", "Missing utterances whose place was filled after the wait."
        )
        self.stage_seconds = add.histograms(
            "stage_seconds", "Time nodes say a stage took.", {"stage": ("asr", "nmt", "tts")}
        )
        self.order_wait_seconds = add.histogram(
            "order_wait_seconds", "How long a result waited for those before it."
        )
        self.result_to_deliver_seconds = add.histogram(
            "result_to_deliver_seconds", "From a node's result to the client, order wait left out."
        )
        self.end_to_end_seconds = add.histogram(
            "end_to_end_seconds", "From the end of speech to the delivered outcome."
        )

    def _declare_neighbours(self) -> None:
        add = self.registry
        self.instances = add.gauges(
            "instances", "Instances this one knows of.", {"state": ("alive", "dead")}
        )
        self.instances_adopted_total = add.counter(
            "instances_adopted_total", "Dead instances whose inbox was read to the end from here."
        )
        self.letters_total = add.counters(
            "letters_total", "Letters in this instance's inbox, by what became of them.",
            {"result": ("applied", "failed", "retried", "buried")},
        )  # fmt: skip
        self.letters_adopted_total = add.counter(
            "letters_adopted_total", "Letters of dead instances that were applied from here."
        )
        self.sessions_resumed_total = add.counters(
            "sessions_resumed_total", "Clients that came back: to this instance, or from another.",
            {"origin": ("here", "elsewhere")},
        )  # fmt: skip
        self.resumes_rejected_total = add.counters(
            "resumes_rejected_total", "Clients that came back and could not go on.", {"reason": ()}
        )
        self.sessions_handed_over_total = add.counter(
            "sessions_handed_over_total", "Sessions that went on on another instance."
        )
        self.epochs_restarted_total = add.counter(
            "epochs_restarted_total", "Sessions that started over because the store lost memory."
        )

    def _declare_instance(self) -> None:
        add = self.registry
        self.internal_errors_total = add.counter(
            "internal_errors_total", "Errors of ours that nobody handled; each is logged."
        )
        self.loop_lag_seconds = add.histogram(
            "loop_lag_seconds", "How late the event loop ran a timer."
        )
        self.store_call_seconds = add.histograms(
            "store_call_seconds", "Round trip of a call to the store.", {"script": ()}
        )
        self.slow_path_total = add.counters(
            "slow_path_total", "Times a path took longer than it should.", {"path": ()}
        )

    def _declare_process(self) -> None:
        add = self.registry
        self.process_cpu_seconds_total = add.counter(
            "process_cpu_seconds_total", "CPU time of this process, user and system.", prefix=""
        )
        self.process_cpu_seconds_total.follow(time.process_time)
        self.process_resident_memory_bytes = add.gauge(
            "process_resident_memory_bytes", "Memory of this process that is in RAM.", prefix=""
        )
        self.process_resident_memory_bytes.follow(resident_bytes)
        self.process_open_fds = add.gauge(
            "process_open_fds", "Files and sockets that are open.", prefix=""
        )
        self.process_open_fds.follow(open_files)


def metrics_page() -> str:
    """Return docs/metrics.md."""
    rows = [
        "# Metrics",
        "",
        "Generated from `metrics.py`: what `/metrics` gives in Prometheus' text format. Label",
        f"values beyond a bound are counted under `{OTHER}`; a metric without samples is left out.",
        f"Buckets of all histograms: {', '.join(number_text(bound) for bound in BUCKETS_S)} s.",
        "",
        "| Metric | Type | Labels | Meaning |",
        "|---|---|---|---|",
    ]
    for metric in LiveMetrics().registry.metrics.values():
        labels = "; ".join(_label_text(name, known) for name, known in metric.labels.items())
        rows.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
    return "\n".join(rows) + "\n"


def number_text(value: float) -> str:
    """Return a number as the text format wants it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)


def escape_label(value: str) -> str:
    """Escape what would end a label's value early."""
    return escape_help(value).replace('"', '\\"')


def escape_help(text: str) -> str:
    """Escape what would end a HELP line early."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def resident_bytes() -> float | None:
    """Return this process' memory in RAM, or None where /proc does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> float | None:
    """Return how many descriptors are open, or None where /proc does not tell."""
    try:
        # The listing itself holds one.
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    except OSError:
        return None


def _is_plain(value: str) -> bool:
    """Tell whether a value could be a word of ours, and not something a stranger sent."""
    return len(value) <= LABEL_CHARS_MAX and value.isascii()


def _braced(labels: str) -> str:
    return f"{{{labels}}}" if labels else ""


def _label_text(name: str, known: tuple[str, ...]) -> str:
    return f"`{name}` ({', '.join(known)})" if known else f"`{name}`"
