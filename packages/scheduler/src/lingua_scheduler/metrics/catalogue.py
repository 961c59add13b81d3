"""The metrics of the product, grouped by noun; docs/metrics.md is generated from this file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lingua_scheduler.metrics.registry import BUCKETS_S, OTHER, Registry, number_text

if TYPE_CHECKING:
    from collections.abc import Callable


class SocketMetrics:
    """Connections, and the messages on them."""

    def __init__(self, add: Registry) -> None:
        self.connections = add.gauges(
            "connections", "Open connections.", {"kind": ("session", "node", "http")}
        )
        self.connections_refused_total = add.counters(
            "connections_refused_total",
            "Connections refused before a session or node was accepted.",
            {"reason": ()},
        )
        self.closes_total = add.counters(
            "closes_total", "WebSockets closed, by close code.", {"code": ()}
        )
        self.messages_total = add.counters(
            "messages_total", "Messages received.", {"socket": ("session", "node"), "type": ()}, 128
        )
        self.invalid_messages_total = add.counters(
            "invalid_messages_total",
            "Invalid messages, by the error code of the answer.",
            {"socket": ("session", "node"), "code": ()},
            128,
        )
        self.backpressure_total = add.counters(
            "backpressure_total", "Times a client was asked to slow down.", {"action": ()}
        )
        self.console_readers = add.gauge(
            "console_readers", "Open streams of `/api/v1/events`: consoles and `lingua top`."
        )
        self.console_readers_dropped_total = add.counter(
            "console_readers_dropped_total", "Such streams that were ended because of slow readers."
        )


class SpeechMetrics:
    """Sessions, rooms and the audio they send."""

    def __init__(self, add: Registry) -> None:
        self.sessions = add.gauge("sessions", "Sessions of this instance.")
        self.rooms = add.gauge("rooms", "Rooms known to this instance.")
        self.audio_bytes_total = add.counter("audio_bytes_total", "Bytes of audio received.")
        self.audio_chunks_total = add.counter("audio_chunks_total", "Chunks of audio received.")
        self.utterances_total = add.counter(
            "utterances_total", "Utterances cut from streams or received whole."
        )
        self.web_task_finalized_total = add.counters(
            "web_task_finalized_total",
            "Utterances by the reason of their end; `send`: ended by the client.",
            {"reason": ("send", "timeout", "sentence", "max_duration", "max_bytes", "close")},
        )
        self.web_task_pause_ms = add.gauge(
            "web_task_pause_ms", "The configured pause that ends an utterance."
        )
        self.empty_finalize_total = add.counter(
            "empty_finalize_total", "Ended utterances without audio; they use no index."
        )
        self.coverage_ms_total = add.counters(
            "coverage_ms_total",
            "Milliseconds of admitted audio, by their fate.",
            {"fate": ("delivered", "silent", "failed", "skipped")},
        )

    def count_chunk(self, size: int) -> None:
        """Count a chunk of so many bytes: one call for each of the many chunks."""
        self.audio_chunks_total.value += 1
        self.audio_bytes_total.value += size


class StreamMetrics:
    """Nodes that listen while one speaks, and what comes of it."""

    def __init__(self, add: Registry) -> None:
        self.streams = add.gauge("streams", "Sessions of this instance that a node listens to now.")
        self.streams_opened_total = add.counter(
            "streams_opened_total", "Utterances that a node listened to before their cut."
        )
        self.streams_ended_total = add.counters(
            "streams_ended_total",
            "Ends of streams: cut, the job followed; dropped, nobody needed it any more; lost, the "
            "node left or was too busy.",
            {"reason": ("cut", "dropped", "lost")},
        )
        self.stream_refusals_total = add.counters(
            "stream_refusals_total",
            "Requests for a stream that no node could take.",
            {"reason": ()},
        )
        self.partial_results_total = add.counters(
            "partial_results_total",
            "Partial results sent to clients.",
            {"receiver": ("speaker", "listener")},
        )


class JobMetrics:
    """Jobs, from admission to the push to a node."""

    def __init__(self, add: Registry) -> None:
        ended = ("completed", "completed_no_text", "failed", "expired", "cancelled", "missing")
        self.jobs_total = add.counters("jobs_total", "Outcomes of utterances.", {"outcome": ended})
        self.duplicate_job_blocked_total = add.counter(
            "duplicate_job_blocked_total", "Repeated requests answered with their existing job."
        )
        self.queue_depth = add.gauge(
            "queue_depth",
            "Waiting jobs of the cells that this instance reports for. Sum over instances.",
        )
        self.queue_wait_seconds = add.histogram(
            "queue_wait_seconds", "How long jobs waited for a free node."
        )
        self.reserve_attempt_total = add.counters(
            "reserve_attempt_total",
            "Attempts to take a slot for a job; error: the store did not answer.",
            {"result": ("success", "fail", "error")},
        )
        self.pool_selected_total = add.counters(
            "pool_selected_total",
            "Choices of a pool: hit, one of the narrowest that serve the job; fallback, a "
            "broader one or one of another cell; miss, no pool could take the job.",
            {"pool": (), "outcome": ("hit", "fallback", "miss")},
            256,
        )
        self.no_available_node_total = add.counters(
            "no_available_node_total",
            "Jobs that no node could take at once, by the most specific reason.",
            {"selector": ("submit", "failover"), "reason": ()},
        )
        self.dispatch_latency_seconds = add.histogram(
            "dispatch_latency_seconds", "From the creation of a job to its push to a node."
        )
        self.accept_to_assign_seconds = add.histogram(
            "accept_to_assign_seconds", "From an utterance's end to the push of its job."
        )
        self.failovers_total = add.counters(
            "failovers_total", "Jobs moved from one node to another.", {"reason": ()}
        )
        self.redispatch_seconds = add.histogram(
            "redispatch_seconds",
            "From the loss of a node to the push of one of its jobs to another node.",
        )
        self.cancels_acknowledged_total = add.counter(
            "cancels_acknowledged_total", "Cancelled jobs whose cancellation the node acknowledged."
        )
        self.ack_timeout_total = add.counter(
            "ack_timeout_total", "Jobs that an acknowledging node did not acknowledge in time."
        )


class FleetMetrics:
    """Nodes, their slots and their refusals."""

    def __init__(self, add: Registry) -> None:
        statuses = ("registering", "ready", "degraded", "draining", "offline")
        self.nodes = add.gauges(
            "nodes",
            "Nodes connected to this instance by status, draining nodes separately; offline: nodes "
            "of the cells that this instance reports for. Sum over instances.",
            {"status": statuses},
        )
        self.slots = add.gauges(
            "slots",
            "Slots of connected nodes: taken, and free on nodes that accept work.",
            {"state": ("taken", "free")},
        )
        self.node_overload_reject_total = add.counters(
            "node_overload_reject_total",
            "Jobs that a node returned because it could not take them.",
            {"reason": ("full", "not_ready", "other")},
        )
        self.model_na_received_total = add.counter(
            "model_na_received_total", "MODEL_NOT_AVAILABLE reports of nodes."
        )
        self.model_na_rate_limited_total = add.counter(
            "model_na_rate_limited_total", "Such reports dropped because a node sent too many."
        )
        self.model_na_marked_total = add.counter(
            "model_na_marked_total",
            "Such reports that excluded a service of a node from placement.",
        )


class ResultMetrics:
    """Results of nodes, and their delivery."""

    def __init__(self, add: Registry) -> None:
        self.results_stale_total = add.counters(
            "results_stale_total",
            "Results of an obsolete attempt or of another node.",
            {"reason": ()},
        )
        self.result_gap_timeout_total = add.counter(
            "result_gap_timeout_total",
            "Missing utterances that were released as missing after the wait.",
        )
        self.stage_seconds = add.histograms(
            "stage_seconds",
            "Duration of a stage as reported by nodes.",
            {"stage": ("asr", "nmt", "tts")},
        )
        self.order_wait_seconds = add.histogram(
            "order_wait_seconds", "How long a result waited for earlier ones."
        )
        self.result_to_deliver_seconds = add.histogram(
            "result_to_deliver_seconds",
            "From a node's result to the client, without the wait for earlier ones.",
        )
        self.end_to_end_seconds = add.histogram(
            "end_to_end_seconds", "From the end of speech to the delivered outcome."
        )


class PeerMetrics:
    """Other instances, and sessions that move between instances."""

    def __init__(self, add: Registry) -> None:
        self.instances = add.gauges(
            "instances", "Instances known to this one.", {"state": ("alive", "dead")}
        )
        self.instances_adopted_total = add.counter(
            "instances_adopted_total",
            "Dead instances whose inbox this instance has read to the end.",
        )
        self.letters_total = add.counters(
            "letters_total",
            "Messages in the inbox of this instance, by result.",
            {"result": ("applied", "failed", "retried", "buried")},
        )
        self.letters_adopted_total = add.counter(
            "letters_adopted_total", "Messages to dead instances that this instance applied."
        )
        self.sessions_resumed_total = add.counters(
            "sessions_resumed_total",
            "Resumed sessions: of this instance, or of another one.",
            {"origin": ("here", "elsewhere")},
        )
        self.resumes_rejected_total = add.counters(
            "resumes_rejected_total", "Clients that could not resume their session.", {"reason": ()}
        )
        self.sessions_handed_over_total = add.counter(
            "sessions_handed_over_total", "Sessions that continued on another instance."
        )
        self.epochs_restarted_total = add.counter(
            "epochs_restarted_total", "Sessions restarted because the store lost data."
        )


class InstanceMetrics:
    """This instance: errors, event loop and calls to the store."""

    def __init__(self, add: Registry) -> None:
        self.internal_errors_total = add.counter(
            "internal_errors_total", "Unhandled internal errors; each is logged."
        )
        self.loop_lag_seconds = add.histogram(
            "loop_lag_seconds", "How late the event loop ran a timer."
        )
        self.store_call_seconds = add.histograms(
            "store_call_seconds", "Round trip of a call to the store.", {"script": ()}
        )
        self.slow_path_total = add.counters(
            "slow_path_total", "Times a path took longer than expected.", {"path": ()}
        )


class ServiceMetrics:
    """The processes of one service."""

    def __init__(self, add: Registry) -> None:
        self.workers = add.gauge("workers", "Processes that serve the port (`server.workers`).")
        self.workers_replaced_total = add.counter(
            "workers_replaced_total", "Workers that ended by themselves and were replaced."
        )


class ProcessMetrics:
    """All processes of the service, by the metric names that Prometheus clients share."""

    def __init__(self, add: Registry) -> None:
        self.process_cpu_seconds_total = add.counter(
            "process_cpu_seconds_total", "CPU time of the service, user and system.", prefix=""
        )
        self.process_cpu_seconds_total.follow(time.process_time)
        self.process_resident_memory_bytes = add.gauge(
            "process_resident_memory_bytes", "Resident memory of the service.", prefix=""
        )
        self.process_resident_memory_bytes.follow(resident_bytes)
        self.process_open_fds = add.gauge("process_open_fds", "Open files and sockets.", prefix="")
        self.process_open_fds.follow(open_files)


class LiveMetrics:
    """All metrics of the product; an attribute is named as its metric without the prefix."""

    def __init__(self) -> None:
        self.registry = Registry()
        # Called by `fetch`, for the numbers that other objects count.
        self.sources: list[Callable[[], None]] = []
        # The order of the catalogue.
        self.sockets = SocketMetrics(self.registry)
        self.speech = SpeechMetrics(self.registry)
        self.streams = StreamMetrics(self.registry)
        self.jobs = JobMetrics(self.registry)
        self.fleet = FleetMetrics(self.registry)
        self.results = ResultMetrics(self.registry)
        self.peers = PeerMetrics(self.registry)
        self.instance = InstanceMetrics(self.registry)
        self.service = ServiceMetrics(self.registry)
        self.service.workers.set(1)
        self.process = ProcessMetrics(self.registry)

    def fetch(self) -> None:
        """Fetch the numbers of the sources."""
        for fetch in self.sources:
            fetch()

    def render(self) -> bytes:
        """Return the body of `/metrics`, after the numbers of the sources were fetched."""
        self.fetch()
        return self.registry.render()


def metrics_page() -> str:
    """Return docs/metrics.md."""
    rows = [
        "# Metrics",
        "",
        "Generated from `metrics/catalogue.py`: the metrics of `/metrics` in Prometheus' text",
        f"format. Label values beyond a limit are counted under `{OTHER}`. A metric without",
        "samples is left out.",
        f"Buckets of all histograms: {', '.join(number_text(bound) for bound in BUCKETS_S)} s.",
        "",
        "| Metric | Type | Labels | Meaning |",
        "|---|---|---|---|",
    ]
    for metric in LiveMetrics().registry.metrics.values():
        labels = "; ".join(_label_text(name, known) for name, known in metric.labels.items())
        rows.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.help} |")
    return "\n".join(rows) + "\n"


def resident_bytes() -> float | None:
    """Return the resident memory of this process, or None without /proc."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> float | None:
    """Return the number of open descriptors, or None without /proc."""
    try:
        # The listing itself uses one.
        return sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    except OSError:
        return None


def _label_text(name: str, known: tuple[str, ...]) -> str:
    return f"`{name}` ({', '.join(known)})" if known else f"`{name}`"
