"""`lingua cluster`: every instance and every cell of a deployment, read from its store.

It also works when no instance is alive. `--watch` repeats it every two seconds until interrupted.
"""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from typing import TYPE_CHECKING

import msgspec

from lingua_cli.table import render_table
from lingua_scheduler.commands.explain import running_store
from lingua_scheduler.commands.scheduler_client import age_text
from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import StoreUnavailable
from lingua_scheduler.maintenance.overview import overview

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_scheduler.config import Settings
    from lingua_scheduler.maintenance.overview import CellView, InstanceView, Overview

WATCH_S = 2.0
WIDTH = 80
CLEAR = "\033[H\033[2J"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua cluster`."""
    parser = subparsers.add_parser(
        "cluster", help="show all instances and cells, as recorded in the store"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--watch", action="store_true", help="repeat every two seconds")
    parser.set_defaults(run=run_cluster)


def run_cluster(args: argparse.Namespace) -> int:
    """Print the deployment; the exit code does not depend on its state."""
    settings = load_settings(args.config, os.environ)
    asyncio.run(watch(settings, args) if args.watch else once(settings, args))
    return 0


async def once(settings: Settings, args: argparse.Namespace) -> None:
    """Print the deployment once."""
    async with running_store(settings) as connection:
        print(text_of(await overview(connection, settings), as_json=args.json))


async def watch(settings: Settings, args: argparse.Namespace) -> None:
    """Print the deployment until interrupted; wait if the store becomes unavailable."""
    async with running_store(settings) as connection:
        while True:
            try:
                text = text_of(await overview(connection, settings), as_json=args.json)
            except StoreUnavailable as error:
                text = (
                    msgspec.json.encode({"error": str(error)}).decode() if args.json else str(error)
                )
            is_screen = sys.stdout.isatty() and not args.json
            print(f"{CLEAR}{text}" if is_screen else text, flush=True)
            await asyncio.sleep(WATCH_S)


def text_of(seen: Overview, *, as_json: bool) -> str:
    """Return the deployment as JSON or as text."""
    return msgspec.json.encode(seen).decode() if as_json else page(seen)


def page(seen: Overview) -> str:
    """Return the summary and the tables."""
    parts = [textwrap.fill(seen.sentence, WIDTH, break_on_hyphens=False)]
    if seen.instances:
        parts += [work_table(seen.instances), process_table(seen.instances)]
    parts.append(cell_table(seen.cells))
    if seen.is_cut:
        parts.append("there are more sessions than the number shown")
    return "\n\n".join(part for part in parts if part)


def work_table(instances: Sequence[InstanceView]) -> str:
    """Return the load and the inbox of each instance."""
    headers = (
        "instance",
        "state",
        "beat",
        "sessions",
        "nodes",
        "inbox",
        "pending",
        "dlq",
    )
    rows = [
        (
            view.instance,
            view.state,
            ago(view.beat_age_ms),
            view.sessions,
            view.nodes,
            view.inbox,
            view.pending,
            view.dead_letters,
        )
        for view in instances
    ]
    return render_table(headers, rows)


def process_table(instances: Sequence[InstanceView]) -> str:
    """Return the process of each instance; instances without a record have none."""
    rows = [
        (
            view.instance,
            age_text(view.uptime_ms),
            view.version or "-",
            view.host or "-",
            view.pid,
            view.url or "-",
        )
        for view in instances
        if view.uptime_ms >= 0
    ]
    return render_table(("instance", "up", "version", "host", "pid", "url"), rows) if rows else ""


def cell_table(cells: Sequence[CellView]) -> str:
    """Return the contents of each cell."""
    return render_table(
        ("cell", "nodes", "waiting jobs", "timers", "due", "overdue"),
        [
            (cell.cell, cell.nodes, cell.waiting, cell.timers, cell.due, cell.overdue)
            for cell in cells
        ],
    )


def ago(age_ms: int) -> str:
    """Return the age of a heartbeat; short ages with tenths of seconds."""
    if age_ms < 0:
        return "-"
    return f"{age_ms / 1000:.1f}s" if age_ms < 10_000 else age_text(age_ms)
