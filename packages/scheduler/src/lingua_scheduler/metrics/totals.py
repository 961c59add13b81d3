"""The metrics of several workers as those of one service: reads their texts and adds them up.

Counters and histograms are summed, and so are gauges, because each worker counts its own. Gauges
that all workers read from the same place are not summed. Pure: text in, text out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lingua_scheduler.metrics.registry import PREFIX, number_text

if TYPE_CHECKING:
    from collections.abc import Iterator

# Every worker reports the same number; the highest one counts.
NOT_SUMMED = frozenset({f"{PREFIX}instances", f"{PREFIX}web_task_pause_ms"})
GAUGE = "gauge"


@dataclass(slots=True)
class SummedMetric:
    """One metric: its type, its lines of text, and a number for each sample."""

    name: str
    type: str
    head: str
    # By name and labels, in the order of the text.
    samples: dict[str, float] = field(default_factory=dict)

    def add(self, sample: str, value: float) -> None:
        """Add one number of one worker."""
        known = self.samples.get(sample)
        if known is not None:
            value = max(known, value) if self.name in NOT_SUMMED else known + value
        self.samples[sample] = value


class MetricTotals:
    """The metrics of all texts that were added."""

    def __init__(self) -> None:
        self._metrics: dict[str, SummedMetric] = {}

    def add(self, text: bytes, *, lasting_only: bool = False) -> None:
        """Add the metrics of one process; of one that has ended, only what must not decrease."""
        for read in read_metrics(text):
            if lasting_only and read.type == GAUGE:
                continue
            known = self._metrics.setdefault(
                read.name, SummedMetric(read.name, read.type, read.head)
            )
            for sample, value in read.samples.items():
                known.add(sample, value)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return "".join(
            line
            for metric in self._metrics.values()
            for line in (
                metric.head,
                *(f"{name} {number_text(value)}\n" for name, value in metric.samples.items()),
            )
        ).encode()


def read_metrics(text: bytes) -> Iterator[SummedMetric]:
    """Yield the metrics of a text that our own registry has rendered."""
    found: SummedMetric | None = None
    about = ""
    for line in text.decode().splitlines():
        if line.startswith("# HELP "):
            about = line
        elif line.startswith("# TYPE "):
            if found is not None:
                yield found
            _, _, name, kind = line.split(" ", 3)
            found = SummedMetric(name, kind, f"{about}\n{line}\n")
        elif found is not None:
            sample, _, value = line.rpartition(" ")
            found.samples[sample] = float(value)
    if found is not None:
        yield found
