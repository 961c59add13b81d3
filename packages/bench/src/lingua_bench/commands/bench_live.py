"""`lingua bench live`: its options, its tables for people and its JSON.

`live.py` measures. `--json` prints one object per row and, on the last line, the numbers to quote.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import uvloop

from lingua_bench.commands.progress import ProgressLine
from lingua_bench.live import FULL, GROWTH, QUICK, LivePlan, measure_live
from lingua_bench.live_report import OVERHEAD_MS_MAX, as_json_object
from lingua_cli.interpreter import this_interpreter
from lingua_cli.table import render_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_bench.live_report import ClosedRow, LiveReport, PacedRow

SESSIONS_MAX, WORKERS_MAX = 20_000, 64


def add_live(benches: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua bench live`."""
    live = benches.add_parser("live", help="sockets to sockets: rate, latency, cost, memory")
    live.add_argument(
        "--quick", action="store_true", help="less exact, in under 50 s if the machine is not busy"
    )
    live.add_argument("--json", action="store_true", help="print JSON, one object a line")
    live.add_argument(
        "--sessions",
        type=number_to(SESSIONS_MAX),
        metavar="N",
        help="speak with exactly so many sessions, instead of searching the most that fit",
    )
    live.add_argument(
        "--growth",
        action="store_true",
        help=f"also the cost of an utterance with {', '.join(f'{n:,}' for n in GROWTH)} sessions",
    )
    live.add_argument(
        "--workers",
        type=number_to(WORKERS_MAX),
        default=1,
        metavar="N",
        help="processes of the scheduler, as `lingua serve --workers` (default: 1)",
    )
    live.add_argument(
        "--streaming",
        action="store_true",
        help="also the cost of a frame that a node hears while somebody speaks",
    )
    live.set_defaults(run=run_live)


def plan_of(args: argparse.Namespace) -> LivePlan:
    """Return what the command line asks for."""
    plan = replace(
        QUICK if args.quick else FULL,
        workers=args.workers,
        growth=GROWTH if args.growth else (),
        streaming=args.streaming,
    )
    if args.sessions is None:
        return plan
    fixed = args.sessions
    return replace(
        plan, paced_first=fixed, paced_least=fixed, paced_most=fixed, paced_chances=1, paced_tries=1
    )


def number_to(most: int) -> Callable[[str], int]:
    """Return what reads a whole number from 1 to `most`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"not a number from 1 to {most}: {text!r}")
        return int(text)

    return number


def run_live(args: argparse.Namespace) -> int:
    """Measure the live path and print; exit code 1 if an utterance was lost or out of order."""
    progress = ProgressLine(sys.stderr)
    try:
        report = uvloop.run(measure_live(plan_of(args), progress.tell))
    finally:
        progress.end()
    print(live_json_lines(report) if args.json else live_page(report))
    summary = report.summary
    return 1 if summary.lost or summary.duplicates or summary.inversions else 0


def live_json_lines(report: LiveReport) -> str:
    """Return one object per row, one of further numbers, then the summary."""
    objects = [as_json_object(row) for row in report.closed]
    objects += [as_json_object(row) for row in report.growth]
    objects += [as_json_object(row) for row in report.paced]
    objects.append(
        {
            "relay_ratio": round(report.relay_ratio, 2),
            "rss_kb_per_speaking_session": round(report.rss_kb_per_speaking_session, 1),
            "missing": report.missing,
            "errors": report.errors,
            "growth_of_sessions": rounded(report.growth_of_sessions),
            "interpreter": f"{this_interpreter()}",
        }
    )
    objects.append(as_json_object(report.summary))
    return "\n".join(msgspec.json.encode(found).decode() for found in objects)


def live_page(report: LiveReport) -> str:
    """Return the tables for people."""
    return "\n".join(
        [
            "Whole utterances of 2 KB through scheduler, store and a node that answers at once:",
            "rate, round trip, and CPU of each process per utterance in microseconds; all: of the",
            "scheduler, the store, and the children in which that rewrites its file.",
            "",
            cost_table(report.closed),
            "",
            f"The scheduler uses {report.relay_ratio:.1f} times the CPU of a bare relay that only",
            "passes the same messages on (client, relay, node and back).",
            "",
            "Sessions that speak in real time, 10 frames a second, an utterance every 3 s: what",
            "the control plane adds (end of speech to the node, its result to the client).",
            "",
            paced_table(report),
            "",
            "timeline: p99 by the scheduler's own marks, which counts; p50, p99: upper bounds",
            "by the clocks of client and node. late: how late the load was with its own frames;",
            "where it was the limit, the row does not count.",
            "",
            *growth_lines(report),
            *live_summary_lines(report),
        ]
    )


def growth_lines(report: LiveReport) -> list[str]:
    """Return how the cost grows with the number of open sessions, if that was measured."""
    growth = report.growth_of_sessions
    if growth is None:
        return []
    return [
        "256 utterances in progress, in turn over more and more open sessions:",
        "",
        cost_table(report.growth),
        "",
        f"From the fewest to the most sessions an utterance costs {growth:.2f} times.",
        "",
    ]


def live_summary_lines(report: LiveReport) -> list[str]:
    """Return the numbers to quote in words."""
    summary = report.summary
    idle_kb, speaking_kb = summary.rss_kb_per_session, report.rss_kb_per_speaking_session
    utterance_us, frame_us = summary.cpu_us_per_utterance, summary.cpu_us_per_frame
    store_us, letters = summary.cpu_us_store, summary.letters_per_outcome
    checks = f"Lost {summary.lost}, twice {summary.duplicates}, out of order {summary.inversions}"
    over = sum(row.errors for row in report.paced if not row.is_within)
    return [
        paced_sentence(report),
        f"Scheduler CPU per utterance {utterance_us:.0f} us, per audio frame {frame_us:.1f} us",
        *streamed_lines(report),
        f"CPU of all processes {summary.cpu_us_all:.0f} us, the store alone {store_us:.0f} us",
        f"Workers {summary.workers}; messages between instances per outcome {letters:.2f}",
        f"Memory per idle session {idle_kb:.1f} KB, per speaking one {speaking_kb:.0f} KB",
        f"{checks}; without translation {report.missing}; errors {report.errors or 'none'}"
        + (f", {over} of them in tries that do not count" if over else ""),
        f"{this_interpreter()}",
    ]


def streamed_lines(report: LiveReport) -> list[str]:
    """Return what a frame costs that a node hears at once, if that was measured."""
    streamed_us, ratio = report.summary.frame_us_streamed, report.summary.frame_streamed_ratio
    if streamed_us is None or ratio is None:
        return []
    cost = f"{streamed_us:.1f} us, {ratio:.2f} times a plain one"
    return [f"Per audio frame that a node hears, with partial texts, {cost}"]


def paced_sentence(report: LiveReport) -> str:
    """Return how many sessions fitted, or that this machine could not show any number."""
    summary, limit_ms = report.summary, OVERHEAD_MS_MAX
    if summary.paced_sessions is not None:
        return f"Most sessions with p99 within {limit_ms:g} ms: {summary.paced_sessions:,}"
    fewest = min(report.paced, key=lambda row: row.sessions)
    why = (
        "the load itself was late" if fewest.load_limited else f"p99 {fewest.timeline_p99_ms:g} ms"
    )
    return (
        f"No result for sessions with p99 within {limit_ms:g} ms: with {fewest.sessions:,}, the "
        f"fewest tried, {why}. Is the machine busy?"
    )


def cost_table(rows: Sequence[ClosedRow]) -> str:
    """Return rates, round trips and CPU."""
    return render_table(
        ("case", "per s", "p50 ms", "p99 ms", "scheduler", "store", "all", "nodes", "clients"),
        [
            (
                row.case,
                round(row.per_s),
                f"{row.p50_ms:.2f}",
                f"{row.p99_ms:.2f}",
                round(row.scheduler_cpu_us),
                round(row.store_cpu_us),
                round(row.all_cpu_us),
                round(row.nodes_cpu_us),
                round(row.clients_cpu_us),
            )
            for row in rows
        ],
    )


def paced_table(report: LiveReport) -> str:
    """Return the paced case."""
    return render_table(
        ("sessions", "utterances", "p50 ms", "p99 ms", "timeline", "scheduler", "late", ""),
        [
            (
                row.sessions,
                row.utterances,
                f"{row.p50_ms:.1f}",
                f"{row.p99_ms:.1f}",
                f"{row.timeline_p99_ms:.0f}",
                f"{row.scheduler_cpu_percent:.0f}%",
                f"{row.late_p99_ms:.1f}",
                verdict(row),
            )
            for row in report.paced
        ],
    )


def verdict(row: PacedRow) -> str:
    """Return why a row does not count, or nothing."""
    if row.load_limited:
        return "load limited"
    if row.errors:
        return f"{row.errors} errors"
    return "" if row.is_within else "over"


def rounded(value: float | None) -> float | None:
    """Return a ratio with the precision of the measurement."""
    return None if value is None else round(value, 3)
