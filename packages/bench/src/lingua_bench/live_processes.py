"""The processes of `lingua bench live`: a real `lingua serve`, nodes, clients, the bare relay.

Each is a process of its own, so that the usage of one is not counted for another. The scheduler
runs in `local` mode on a temporary directory. All end with the block that started them.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec

from lingua_bench.live_nodes import READY
from lingua_bench.live_orders import Order, OrderResult, Watched, decode_found, encode
from lingua_bench.live_speaker import LoadFailed
from lingua_bench.live_usage import descendants_of

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Mapping

START_S: Final = 20.0
END_S: Final = 5.0
WORKERS_POLL_S: Final = 0.05
# Nodes for each worker, so that every worker has some of its own.
NODES, SLOTS = 4, 1024
STORE_NAMES: Final = ("valkey-server", "redis-server")
# What differs from an ordinary `lingua serve`: everything runs on one machine, whose CPU is meant
# to be busy; nodes would otherwise report that and get no work.
SETTINGS: Final = {"LINGUA_NODES__RESOURCE_PERCENT_MAX": "100"}


@dataclass(slots=True)
class LoadProcess:
    """The load process, which follows orders."""

    process: Process
    # Where the scheduler that it loads shows its metrics.
    metrics_url: str

    async def follow(self, order: Order, limit_s: float) -> OrderResult:
        """Give an order and return its result."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        if self.process.returncode is not None:
            raise LoadFailed(f"the load process ended before: {order}")
        stdin.write(encode(order) + b"\n")
        try:
            line = await asyncio.wait_for(stdout.readline(), limit_s)
        except TimeoutError:
            raise LoadFailed(f"the load process did not finish in time: {order}") from None
        if not line:
            raise LoadFailed(f"the load process ended (its reason is above): {order}")
        return decode_found(line)


@asynccontextmanager
async def running_system(
    workers: int = 1, *, sources: str = "", node_sources: str = ""
) -> AsyncIterator[LoadProcess]:
    """Start everything; the load is ready for orders.

    `sources`: the PYTHONPATH of another version for the scheduler, `node_sources` for its nodes.
    """
    allow_many_sockets()
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="lingua-bench-"))
        changes = {**SETTINGS, "LINGUA_DATA_DIR": folder, **python_path(sources)}
        serve = ("serve", "--port", "0", "--log-level", "warning", *workers_option(workers))
        scheduler, line = await stack.enter_async_context(
            started("lingua_cli", *serve, changes=changes)
        )
        url = url_in(line)
        sockets = url.replace("http", "ws", 1)
        relay, relay_url = await stack.enter_async_context(started("lingua_bench.live_relay"))
        nodes, said = await stack.enter_async_context(
            started(
                "lingua_bench.live_nodes",
                f"{sockets}/ws/node",
                str(NODES * workers),
                str(SLOTS),
                relay_url,
                changes=python_path(node_sources),
            )
        )
        if said != READY:
            raise LoadFailed(f"the nodes wrote: {said!r}")
        service, store = await service_of(scheduler.pid, workers)
        watched = Watched(service, store, nodes.pid, relay.pid)
        clients, _ = await stack.enter_async_context(
            started(
                "lingua_bench.live_clients",
                f"{sockets}/ws/session",
                relay_url,
                msgspec.json.encode(watched).decode(),
            )
        )
        yield LoadProcess(clients, f"{url}/metrics")


@asynccontextmanager
async def started(
    module: str, *words: str, changes: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Process, str]]:
    """Run a module as a process and give the first line it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=clean_environment() | dict(changes or {}),
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            line = (await process.stdout.readline()).decode().strip()
        if not line:
            raise LoadFailed(f"{module} did not start")
        yield process, line
    finally:
        await end(process)


async def end(process: Process) -> None:
    """Ask a process to end, and kill it if it does not."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), END_S)
    except TimeoutError:
        process.kill()
        await process.wait()


def clean_environment() -> dict[str, str]:
    """Return the environment without settings: a benchmark measures the defaults."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LINGUA_")}


def python_path(sources: str) -> dict[str, str]:
    """Return what lets a process run other sources than those that are installed."""
    return {"PYTHONPATH": sources} if sources else {}


def url_in(greeting: str) -> str:
    """Return the address in the first line of `lingua serve`."""
    found = next((word for word in greeting.split() if word.startswith("http://")), None)
    if found is None:
        raise LoadFailed(f"lingua serve wrote: {greeting!r}")
    return found


def workers_option(workers: int) -> tuple[str, ...]:
    """Return the words that make `lingua serve` run so many workers; one is how it runs anyway."""
    return ("--workers", str(workers)) if workers > 1 else ()


async def service_of(scheduler: int, workers: int) -> tuple[tuple[int, ...], int]:
    """Return all processes of a scheduler but the store, and the store; waits for the workers."""
    until = monotonic() + START_S
    # Several workers have a supervisor above them, and a worker that is missing here would seem to
    # cost nothing.
    least = workers + 1 if workers > 1 else 1
    while True:
        below = descendants_of(scheduler)
        stores = [pid for pid, name in below.items() if name.startswith(STORE_NAMES)]
        schedulers = (scheduler, *sorted(below.keys() - set(stores)))
        if len(stores) == 1 and len(schedulers) >= least:
            return schedulers, stores[0]
        if monotonic() > until:
            found = f"{len(schedulers)} processes and {len(stores)} servers"
            raise LoadFailed(f"lingua serve with {workers} workers and one server: found {found}")
        await asyncio.sleep(WORKERS_POLL_S)


def allow_many_sockets() -> None:
    """Let this process and its children open as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
