"""`lingua bench`: measures placement, the live path or real speech, or injects faults.

Touches no deployment and reads no settings. The tables are for people; `--json` prints one object
per measurement and, on the last line, the numbers to quote. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from lingua_bench.chaos import report as chaos_report
from lingua_bench.chaos import scenarios
from lingua_bench.chaos.planted_faults import PLANTED_FAULTS
from lingua_bench.chaos.run import play_all
from lingua_bench.commands.bench_live import add_live
from lingua_bench.commands.bench_rooms import add_rooms
from lingua_bench.commands.bench_speech import add_speech
from lingua_bench.commands.bench_translation import add_translation
from lingua_bench.commands.progress import ProgressLine
from lingua_bench.fleet import FleetShape
from lingua_bench.placement import PlacementPlan, measure
from lingua_bench.report import as_json_object
from lingua_cli.interpreter import this_interpreter
from lingua_cli.table import render_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_bench.report import FleetRow, PlacementReport, PlacementSummary

NODES, SIGNATURES = (10, 1_000, 10_000), (1, 20)
NODES_MAX, SIGNATURES_MAX = 100_000, 128
# Measuring time and rounds; setting up comes on top.
FULL_S, FULL_ROUNDS = 90.0, 15
QUICK_S, QUICK_ROUNDS = 18.0, 7
# The time that `--quick` may take with setting up, without starting and ending.
QUICK_LIMIT_S = 32.0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua bench`; without a name it measures placement."""
    parser = subparsers.add_parser("bench", help="measure this machine")
    parser.set_defaults(
        run=run_placement, quick=False, json=False, nodes=NODES, signatures=SIGNATURES, seconds=None
    )
    benches = parser.add_subparsers(title="benchmarks", metavar="NAME")
    placement = benches.add_parser("placement", help="submit and settle: rate, cost, ceiling")
    placement.add_argument("--quick", action="store_true", help="less exact, in under 40 s")
    placement.add_argument("--json", action="store_true", help="print JSON, one object a line")
    placement.add_argument(
        "--nodes",
        type=numbers_to(NODES_MAX),
        default=NODES,
        metavar="N,N",
        help="sizes of fleets (default: 10,1000,10000)",
    )
    placement.add_argument(
        "--signatures",
        type=numbers_to(SIGNATURES_MAX),
        default=SIGNATURES,
        metavar="N,N",
        help="different abilities among the nodes, all serving the pair (default: 1,20)",
    )
    placement.add_argument(
        "--seconds",
        type=seconds,
        metavar="S",
        help=f"measuring time without setting up (default: {FULL_S:g}; --quick: {QUICK_S:g})",
    )
    add_live(benches)
    add_chaos(benches)
    add_rooms(benches)
    add_speech(benches)
    add_translation(benches)


def add_chaos(benches: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua bench chaos`."""
    chaos = benches.add_parser(
        "chaos", help="kill, freeze and cut off everything under load; check the outcomes"
    )
    how_much = chaos.add_mutually_exclusive_group()
    how_much.add_argument("--quick", action="store_true", help="one mixed run, in under 50 s")
    how_much.add_argument(
        "--long", action="store_true", help="everything in full size; about an hour"
    )
    how_much.add_argument(
        "--only",
        type=runs,
        metavar="NAME[:SIZE],...",
        help=f"these alone, in size quick, ci or full; names: {', '.join(scenarios.FULL)}",
    )
    chaos.add_argument(
        "--cluster", action="store_true", help="over 3 masters and 3 replicas, in several cells"
    )
    chaos.add_argument("--cells", type=int, metavar="N", help="spread the state over N cells")
    chaos.add_argument(
        "--planted",
        choices=PLANTED_FAULTS,
        metavar="FAULT",
        help=f"schedulers with this planted fault, to be found: {', '.join(PLANTED_FAULTS)}",
    )
    chaos.add_argument("--seed", type=int, default=1, help="other faults at other moments")
    chaos.add_argument("--keep", type=Path, metavar="DIR", help="keep histories and logs here")
    chaos.add_argument("--json", action="store_true", help="print JSON, one object a line")
    chaos.set_defaults(run=run_chaos)


def run_placement(args: argparse.Namespace) -> int:
    """Measure and print; a wrong answer ends it with exit code 1."""
    shapes = [
        FleetShape(nodes, signatures) for nodes in args.nodes for signatures in args.signatures
    ]
    if args.quick:
        plan = PlacementPlan(shapes, args.seconds or QUICK_S, QUICK_ROUNDS, QUICK_LIMIT_S)
    else:
        plan = PlacementPlan(shapes, args.seconds or FULL_S, FULL_ROUNDS)
    progress = ProgressLine(sys.stderr)
    # The fields of the JSON are those of the figures; the build stands beside them.
    progress.note(f"{this_interpreter()}")
    try:
        report = uvloop.run(measure(plan, progress.tell))
    finally:
        progress.end()
    print(json_lines(report) if args.json else page(report))
    return 0


def json_lines(report: PlacementReport) -> str:
    """Return one object per fleet, then the summary."""
    objects = [as_json_object(row) for row in report.rows]
    objects.append(as_json_object(report.summary))
    return "\n".join(msgspec.json.encode(found).decode() for found in objects)


def page(report: PlacementReport) -> str:
    """Return the tables for people."""
    ours, bare = report.commands
    names = ", ".join(f"{name} {count:g}" for name, count in ours.items())
    checked = sum(row.pairs_checked for row in report.rows)
    return "\n".join(
        [
            "Pairs of submit and settle per second, with 64 and 256 calls in flight; at 256",
            "also the ceiling (the same server commands without logic) and the part reached.",
            "",
            rates_table(report.rows),
            "",
            "Microseconds per call: script time by the server's own statistics, lower",
            "quartile (minimum), of the ceiling's scripts as well; CPU of this process.",
            "",
            costs_table(report.rows),
            "",
            "sigs: different abilities among the nodes, all of which serve the pair.",
            "aof: the append-only file with fsync every second, as `local` mode runs.",
            "",
            f"Server commands per pair: {sum(ours.values()):g}, ceiling {sum(bare.values()):g}",
            textwrap.fill(names, 80, initial_indent="  ", subsequent_indent="  "),
            *summary_lines(report.summary),
            f"{checked:,} pairs: each placed, settled and released in order; all slots are free.",
        ]
    )


def rates_table(rows: Sequence[FleetRow]) -> str:
    """Return pairs per second."""
    return render_table(
        ("nodes", "sigs", "aof", "at 64", "at 256", "ceiling", "ratio"),
        [
            (
                row.nodes,
                row.signatures,
                "yes" if row.aof else "no",
                round(row.pairs_per_s_64) if row.pairs_per_s_64 else None,
                round(row.pairs_per_s_256),
                round(row.ceiling_pairs_per_s_256),
                f"{row.ratio_to_ceiling:.2f}",
            )
            for row in rows
        ],
    )


def costs_table(rows: Sequence[FleetRow]) -> str:
    """Return microseconds per call."""
    return render_table(
        ("nodes", "sigs", "aof", "submit", "settle", "ceiling", "client", "in steps", "ceiling"),
        [
            (
                row.nodes,
                row.signatures,
                "yes" if row.aof else "no",
                f"{row.submit_server_us:.1f} ({row.submit_server_us_min:.1f})",
                f"{row.settle_server_us:.1f} ({row.settle_server_us_min:.1f})",
                f"{row.ceiling_submit_server_us:.1f} + {row.ceiling_settle_server_us:.1f}",
                f"{row.client_us_per_call:.1f}",
                f"{row.client_us_per_call_in_steps:.1f}",
                f"{row.ceiling_client_us_per_call:.1f}",
            )
            for row in rows
        ],
    )


def summary_lines(summary: PlacementSummary) -> list[str]:
    """Return the two ratios in words."""
    ratio, growth = summary.ratio_to_ceiling, summary.growth_10_to_10000
    return [
        "Part of the ceiling (1,000 nodes, 20 signatures, 256 in flight): "
        + (f"{ratio:.2f}" if ratio is not None else "not measured"),
        "Growth of server time from 10 to 10,000 nodes (20 signatures): "
        + (f"{growth:.2f}" if growth is not None else "not measured"),
    ]


def run_chaos(args: argparse.Namespace) -> int:
    """Play scenarios and print the findings; 1 if a run is void or violates a rule."""
    small = scenarios.QUICK if args.quick else scenarios.CHAOS
    selection = args.only or (scenarios.LONG if args.long else small)
    progress = ProgressLine(sys.stderr)
    try:
        played = uvloop.run(
            play_all(
                selection,
                progress.tell,
                seed=args.seed,
                keep=args.keep,
                change=partial(changed_scenario, args),
            )
        )
    finally:
        progress.end()
    print(chaos_json_lines(played) if args.json else chaos_page(played))
    return 1 if any(run.problems for run in played) else 0


def changed_scenario(args: argparse.Namespace, played: scenarios.Scenario) -> scenarios.Scenario:
    """Return a scenario as the command line changes it."""
    if args.cluster:
        played = scenarios.on_cluster(played)
    if args.cells is not None:
        played = replace(played, cells=args.cells)
    return replace(played, planted=args.planted or "")


def chaos_json_lines(played: Sequence[chaos_report.Run]) -> str:
    """Return one object per run, then the numbers to quote."""
    objects = [chaos_report.as_json_object(run) for run in played]
    objects.append(chaos_report.summary(played))
    return "\n".join(msgspec.json.encode(found).decode() for found in objects)


def chaos_page(played: Sequence[chaos_report.Run]) -> str:
    """Return the table and the notes for people."""
    return "\n".join(
        [
            "Real processes, real faults; histories of clients and nodes compared afterwards.",
            "",
            render_table(chaos_report.HEADS, [chaos_report.row(run) for run in played]),
            "",
            "stale: results of lost attempts that were rejected. adopted: inbox entries of dead",
            "instances applied by others. p99: of utterances in progress during a fault.",
            "missed, misdelivered: outcomes in rooms that a listener had to get and did not, and",
            "that were not meant for the listener that got them. no text: without translation.",
            *(line for run in played for line in chaos_report.notes(run)),
        ]
    )


def runs(text: str) -> scenarios.Selection:
    """Read `store,instances:full` into scenarios and their sizes."""
    found: list[tuple[str, scenarios.Size]] = []
    for part in text.split(","):
        name, _, size = part.partition(":")
        wanted = next((known for known in scenarios.SIZES if known == (size or "quick")), None)
        if name not in scenarios.FULL or wanted is None:
            raise argparse.ArgumentTypeError(f"not a scenario, or not a size of one: {part!r}")
        found.append((name, wanted))
    return tuple(found)


def numbers_to(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return what reads `10,1000` into sorted, distinct numbers from 1 to `most`."""

    def numbers(text: str) -> tuple[int, ...]:
        parts = text.split(",")
        if not all(part.isdecimal() and 1 <= int(part) <= most for part in parts):
            raise argparse.ArgumentTypeError(f"not numbers from 1 to {most}: {text!r}")
        return tuple(sorted({int(part) for part in parts}))

    return numbers


def seconds(text: str) -> float:
    """Read a duration that makes sense."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"not a number of seconds up to 3600: {text!r}")
    return value
