"""The registry of metrics, its text format, and the catalogue of the product."""

import math
import os
import re
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.metrics import (
    BUCKETS_S,
    LABEL_CHARS_MAX,
    Counter,
    Gauge,
    Histogram,
    LiveMetrics,
    MetricFamily,
    Registry,
    metrics_page,
    number_text,
)

pytestmark = pytest.mark.unit

# A reader of the text format, written from its rules and not from our code


@dataclass
class Read:
    """One metric as a scraper understands it."""

    type: str
    help: str
    # By sample name and labels.
    samples: dict[tuple[str, tuple[tuple[str, str], ...]], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, tuple(sorted(labels.items()))]


NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\.)*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")


def parsed(data: bytes) -> dict[str, Read]:
    """Read an exposition, failing on whatever a strict scraper would refuse."""
    text = data.decode("utf-8")
    assert text == "" or text.endswith("\n")
    metrics: dict[str, Read] = {}
    current = ""
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            _, _, name, words = line.split(" ", 3)
            assert name not in metrics, "a metric's lines stand together"
            metrics[name] = Read("", unescaped(words, '"'))
            current = name
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in {"counter", "gauge", "histogram"}
            metrics[name].type = kind
        else:
            add_sample(metrics[current], current, line)
    for name, metric in metrics.items():
        check_metric(name, metric)
    return metrics


def add_sample(metric: Read, name: str, line: str) -> None:
    found = SAMPLE.fullmatch(line)
    assert found, line
    suffixes = ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)
    assert found[1] in {name + suffix for suffix in suffixes}
    pairs = [(key, unescaped(value)) for key, value in re.findall(LABEL, found[2] or "")]
    assert len({key for key, _ in pairs}) == len(pairs)
    key = (found[1], tuple(sorted(pairs)))
    assert key not in metric.samples, f"twice: {line}"
    metric.samples[key] = float(found.group(SAMPLE.groups))


def unescaped(text: str, plain: str = "") -> str:
    assert set(re.findall(r"\\(.)", text)) <= {"\\", "n", '"'} - set(plain)
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def check_metric(name: str, metric: Read) -> None:
    assert metric.samples
    assert (metric.type == "counter") == name.endswith("_total")
    if metric.type == "counter":
        assert min(metric.samples.values()) >= 0
    if metric.type == "histogram":
        check_histogram(name, metric)


def check_histogram(name: str, metric: Read) -> None:
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for (sample, labels), value in metric.samples.items():
        if sample == f"{name}_bucket":
            rest = tuple(pair for pair in labels if pair[0] != "le")
            series.setdefault(rest, []).append((float(dict(labels)["le"]), value))
    for labels, buckets in series.items():
        bounds, counts = zip(*buckets, strict=True)
        assert list(bounds) == sorted(bounds)
        assert bounds[-1] == math.inf
        assert list(counts) == sorted(counts)
        assert counts[-1] == metric.samples[f"{name}_count", labels]
        assert (f"{name}_sum", labels) in metric.samples


# One number


def test_a_counter_adds() -> None:
    registry = Registry()
    counter = registry.counter("things_total", "Things.")
    counter.inc()
    counter.inc(41)
    counter.value += 0.5
    read = parsed(registry.render())["scheduler_things_total"]
    assert (read.type, read.help, read.value("scheduler_things_total")) == (
        "counter",
        "Things.",
        42.5,
    )


def test_a_gauge_comes_and_goes() -> None:
    registry = Registry()
    gauge = registry.gauge("things", "Things.")
    gauge.set(5)
    gauge.inc()
    gauge.dec(4)
    assert registry.render().endswith(b"\nscheduler_things 2\n")
    assert not hasattr(Counter(), "dec")


def test_a_number_may_come_from_a_function_that_is_asked_at_every_scrape() -> None:
    registry = Registry()
    numbers = [7, 3]
    registry.gauge("things", "Things.").follow(lambda: len(numbers))
    registry.gauges("states", "States.", {"state": ("a", "b")}).labels("b").follow(lambda: 9)
    assert parsed(registry.render())["scheduler_things"].value("scheduler_things") == 2
    numbers.pop()
    read = parsed(registry.render())
    assert read["scheduler_things"].value("scheduler_things") == 1
    assert read["scheduler_states"].value("scheduler_states", state="b") == 9


def test_a_number_nobody_knows_is_left_out() -> None:
    registry = Registry()
    registry.gauge("things", "Things.").follow(lambda: None)
    assert registry.render() == b""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (-2, "-2"),
        (0.1, "0.1"),
        (1e-9, "1e-09"),
        (2**53 - 1, "9007199254740991"),
        (2**60, "1152921504606846976"),
        (1e300, "1e+300"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_scrapers_read_them(value: float, text: str) -> None:
    assert number_text(value) == text
    assert math.isnan(value) or float(text) == value


# Histograms


def test_a_histogram_counts_what_is_at_most_a_bound_into_its_bucket() -> None:
    registry = Registry()
    histogram = registry.histogram("wait_seconds", "Waits.")
    for seconds in (0.0, 0.001, 0.0011, 5.0, 5.1):
        histogram.observe(seconds)
    name = "scheduler_wait_seconds"
    read = parsed(registry.render())[name]
    assert read.value(f"{name}_bucket", le="0.001") == 2
    assert read.value(f"{name}_bucket", le="0.002") == 3
    assert read.value(f"{name}_bucket", le="2") == 3
    assert read.value(f"{name}_bucket", le="5") == 4
    assert read.value(f"{name}_bucket", le="+Inf") == 5
    assert read.value(f"{name}_count") == histogram.count == 5
    assert read.value(f"{name}_sum") == pytest.approx(10.1021)


@given(st.lists(st.floats(0, 20)))
def test_a_histogram_agrees_with_counting_by_hand(seconds: list[float]) -> None:
    registry = Registry()
    histogram = registry.histogram("wait_seconds", "Waits.")
    for value in seconds:
        histogram.observe(value)
    read = parsed(registry.render())["scheduler_wait_seconds"]
    for bound in BUCKETS_S:
        counted = read.value("scheduler_wait_seconds_bucket", le=number_text(bound))
        assert counted == sum(value <= bound for value in seconds)


def test_a_histogram_with_labels_has_all_lines_for_each() -> None:
    registry = Registry()
    family = registry.histograms("stage_seconds", "Stages.", {"stage": ("asr", "nmt")})
    family.labels("nmt").observe(0.3)
    name = "scheduler_stage_seconds"
    read = parsed(registry.render())[name]
    assert read.value(f"{name}_count", stage="asr") == 0
    assert read.value(f"{name}_bucket", stage="nmt", le="0.2") == 0
    assert read.value(f"{name}_bucket", stage="nmt", le="0.5") == 1


# Labels


def test_a_child_is_bound_once_and_found_by_order_or_name() -> None:
    registry = Registry()
    family = registry.counters("refused_total", "Refused.", {"selector": (), "reason": ()})
    child = family.labels("submit", "full")
    child.inc()
    assert family.labels(reason="full", selector="submit") is child
    assert family.labels("full", "submit") is not child
    read = parsed(registry.render())["scheduler_refused_total"]
    assert read.value("scheduler_refused_total", selector="submit", reason="full") == 1


def test_a_wrong_set_of_labels_is_our_mistake() -> None:
    family = Registry().counters("x_total", "X.", {"a": (), "b": ()})
    for values in [(), ("1",), ("1", "2", "3")]:
        with pytest.raises(AssertionError):
            family.labels(*values)
    with pytest.raises(KeyError):
        family.labels(a="1")
    with pytest.raises(AssertionError):
        family.labels(a="1", b="2", c="3")


def test_known_values_are_there_from_the_start() -> None:
    registry = Registry()
    registry.counters("x_total", "X.", {"a": ("1", "2"), "b": ("3", "4")})
    registry.counters("y_total", "Y.", {"a": ("1", "2"), "b": ()})
    read = parsed(registry.render())
    assert len(read["scheduler_x_total"].samples) == 4
    assert "scheduler_y_total" not in read


def test_beyond_the_bound_everything_is_other() -> None:
    registry = Registry()
    family = registry.counters("x_total", "X.", {"a": (), "b": ()}, children_max=3)
    kept = family.labels("0", "0")
    for number in range(1000):
        family.labels(str(number), str(number)).inc()
    assert family.labels("0", "0") is kept
    read = parsed(registry.render())["scheduler_x_total"]
    assert len(read.samples) == 4
    assert read.value("scheduler_x_total", a="other", b="other") == 997
    assert sum(read.samples.values()) == 1000


@pytest.mark.parametrize("known", [("full", "other"), ()])
def test_a_value_named_other_and_the_overflow_are_one_sample(known: tuple[str, ...]) -> None:
    registry = Registry()
    family = registry.counters("x_total", "X.", {"reason": known}, children_max=2)
    for value in ("other", "full", "b", "c", "d"):
        family.labels(value).inc()
    read = parsed(registry.render())["scheduler_x_total"]
    assert read.value("scheduler_x_total", reason="full") == 1
    assert read.value("scheduler_x_total", reason="b") == 1
    assert read.value("scheduler_x_total", reason="other") == 3


ASCII = st.text(st.characters(codec="ascii"), max_size=12)


@given(st.lists(ASCII, max_size=8, unique=True), st.text())
def test_no_label_value_or_help_text_breaks_the_format(values: list[str], words: str) -> None:
    registry = Registry()
    family = registry.counters("x_total", words, {"a": ()})
    for value in values:
        family.labels(value).inc()
    for read in parsed(registry.render()).values():
        assert read.help == words
        assert {labels[0][1] for _, labels in read.samples} == set(values)


@pytest.mark.parametrize("value", ["x" * (LABEL_CHARS_MAX + 1), "é", "\ud800"])
def test_a_value_that_is_no_word_of_ours_is_other(value: str) -> None:
    family = MetricFamily(Counter, {"a": ()}, 10)
    assert family.labels("x" * LABEL_CHARS_MAX) is not family.labels("other")
    assert family.labels(value) is family.labels("other")


# Names


def test_a_name_that_breaks_the_conventions_is_our_mistake() -> None:
    registry = Registry()
    registry.counter("x_total", "X.")
    for declare in (
        lambda: registry.counter("x_total", "Again."),
        lambda: registry.counter("x", "No suffix."),
        lambda: registry.gauge("y_total", "A counter's suffix."),
        lambda: registry.histogram("wait_ms", "Not the base unit."),
        lambda: registry.gauge("a-b", "Not a name."),
        lambda: registry.gauges("z", "No labels.", {}),
        lambda: registry.gauges("z", "A reserved label.", {"le": ()}),
        lambda: registry.gauges("z", "Too many.", {"a": ("1", "2")}, children_max=1),
    ):
        with pytest.raises(AssertionError):
            declare()
    assert list(registry.metrics) == ["scheduler_x_total"]


# The catalogue


def test_the_catalogue_can_be_scraped_from_the_start_and_after_use() -> None:
    metrics = LiveMetrics()
    parsed(metrics.render())
    for made in counted(metrics).values():
        use(made)
    assert set(parsed(metrics.render())) == set(metrics.registry.metrics)


def use(made: object) -> None:
    if isinstance(made, MetricFamily):
        made = made.labels(*["x"] * len(made.label_names))
    if isinstance(made, Histogram):
        made.observe(0.1)
    elif isinstance(made, Counter | Gauge):
        made.inc()


def test_an_attribute_is_named_as_its_metric() -> None:
    metrics = LiveMetrics()
    names = {name.removeprefix("scheduler_") for name in metrics.registry.metrics}
    assert names == set(counted(metrics))


def counted(metrics: LiveMetrics) -> dict[str, object]:
    """Return everything the catalogue has, by its attribute, whichever group that is in."""
    groups = [group for name, group in vars(metrics).items() if name not in {"registry", "sources"}]
    found = [(name, made) for group in groups for name, made in vars(group).items()]
    assert len(dict(found)) == len(found), "no name is in two groups"
    return dict(found)


def test_the_names_that_dashboards_know_are_kept() -> None:
    known = """
        web_task_finalized_total no_available_node_total model_na_received_total
        model_na_rate_limited_total model_na_marked_total reserve_attempt_total
        dispatch_latency_seconds ack_timeout_total node_overload_reject_total web_task_pause_ms
        slow_path_total
    """
    metrics = LiveMetrics().registry.metrics
    assert {f"scheduler_{name}" for name in known.split()} <= set(metrics)
    assert tuple(metrics["scheduler_no_available_node_total"].labels) == ("selector", "reason")
    assert metrics["scheduler_ack_timeout_total"].labels == {}


def test_two_catalogues_share_nothing() -> None:
    first, second = LiveMetrics(), LiveMetrics()
    first.speech.sessions.inc()
    first.jobs.jobs_total.labels("failed").inc()
    assert second.speech.sessions.value == 0
    assert second.jobs.jobs_total.labels("failed").value == 0


def test_the_process_tells_its_cpu_memory_and_files() -> None:
    def value(name: str) -> float:
        return parsed(metrics.render())[name].value(name)

    metrics = LiveMetrics()
    assert value("process_cpu_seconds_total") > 0
    assert value("process_resident_memory_bytes") > 1 << 20
    before = value("process_open_fds")
    reader, writer = os.pipe()
    assert value("process_open_fds") == before + 2
    os.close(reader)
    os.close(writer)


def test_the_page_has_every_metric_with_its_labels_and_meaning() -> None:
    page = metrics_page()
    metrics = LiveMetrics().registry.metrics
    for name, metric in metrics.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
        assert row.count("|") == 5
        assert row.endswith(f"| {metric.help} |")
        assert metric.help.endswith(".")
        for label, values in metric.labels.items():
            assert f"`{label}`" in row
            assert ", ".join(values) in row
