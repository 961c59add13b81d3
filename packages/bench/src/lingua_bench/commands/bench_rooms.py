"""`lingua bench rooms`: a room most of whose members have stopped reading: memory and latency.

Starts a store, a scheduler and a node of its own. `--json` prints the numbers on one line.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec
import uvloop

from lingua_bench.slow_readers import FULL, QUICK, measure_slow_readers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from lingua_bench.slow_readers import SlowReport

    Tell = Callable[[str, float], None]


def add_rooms(benches: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua bench rooms`."""
    rooms = benches.add_parser("rooms", help="200 members of a room stop reading")
    rooms.add_argument("--quick", action="store_true", help="a shorter run, in under 50 s")
    rooms.add_argument("--json", action="store_true", help="print JSON")
    rooms.set_defaults(run=run_rooms)


def run_rooms(args: argparse.Namespace) -> int:
    """Measure and print; 1 if a limit is violated."""
    report = uvloop.run(measure_slow_readers(QUICK if args.quick else FULL, tell))
    if args.json:
        found = {
            name: round(value, 2) if isinstance(value, float) else value
            for name, value in asdict(report).items()
        }
        print(msgspec.json.encode(found | {"problems": report.problems}).decode())
    else:
        print(page(report))
    return 1 if report.problems else 0


def tell(doing: str, _: float) -> None:
    """Print what is being done."""
    sys.stderr.write(f"{doing}\n")


def page(report: SlowReport) -> str:
    """Return the table for people."""
    return "\n".join(
        [
            (
                f"{report.slow} members of a room do not read, {report.utterances} results of "
                f"{report.result_bytes // 1024} KB"
            ),
            (
                f"  scheduler  {report.instance_mb_before:.0f} MB, at most "
                f"{report.instance_mb_grown:+.0f} MB, {report.instance_mb_kept:+.0f} MB when they "
                "are gone"
            ),
            f"  store      {report.store_mb_per_utterance:+.2f} MB per utterance",
            (
                f"  who reads  p50 {report.alone_p50_ms:.1f} -> {report.among_p50_ms:.1f} ms, p99 "
                f"{report.alone_p99_ms:.1f} -> {report.among_p99_ms:.1f} ms"
            ),
            *report.problems,
        ]
    )
