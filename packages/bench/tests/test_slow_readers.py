"""`lingua bench rooms`: its limits, and a small run with a real scheduler."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import uvloop

from lingua_bench.commands.bench_rooms import page, run_rooms
from lingua_bench.slow_readers import SlowReaderPlan, SlowReport, measure_slow_readers
from lingua_cli.main import build_parser

pytestmark = pytest.mark.stress

GOOD = SlowReport(200, 262_144, 100, 10.0, 20.0, 11.0, 23.0, 60.0, 80.0, 5.0, 0.3, 0)
BAD = [
    ({"instance_mb_grown": 151.0}, "the scheduler grew by 151 MB"),
    ({"store_mb_per_utterance": 1.5}, "the store grew by 1.50 MB per utterance"),
    ({"among_p99_ms": 25.0}, "p99 of who reads is 1.25 times what it was"),
    ({"unheard": 2}, "2 results were not received"),
]


def test_a_good_report_has_no_problem_and_is_told_in_words() -> None:
    assert GOOD.problems == []
    assert "p50 10.0 -> 11.0 ms, p99 20.0 -> 23.0 ms" in page(GOOD)


@pytest.mark.parametrize(("change", "problem"), BAD)
def test_each_bound_is_held(change: dict[str, float], problem: str) -> None:
    bad = replace(GOOD, **change)  # type: ignore[arg-type]
    assert bad.problems == [problem]
    assert problem in page(bad)


def test_the_command_has_its_options() -> None:
    args = build_parser(("bench",)).parse_args(["bench", "rooms", "--quick", "--json"])
    assert (args.run, args.quick, args.json) == (run_rooms, True, True)


def test_a_small_room_of_slow_readers_is_measured() -> None:
    plan = SlowReaderPlan(slow=10, result_bytes=100_000, utterances=5, every_s=0.01)
    report = uvloop.run(measure_slow_readers(plan, lambda *_: None))
    print(msgspec.json.encode(report))
    assert report.unheard == 0
    assert 0 < report.alone_p50_ms <= report.alone_p99_ms
    assert report.store_mb_per_utterance < 1
