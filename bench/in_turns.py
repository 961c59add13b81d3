r"""Two or more versions of the scheduler under the same load, at the same time, in turns.

The machine drifts by 15 % and more within minutes, so that two runs one after the other compare the
machine's moods. Here every version runs with a store, nodes and clients of its own; in each turn
the load is given to one after the other, for a second or two. Medians of the turns are printed, and
the median of each turn's ratio to the first version. Run it from the repository's folder:

    .venv/bin/python bench/in_turns.py before=../before now=. --turns 5

A version is a folder with this repository, at any commit whose `lingua serve` the present load can
use; `two=.*2` runs it with two workers. Clients and interpreter are the present ones for all
versions. The nodes are, too, unless `--own-nodes` is given: then each version has its own, which
may send more messages.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from lingua_bench.live import SINGLE_SESSIONS, WIDE, loop, speech_without_end
from lingua_bench.live_orders import SpreadLoop
from lingua_bench.live_processes import running_system

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lingua_bench.live_orders import Order, OrderResult
    from lingua_bench.live_processes import LoadProcess

# What the server of a version needs of its own, and what its nodes need.
SERVER_PACKAGES = ("scheduler", "wire", "cli", "web")
NODE_PACKAGES = ("bench", "node", "client", "translate", "speech")
EXTRA_S = 60.0
COLUMNS = ("scheduler", "store", "service", "load", "per s")


def sources_of(folder: str, names: Sequence[str] = SERVER_PACKAGES) -> str:
    """Return the PYTHONPATH with which these packages of a version run."""
    packages = Path(folder).resolve() / "packages"
    return os.pathsep.join(str(packages / name / "src") for name in names)


def row_of(found: OrderResult) -> tuple[float, ...]:
    """Return microseconds for an utterance, or a frame: of each process; and how many a second."""
    units = found.utterances or found.frames
    store_s = found.store_cpu_s + found.rewrites_cpu_s
    load_s = found.nodes_cpu_s + found.clients_cpu_s
    spent = (found.scheduler_cpu_s, store_s, found.scheduler_cpu_s + store_s, load_s)
    return (*(each / units * 1e6 for each in spent), units / found.seconds)


async def measure(
    systems: Mapping[str, LoadProcess], order: Order, turns: int
) -> dict[str, list[tuple[float, ...]]]:
    """Give every version the order in each turn."""
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in systems}
    for _ in range(turns):
        for name, load in systems.items():
            found = await load.follow(order, EXTRA_S)
            rows[name].append(row_of(found))
            if found.lost or found.duplicates or found.inversions or found.errors:
                sys.exit(f"{name}: {found}")
    return rows


def show(title: str, rows: Mapping[str, list[tuple[float, ...]]]) -> None:
    """Print medians, and ratios to the first version."""
    sys.stdout.write(f"{title}: µs\n{'':14}" + "".join(f"{word:>11}" for word in COLUMNS) + "\n")
    first = next(iter(rows.values()))
    for name, found in rows.items():
        cells = [f"{median(column):11.1f}" for column in zip(*found, strict=True)]
        sys.stdout.write(f"{name:14}{''.join(cells)}\n")
        if found is not first:
            pairs = [
                [ours / theirs for ours, theirs in zip(one, other, strict=True)]
                for one, other in zip(found, first, strict=True)
            ]
            ratios = [f"{median(column):11.2f}" for column in zip(*pairs, strict=True)]
            sys.stdout.write(f"{'  ratio':14}{''.join(ratios)}\n")
    sys.stdout.flush()


async def main() -> None:
    """Run all versions and show what they cost."""
    parser = argparse.ArgumentParser(description="Versions of the scheduler, measured in turns.")
    parser.add_argument("versions", nargs="+", metavar="NAME=FOLDER[*WORKERS]")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one turn (default 1.5)")
    parser.add_argument("--only", default="256,1,frames", help="which loads (default 256,1,frames)")
    parser.add_argument("--own-nodes", action="store_true", help="each version has its own nodes")
    asked = parser.parse_args()
    loads: dict[str, tuple[str, Order]] = {
        "256": ("256 in flight, per utterance", loop(WIDE, asked.seconds)),
        "1": (
            "1 in flight, per utterance",
            SpreadLoop(sessions=SINGLE_SESSIONS, in_flight=1, seconds=asked.seconds),
        ),
        "frames": ("per frame", speech_without_end(asked.seconds)),
    }
    async with AsyncExitStack() as stack:
        systems = {}
        for word in asked.versions:
            name, _, folder = word.partition("=")
            folder, _, workers = folder.partition("*")
            nodes = sources_of(folder, SERVER_PACKAGES + NODE_PACKAGES) if asked.own_nodes else ""
            systems[name] = await stack.enter_async_context(
                running_system(int(workers or 1), sources=sources_of(folder), node_sources=nodes)
            )
        for key in asked.only.split(","):
            title, order = loads[key]
            show(title, await measure(systems, order, asked.turns))


if __name__ == "__main__":
    asyncio.run(main())
