"""What the product counts: the registry of metrics and the catalogue in it."""

from lingua_scheduler.metrics.catalogue import LiveMetrics, metrics_page, open_files, resident_bytes
from lingua_scheduler.metrics.registry import (
    BUCKETS_S,
    CONTENT_TYPE,
    LABEL_CHARS_MAX,
    PREFIX,
    Counter,
    Gauge,
    Histogram,
    Metric,
    MetricFamily,
    Registry,
    number_text,
)

__all__ = [
    "BUCKETS_S",
    "CONTENT_TYPE",
    "LABEL_CHARS_MAX",
    "PREFIX",
    "Counter",
    "Gauge",
    "Histogram",
    "LiveMetrics",
    "Metric",
    "MetricFamily",
    "Registry",
    "metrics_page",
    "number_text",
    "open_files",
    "resident_bytes",
]
