"""`lingua explain --from en --to es`: where a job would be placed, and why.

It reads the store of the settings and changes nothing: every node of every cell is shown with its
load, or with the filter that removes it. In `local` mode the store is the private server of a
running scheduler with the same `data_dir`; no server is started. With `--url`, a running instance
is asked instead and gives the same result. `jobs/placement.py` makes the decision.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from lingua_cli.language_arguments import language_argument, source_argument
from lingua_cli.table import render_table
from lingua_scheduler.commands.scheduler_client import add_options, scheduler_of
from lingua_scheduler.config import load_settings
from lingua_scheduler.errors import InvalidDemand, StoreUnavailable
from lingua_scheduler.jobs.explanation import (
    DEFAULT_SERVICES,
    Explanation,
    Question,
    explain_in,
    service_names,
)
from lingua_scheduler.jobs.requirement import SERVICES, Demand
from lingua_scheduler.state.embedded import SOCKET_NAME, SOCKET_NOTE_NAME
from lingua_scheduler.state.keys import Cells
from lingua_scheduler.state.link import Address
from lingua_scheduler.state.opening import connect, link_options, store_directory
from lingua_scheduler.state.policy import FleetPolicy
from lingua_scheduler.state.single import SingleConnection
from lingua_scheduler.state.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lingua_scheduler.config import Settings
    from lingua_scheduler.jobs.explanation import ExplainedCell, ExplainedNode
    from lingua_scheduler.jobs.placement import PlacementRequest
    from lingua_scheduler.state.connection import Connection


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua explain`."""
    parser = subparsers.add_parser("explain", help="show where a job would be placed now, and why")
    parser.add_argument(
        "--from",
        dest="source",
        type=source_argument,
        required=True,
        metavar="LANG",
        help="the language spoken, or `auto`",
    )
    parser.add_argument(
        "--to",
        dest="target",
        type=language_argument,
        required=True,
        metavar="LANG",
        help="the language wanted",
    )
    parser.add_argument(
        "--services",
        type=services_wanted,
        default=DEFAULT_SERVICES,
        metavar="NAME,NAME",
        help=f"of {', '.join(SERVICES)} (default: asr,nmt,tts)",
    )
    parser.add_argument("--tenant", default="", help="tenant of the job (default: none)")
    parser.add_argument("--prefer", default="", metavar="NODE", help="the preferred node")
    add_options(parser, "URL of a running scheduler to ask (default: read its store)")
    parser.set_defaults(run=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    """Print the decision of every cell; the exit code does not depend on it."""
    question = Question(
        source=args.source,
        target=args.target,
        services=args.services,
        tenant=args.tenant,
        prefer=args.prefer,
    )
    answer = ask_instance(args, question) if args.url else ask_store(args, question)
    print(msgspec.json.encode(answer).decode() if args.json else page(answer, args.prefer))
    return 0


def ask_store(args: argparse.Namespace, question: Question) -> Explanation:
    """Make the decision in this process, from the store."""
    settings = load_settings(args.config, os.environ)
    return asyncio.run(read_store(settings, question.wish(settings)))


def ask_instance(args: argparse.Namespace, question: Question) -> Explanation:
    """Let a running instance make the decision."""
    asked = {"from": question.source, "to": question.target, "tenant": question.tenant}
    return scheduler_of(args).get(
        "/api/v1/explain",
        Explanation,
        **asked,
        services=",".join(question.services),
        prefer=question.prefer,
    )


async def read_store(settings: Settings, wish: PlacementRequest) -> Explanation:
    """Read every cell and make the decision of each."""
    cells = Cells(settings.redis.key_prefix, settings.cells).all
    async with running_store(settings) as connection:
        return await explain_in(Store(connection, FleetPolicy.of(settings)), cells, wish)


@asynccontextmanager
async def running_store(settings: Settings) -> AsyncIterator[Connection]:
    """Connect to the store of a running deployment; starts no server."""
    is_local = settings.deployment_mode == "local"
    connection = await (connect_local(settings) if is_local else connect(settings))
    try:
        yield connection
    finally:
        await connection.close()


async def connect_local(settings: Settings) -> Connection:
    """Connect to the private server of a scheduler with this `data_dir`."""
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
    """Return the socket of the private server of a data directory, if one runs."""
    try:
        return Path((store_dir / SOCKET_NOTE_NAME).read_text()) / SOCKET_NAME
    except FileNotFoundError:
        return store_dir / SOCKET_NAME


def page(answer: Explanation, preferred: str) -> str:
    """Return the explanation as text: a decision and a table for each cell that has nodes."""
    wanted = Demand.parse(answer.demand)
    whose = f" for {wanted.tenant}" if wanted.tenant else ""
    pinned = f", only on nodes with {', '.join(wanted.labels)}" if wanted.labels else ""
    parts = [f"{', '.join(wanted.directions)} with {', '.join(wanted.services)}{whose}{pinned}"]
    parts += [f"{verdict_line(cell)}\n{node_table(cell)}" for cell in answer.cells if cell.nodes]
    empty = [cell.cell for cell in answer.cells if not cell.nodes]
    if empty:
        parts.append(f"no nodes in {', '.join(empty)}")
    known = {line.node for cell in answer.cells for line in cell.nodes}
    if preferred and preferred not in known:
        parts.append(f"the preferred node {preferred} is unknown")
    return "\n\n".join(parts)


def verdict_line(cell: ExplainedCell) -> str:
    """Return a cell's decision in words."""
    verdict = cell.verdict
    if verdict.node:
        return f"{cell.cell}: would go to {verdict.node}"
    counts = Counter(line.removed_by for line in cell.nodes)
    removed = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    return f"{cell.cell}: no node ({verdict.code}, {verdict.label}); removed: {removed}"


def node_table(cell: ExplainedCell) -> str:
    """Return one row per node: the chosen one, then other candidates, then removed nodes."""
    lines = sorted(cell.nodes, key=lambda line: (not line.chosen, bool(line.removed_by)))
    return render_table(
        ("node", "pool", "taken", "slots", "result"),
        [
            (
                line.node,
                line.pool,
                line.taken,
                line.slots,
                "chosen" if line.chosen else why_not(line) or "could take it",
            )
            for line in lines
        ],
    )


def why_not(line: ExplainedNode) -> str:
    """Return the filter that removed a node, with the labels it lacks."""
    return f"{line.removed_by}: lacks {', '.join(line.lacks)}" if line.lacks else line.removed_by


def services_wanted(text: str) -> tuple[str, ...]:
    """Parse a list of services from the command line."""
    try:
        return service_names(text)
    except InvalidDemand as error:
        raise argparse.ArgumentTypeError(str(error)) from error
