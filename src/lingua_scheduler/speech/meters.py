"""What a node of real engines counts.

Not what the scheduler counts of a node (docs/metrics.md): here are stages, workers and how much of
real time they take. One event loop counts and renders (`metrics_page.py`). No ids and no texts
become labels.
"""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING, Final

from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.metrics import Registry, resident_bytes
from lingua_scheduler.speech.routing.guards import REMARKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.speech.host import Crew

PREFIX: Final = "lingua_node_"
SERVICES: Final = ("asr", "nmt", "tts")
ROLES: Final = ("file", "vad", "asr", "lid", "mt", "tts")
OUTCOMES: Final = ("done", "silent", "cancelled")
KNOWN_CODES: Final = frozenset(ErrorCode)


class Meters:
    """The counters of one node."""

    def __init__(self) -> None:
        self.registry = add = Registry(PREFIX)
        self.jobs = add.counters(
            "jobs_total", "Jobs by how they ended; failures by their code.", {"outcome": OUTCOMES}
        )
        self.jobs_running = add.gauge("jobs_running", "Jobs being worked on.")
        self.slots = add.gauge("slots", "Jobs this node takes at a time.")
        self.job_seconds = add.histogram("job_seconds", "From a job's arrival to its result.")
        self.engine_seconds = add.histograms(
            "engine_seconds", "How long an engine took, waiting included.", {"role": ROLES}
        )
        self.second_tries = add.counters(
            "second_tries_total", "Work done again because its worker was lost.",
            {"stage": SERVICES},
        )  # fmt: skip
        self.audio = add.counter("audio_seconds_total", "Speech in jobs that ended well.")
        self.busy = add.counter("busy_seconds_total", "Time from arrival to result of those jobs.")
        self.shared = add.counter(
            "recognitions_shared_total", "Recognitions that served a further language."
        )
        self.remarks = add.counters(
            "translation_remarks_total",
            "Translations that went another way, were repaired or may be wrong, by what is said.",
            {"remark": REMARKS},
        )
        self.real_time_factor = add.gauge(
            "real_time_factor", "Time taken by the length of the speech, over all jobs so far."
        )
        self.real_time_factor.follow(self._factor)
        self._add_process()

    def watch(self, crews: dict[str, Crew]) -> None:
        """Show the state of these crews, by their service, from now on."""
        labels = {"stage": tuple(crews)}
        add = self.registry
        ready = add.gauges("ready", "Whether a stage's workers can work.", labels)
        queue = add.gauges("queue", "Calls that wait for a worker.", labels)
        restarts = add.counters(
            "worker_restarts_total", "Workers replaced because they were lost.", labels
        )
        workers = add.gauges("workers", "Worker processes.", labels)
        for name, crew in crews.items():
            ready.labels(name).follow(_number(crew, lambda crew: crew.is_ready))
            restarts.labels(name).follow(_number(crew, lambda crew: crew.restarts))
            workers.labels(name).follow(_number(crew, lambda crew: len(crew.pids)))
            queue.labels(name).follow(_number(crew, lambda crew: crew.waiting))

    def ended(self, outcome: str, audio_s: float, took_s: float) -> None:
        """Count a job's end."""
        self.jobs.labels(outcome if outcome in {*OUTCOMES, *KNOWN_CODES} else "other").inc()
        self.job_seconds.observe(took_s)
        if outcome == "done":
            self.audio.inc(audio_s)
            self.busy.inc(took_s)

    def translated(self, remarks: tuple[str, ...]) -> None:
        """Count what an engine said of a translation."""
        for remark in remarks:
            self.remarks.labels(remark if remark in REMARKS else "other").inc()

    def _factor(self) -> float | None:
        return self.busy.value / self.audio.value if self.audio.value else None

    def _add_process(self) -> None:
        add = self.registry
        cpu = add.counter("process_cpu_seconds_total", "CPU time, without the workers.", prefix="")
        cpu.follow(process_time)
        memory = add.gauge(
            "process_resident_memory_bytes", "Memory in RAM, without the workers.", prefix=""
        )
        memory.follow(resident_bytes)


def _number(crew: Crew, read: Callable[[Crew], float]) -> Callable[[], float]:
    return lambda: float(read(crew))
