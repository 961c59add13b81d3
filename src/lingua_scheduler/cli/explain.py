"""`lingua explain --from en --to es`: where a job would go in a running deployment, and why.

Reads the store that the settings name, changes nothing in it, and asks no instance: every node of
every cell is shown with the filter that removes it or with its load. In `local` mode that store is
the private server of a scheduler that runs with the same `data_dir`; none is started for this.
The decision itself is `jobs/placement.py`, the twin of what the scripts do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from lingua_scheduler.cli.table import render_table
from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import InvalidLanguage, StoreUnavailable
from lingua_scheduler.jobs.fleet import read_fleet
from lingua_scheduler.jobs.placement import Wish, explain
from lingua_scheduler.jobs.requirement import SERVICES, Languages, Pipeline, demand
from lingua_scheduler.languages import AUTO, language
from lingua_scheduler.state.embedded import SOCKET_NAME, SOCKET_NOTE_NAME
from lingua_scheduler.state.keys import Cells, identifier
from lingua_scheduler.state.link import Address
from lingua_scheduler.state.opening import connect, link_options, store_directory
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.placement import Explained, Fleet, Verdict
    from lingua_scheduler.jobs.requirement import Demand
    from lingua_scheduler.state.script import Connection


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua explain`."""
    parser = subparsers.add_parser("explain", help="say where a job would go now, and why")
    parser.add_argument(
        "--from", dest="source", type=source_language, required=True, metavar="LANG",
        help="the language spoken, or `auto`",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="target", type=target_language, required=True, metavar="LANG",
        help="the language wanted",
    )  # fmt: skip
    parser.add_argument(
        "--services", type=service_names, default=("asr", "nmt", "tts"), metavar="NAME,NAME",
        help=f"of {', '.join(SERVICES)} (default: asr,nmt,tts)",
    )  # fmt: skip
    parser.add_argument("--tenant", default="", help="on whose behalf (default: nobody's)")
    parser.add_argument("--prefer", default="", metavar="NODE", help="the node it should go to")
    parser.add_argument("--json", action="store_true", help="print JSON rather than tables")
    parser.set_defaults(run=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    """Print the verdict of every cell; the exit code does not depend on it."""
    settings = load_settings(args.config, os.environ)
    for kind, value in (("tenant", args.tenant), ("node", args.prefer)):
        if value:
            identifier(kind, value)
    wish = Wish(wanted_by(args, settings), preferred=args.prefer)
    views = asyncio.run(ask(settings, wish))
    print(as_json(wish, views) if args.json else page(wish, views))
    return 0


@dataclass(frozen=True, slots=True)
class CellView:
    """What one cell would do."""

    cell: str
    fleet: Fleet
    verdict: Verdict
    lines: Sequence[Explained]


def wanted_by(args: argparse.Namespace, settings: Settings) -> Demand:
    """Return what such a job asks of a node, with the pools its tenant is pinned to."""
    pipeline = Pipeline(**{f"use_{name}": name in args.services for name in SERVICES})
    pools = next((tenant.pools for tenant in settings.tenants if tenant.id == args.tenant), ())
    languages = Languages(args.source, args.target)
    return demand(languages, pipeline, tenant=args.tenant, pools=pools)


async def ask(settings: Settings, wish: Wish) -> list[CellView]:
    """Read every cell and decide in each."""
    cells = Cells(settings.redis.key_prefix, settings.cells).all
    async with running_store(settings) as connection:
        store = Store(connection, FleetPolicy.of(settings))
        fleets = await asyncio.gather(*(read_fleet(store, cell) for cell in cells))
    return [
        CellView(cell.name, fleet, *explain(fleet, wish))
        for cell, fleet in zip(cells, fleets, strict=True)
    ]


@asynccontextmanager
async def running_store(settings: Settings) -> AsyncIterator[Connection]:
    """Connect to the store of a deployment that runs; starts nothing."""
    is_local = settings.deployment_mode == "local"
    connection = await (connect_local(settings) if is_local else connect(settings))
    try:
        yield connection
    finally:
        await connection.close()


async def connect_local(settings: Settings) -> Connection:
    """Connect to the private server that a scheduler with this `data_dir` keeps."""
    address = Address.unix(str(socket_in(store_directory(settings))))
    try:
        return await SingleConnection.open(address, link_options(settings, urlsplit("")))
    except StoreUnavailable as error:
        hint = (
            "no scheduler runs in local mode with this data_dir; start one, "
            "or set deployment_mode to cross_instance"
        )
        raise StoreUnavailable(error.where, hint) from error


def socket_in(store_dir: Path) -> Path:
    """Return where the private server of a data directory listens, if one runs."""
    try:
        return Path((store_dir / SOCKET_NOTE_NAME).read_text()) / SOCKET_NAME
    except FileNotFoundError:
        return store_dir / SOCKET_NAME


def page(wish: Wish, views: Sequence[CellView]) -> str:
    """Return what a person reads: a verdict and a table per cell that has nodes."""
    wanted = wish.demand
    whose = f" for {wanted.tenant}" if wanted.tenant else ""
    parts = [f"{', '.join(wanted.directions)} with {', '.join(wanted.services)}{whose}"]
    parts += [f"{verdict_line(view)}\n{node_table(view)}" for view in views if view.fleet.nodes]
    empty = [view.cell for view in views if not view.fleet.nodes]
    if empty:
        parts.append(f"no nodes in {', '.join(empty)}")
    if wish.preferred and not any(wish.preferred in view.fleet.nodes for view in views):
        parts.append(f"the preferred node {wish.preferred} is not known")
    return "\n\n".join(parts)


def verdict_line(view: CellView) -> str:
    """Return a cell's verdict in words."""
    if view.verdict.node:
        return f"{view.cell}: would go to {view.verdict.node}"
    counts = Counter(line.removed_by for line in view.lines)
    removed = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    return f"{view.cell}: nobody ({view.verdict.code}, {view.verdict.label}); removed: {removed}"


def node_table(view: CellView) -> str:
    """Return one row per node: the chosen one, those that could, those that could not."""
    lines = sorted(view.lines, key=lambda line: (not line.chosen, bool(line.removed_by)))
    return render_table(
        ("node", "pool", "taken", "slots", "result"),
        [
            (
                line.node,
                line.pool,
                *slots_of(view, line),
                "chosen" if line.chosen else line.removed_by or "could take it",
            )
            for line in lines
        ],
    )


def slots_of(view: CellView, line: Explained) -> tuple[int, int]:
    """Return how many slots of a node are taken, and how many it has."""
    node = view.fleet.nodes[line.node]
    return node.leased + node.extra, node.max_jobs


def as_json(wish: Wish, views: Sequence[CellView]) -> str:
    """Return the same for programs, as one object."""
    cells = [
        {
            "cell": view.cell,
            "verdict": view.verdict,
            "nodes": [json_node(view, line) for line in view.lines],
        }
        for view in views
    ]
    return msgspec.json.encode({"demand": wish.demand.text, "cells": cells}).decode()


def json_node(view: CellView, line: Explained) -> dict[str, str | int | bool]:
    """Return one node of the JSON answer."""
    taken, slots = slots_of(view, line)
    return {
        "node": line.node,
        "pool": line.pool,
        "taken": taken,
        "slots": slots,
        "removed_by": line.removed_by,
        "chosen": line.chosen,
    }


def source_language(text: str) -> str:
    """Read the spoken language from the command line."""
    return text if text == AUTO else target_language(text)


def target_language(text: str) -> str:
    """Read a language from the command line."""
    try:
        return language(text)
    except InvalidLanguage as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def service_names(text: str) -> tuple[str, ...]:
    """Read a list of services from the command line."""
    names = tuple(text.split(","))
    unknown = sorted(set(names) - set(SERVICES))
    if unknown:
        raise argparse.ArgumentTypeError(f"no such service: {', '.join(unknown)}")
    return names
