"""`lingua bench translation`: the quality and the speed of each route between two languages.

The tables are for people; `--json` prints one object per measurement and, on the last line, the
numbers to quote. `--write` keeps the scores in the table that the router decides by. Progress goes
to stderr.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from lingua_cli.table import render_table
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_bench.translation.report import TranslationReport
    from lingua_speech.routing.table import Score

HEADERS = ("direction", "set", "sentences", "route", "chrF", "BLEU", "p50", "p95")


def add_translation(benches: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua bench translation`."""
    parser = benches.add_parser(
        "translation", help="every route between two languages: chrF, BLEU, time"
    )
    add = parser.add_argument
    add(
        "--quick",
        action="store_true",
        help="the default node alone, in four directions (about a minute)",
    )
    add(
        "--directions",
        nargs="+",
        default=[],
        metavar="en>es",
        help="only these (default: all that there are sentences for)",
    )
    add("--json", action="store_true", help="print JSON, one object a line")
    add(
        "--write",
        nargs="?",
        const="",
        metavar="FILE",
        help="keep the scores of the routes (default: in the table of the package)",
    )
    parser.set_defaults(run=run_translation)


def run_translation(args: argparse.Namespace) -> int:
    """Measure, print, and write if asked to."""
    # Only here: the other benchmarks need no models.
    from lingua_bench.translation.run import (  # noqa: PLC0415
        TranslationBenchmarkPlan,
        measure_translation,
    )
    from lingua_speech.commands.models import progress_on  # noqa: PLC0415
    from lingua_speech.engines.options import direction  # noqa: PLC0415
    from lingua_speech.models import default_store  # noqa: PLC0415

    with progress_on(sys.stderr) as progress:
        default_store().install("bench", progress)
    if args.write is not None and args.quick:
        raise LinguaError("--write cannot be combined with --quick, which measures no routes")
    wanted = frozenset(direction(word) for word in args.directions)
    plan = TranslationBenchmarkPlan(is_quick=args.quick, directions=wanted)
    report = uvloop.run(measure_translation(plan, _tell))
    if args.write is not None:
        write(report.routes, Path(args.write) if args.write else None)
    if args.json:
        print("\n".join(msgspec.json.encode(row).decode() for row in report.objects()))
    else:
        print(page(report))
    return 0


def write(scores: Sequence[Score], path: Path | None) -> None:
    """Keep scores in a table; those of other routes stay."""
    from lingua_speech.routing import table  # noqa: PLC0415

    target = path or table.default_path()
    old = table.load(target) if target.is_file() else ()
    try:
        target.write_text(table.written(table.merged(old, scores)), "utf-8")
    except OSError as error:
        problem = f"cannot write {target}: {error.strerror}; use --write FILE"
        raise LinguaError(f"{problem}, and mt=router:scores=FILE to a node") from error
    print(f"{len(scores)} scores written to {target}", file=sys.stderr)


def page(report: TranslationReport) -> str:
    """Return the tables for people."""
    from lingua_bench.translation.bleu import SIGNATURES  # noqa: PLC0415

    order = sorted(report.routes, key=lambda one: (one.direction, one.set, -one.chrf))
    parts = [render_table(HEADERS, [_row(one) for one in order])] if order else []
    parts.append("the node\n" + render_table(HEADERS, [_row(one) for one in report.node]))
    signed = "; ".join(f"{name} {text}" for name, text in SIGNATURES.items())
    summary = report.summary()
    remarks = ", ".join(f"{name} {count}" for name, count in report.remarks.items()) or "none"
    parts.append(
        f"p50 {summary['p50_ms']} ms, p95 {summary['p95_ms']} ms a sentence; remarks: {remarks}\n"
        f"as sacreBLEU computes: {signed}"
    )
    return "\n\n".join(parts)


def _row(one: Score) -> tuple[str | int, ...]:
    return (
        one.direction,
        one.set,
        one.sentences,
        one.route,
        f"{one.chrf:.1f}",
        f"{one.bleu:.1f}",
        f"{one.p50_ms:.0f} ms",
        f"{one.p95_ms:.0f} ms",
    )


def _tell(what: str) -> None:
    print(f"  {what} …", file=sys.stderr, flush=True)
