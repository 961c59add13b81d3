"""`lingua explain --from en --to es`: where a job would go in a running deployment, and why.

Reads the store that the settings name and changes nothing in it: every node of every cell is shown
with the filter that removes it or with its load. In `local` mode that store is the private server
of a scheduler that runs with the same `data_dir`; none is started for this. With `--url` a running
instance is asked instead, and answers the same. The decision itself is `jobs/placement.py`.
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

from lingua_scheduler.cli.ask import add_options, scheduler_of
from lingua_scheduler.cli.spoken import language_argument, source_argument
from lingua_scheduler.cli.table import render_table
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
    from lingua_scheduler.jobs.placement import Wish
    from lingua_scheduler.state.script import Connection


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua explain`."""
    parser = subparsers.add_parser("explain", help="say where a job would go now, and why")
    parser.add_argument(
        "--from", dest="source", type=source_argument, required=True, metavar="LANG",
        help="the language spoken, or `auto`",
    )  # fmt: skip
    parser.add_argument(
        "--to", dest="target", type=language_argument, required=True, metavar="LANG",
        help="the language wanted",
    )  # fmt: skip
    parser.add_argument(
        "--services", type=services_wanted, default=DEFAULT_SERVICES, metavar="NAME,NAME",
        help=f"of {', '.join(SERVICES)} (default: asr,nmt,tts)",
    )  # fmt: skip
    parser.add_argument("--tenant", default="", help="on whose behalf (default: nobody's)")
    parser.add_argument("--prefer", default="", metavar="NODE", help="the node it should go to")
    add_options(parser, "a running scheduler to ask (default: its store is read)")
    parser.set_defaults(run=run_explain)


def run_explain(args: argparse.Namespace) -> int:
    """Print the verdict of every cell; the exit code does not depend on it."""
    question = Question(
        source=args.source, target=args.target, services=args.services, tenant=args.tenant,
        prefer=args.prefer,
    )  # fmt: skip
    answer = ask_instance(args, question) if args.url else ask_store(args, question)
    print(msgspec.json.encode(answer).decode() if args.json else page(answer, args.prefer))
    return 0


def ask_store(args: argparse.Namespace, question: Question) -> Explanation:
    """Decide here, with what the store knows."""
    settings = load_settings(args.config, os.environ)
    return asyncio.run(read_store(settings, question.wish(settings)))


def ask_instance(args: argparse.Namespace, question: Question) -> Explanation:
    """Let a running instance decide."""
    asked = {"from": question.source, "to": question.target, "tenant": question.tenant}
    return scheduler_of(args).get(
        "/api/v1/explain", Explanation, **asked, services=",".join(question.services),
        prefer=question.prefer,
    )  # fmt: skip


async def read_store(settings: Settings, wish: Wish) -> Explanation:
    """Read every cell and decide in each."""
    cells = Cells(settings.redis.key_prefix, settings.cells).all
    async with running_store(settings) as connection:
        return await explain_in(Store(connection, FleetPolicy.of(settings)), cells, wish)


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


def page(answer: Explanation, preferred: str) -> str:
    """Return what a person reads: a verdict and a table per cell that has nodes."""
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
        parts.append(f"the preferred node {preferred} is not known")
    return "\n\n".join(parts)


def verdict_line(cell: ExplainedCell) -> str:
    """Return a cell's verdict in words."""
    verdict = cell.verdict
    if verdict.node:
        return f"{cell.cell}: would go to {verdict.node}"
    counts = Counter(line.removed_by for line in cell.nodes)
    removed = ", ".join(f"{count} {label}" for label, count in counts.most_common())
    return f"{cell.cell}: nobody ({verdict.code}, {verdict.label}); removed: {removed}"


def node_table(cell: ExplainedCell) -> str:
    """Return one row per node: the chosen one, those that could, those that could not."""
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
    """Read a list of services from the command line."""
    try:
        return service_names(text)
    except InvalidDemand as error:
        raise argparse.ArgumentTypeError(str(error)) from error
