"""`lingua serve`: runs a scheduler until a signal, then finishes its open work."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_cli.logs import EventLog, configure_logs
from lingua_scheduler.commands.share import network_address, share_text, shared_settings
from lingua_scheduler.config import (
    AUTO,
    WORKERS_MAX,
    check_settings,
    load_settings,
    resolve_workers,
)
from lingua_scheduler.edge.event_loop import event_loop_factory, tune_collector
from lingua_scheduler.edge.server import NODE_PATH, SESSION_PATH, running_server
from lingua_scheduler.supervisor.service import ServiceOptions, serve_with_workers
from lingua_wire import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from lingua_scheduler.config import Settings


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua serve`."""
    parser = subparsers.add_parser("serve", help="run a scheduler: clients, nodes, HTTP")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 5010; 0: a free one)")
    parser.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="processes behind the port (default: 1; auto: one per usable core)",
    )
    add_share(parser)
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning"))
    parser.add_argument(
        "--log-json",
        action="store_true",
        help="write JSON lines to a terminal too (always done elsewhere)",
    )
    parser.set_defaults(run=run_serve)


def add_share(parser: argparse.ArgumentParser) -> None:
    """Add the option `--share`, which `settings_for` reads."""
    parser.add_argument(
        "--share",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="serve the phones in this network: TLS, tokens, a QR code (default: this machine's"
        " network address)",
    )


def run_serve(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; exit code 1 if open work could not be finished."""
    settings = settings_for(args)
    as_json = args.log_json or not sys.stderr.isatty()
    handler = configure_logs(sys.stderr, args.log_level, as_json=as_json)
    workers = resolve_workers(settings)

    def greet(settings: Settings, url: str) -> None:
        print(greeting(settings, url, workers), flush=True)
        if args.share is not None:
            print(share_text(settings, url), flush=True)

    options = ServiceOptions(
        workers=workers,
        log_level=args.log_level,
        log_json=as_json,
        greet=greet,
        read_settings=lambda: settings_for(args),
    )
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            return runner.run(
                serve(settings, greet) if workers == 1 else serve_with_workers(settings, options)
            )
    finally:
        handler.close()


def _workers(text: str) -> int | str:
    if text == AUTO:
        return text
    if text.isdecimal() and 1 <= int(text) <= WORKERS_MAX:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be `{AUTO}` or a number from 1 to {WORKERS_MAX}")


def settings_for(args: argparse.Namespace) -> Settings:
    """Return the settings with host, port and workers of the command line."""
    settings = load_settings(args.config, os.environ)
    # Other verbs that serve have no `--workers`.
    given = {name: getattr(args, name, None) for name in ("host", "port", "workers")}
    changes = {name: value for name, value in given.items() if value is not None}
    share = getattr(args, "share", None)
    if changes:
        server = msgspec.to_builtins(settings.server) | changes
        checked = msgspec.convert(server, type(settings.server))
        settings = msgspec.structs.replace(settings, server=checked)
        check_settings(settings)
    return settings if share is None else shared_settings(settings, share or network_address())


async def serve(settings: Settings, greet: Callable[[Settings, str], None]) -> int:
    """Run until a signal; a second signal ends the process at once."""
    log = EventLog("scheduler")
    stopped = asyncio.Event()
    stopped_again = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        (stopped_again if stopped.is_set() else stopped).set()

    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop)
    async with running_server(settings) as server:
        tune_collector()
        greet(settings, server.url)
        log("serve.started", instance=server.instance.id, port=server.port)
        if not await first_of(stopped.wait(), ended(server.loops)):
            log.error("serve.failed", error=server.loops.exception())
            return 1
        log("serve.drains", sessions=len(server.instance.sessions))
        finished = await first_of(server.drain(), stopped_again.wait())
        log("serve.stopped", finished=finished)
    return 0 if finished else 1


async def ended(loops: asyncio.Task[None]) -> bool:
    """Wait until the instance's loops end, which happens only if they fail."""
    await asyncio.wait([loops])
    return True


async def first_of(drain: Coroutine[Any, Any, bool], stop: Coroutine[Any, Any, bool]) -> bool:
    """Wait for the end of draining, or for a second signal."""
    tasks = [asyncio.create_task(drain), asyncio.create_task(stop)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return tasks[0] in done and tasks[0].result()


def greeting(settings: Settings, url: str, workers: int = 1) -> str:
    """Return the first printed lines: the URLs and the next step."""
    sockets = url.replace("http", "ws", 1)
    store = "a private server" if settings.deployment_mode == "local" else "the shared store"
    keys = settings.auth.client_keys or settings.auth.node_keys
    access = "tokens are required" if keys else "anyone on this machine may connect"
    processes = f"{workers} workers, " if workers > 1 else ""
    return "\n".join(
        (
            f"lingua {__version__} listens on {url} ({processes}{store}, {access})",
            f"  clients  {sockets}{SESSION_PATH}",
            f"  nodes    {sockets}{NODE_PATH}",
            f"  health   {url}/health   metrics {url}/metrics   API {url}/api/v1/openapi.json",
            next_step(settings, f"{sockets}{NODE_PATH}"),
        )
    )


def next_step(settings: Settings, node_url: str) -> str:
    """Return the next command; where tokens are required, it makes one."""
    if settings.auth.node_keys:
        return "next: lingua token create --node NODE_ID    then, there: lingua node --token T"
    return f"next: lingua node --simulate --url {node_url}    then: lingua nodes"
