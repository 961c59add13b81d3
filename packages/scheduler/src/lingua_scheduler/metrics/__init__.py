"""What the product counts: the registry of metrics and the catalogue in it."""

from lingua_scheduler.metrics.catalogue import (
    LiveMetrics,
    ProcessMetrics,
    ServiceMetrics,
    StreamMetrics,
    metrics_page,
    open_files,
    resident_bytes,
)
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
from lingua_scheduler.metrics.totals import MetricTotals

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
    "MetricTotals",
    "ProcessMetrics",
    "Registry",
    "ServiceMetrics",
    "StreamMetrics",
    "metrics_page",
    "number_text",
    "open_files",
    "resident_bytes",
]
