"""A service of several workers, from its store to its end: what `lingua serve --workers N` runs.

Start order: the private server if there is one, the port, the first worker, the others. The end is
the reverse: the port is closed, the workers drain together, then the private server ends.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec

from lingua_cli.logs import EventLog
from lingua_scheduler.config import resolve_instance_id
from lingua_scheduler.edge.listen_errors import explain_listen_error
from lingua_scheduler.edge.server import url_of
from lingua_scheduler.runtime.instance import Instance
from lingua_scheduler.secret import SecretUrl
from lingua_scheduler.state.embedded import EmbeddedServer
from lingua_scheduler.state.opening import connect, store_directory
from lingua_scheduler.state.owner import noted_address
from lingua_scheduler.supervisor.messages import StartOrder
from lingua_scheduler.supervisor.shared_port import open_port
from lingua_scheduler.supervisor.supervisor import Supervisor
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from lingua_scheduler.config import ServerSettings, Settings

NAME_CHARS_MAX = 128
# Settings that a restart in turn cannot change: all workers must agree on them at any time.
FIXED = ("deployment_mode", "data_dir", "instance_id", "cells", "redis")
FIXED_OF_SERVER = ("host", "port", "workers")


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """How a service is started."""

    workers: int
    log_level: str
    log_json: bool
    # Prints where the service listens.
    greet: Callable[[Settings, str], None]
    # Reads the settings anew.
    read_settings: Callable[[], Settings]


class Signals:
    """The signals that a service gets: stop, stop at once, restart in turn."""

    def __init__(self) -> None:
        self.stopped = asyncio.Event()
        self.stopped_again = asyncio.Event()
        self.reloaded = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self.reloaded.set)

    def _stop(self) -> None:
        (self.stopped_again if self.stopped.is_set() else self.stopped).set()


async def serve_with_workers(settings: Settings, options: ServiceOptions) -> int:
    """Run the service until a signal; return its exit code."""
    signals, log = Signals(), EventLog("supervisor")
    service = resolve_instance_id(settings)
    names = worker_names(service, options.workers)
    async with shared_store(settings, log) as shared:
        listening = await _listen(settings.server)
        port: int = listening[0].getsockname()[1]
        order = StartOrder(
            settings=b"", service=service, log_level=options.log_level, log_json=options.log_json
        )
        of_workers = worker_settings(shared, port, len(names))
        supervisor = Supervisor(of_workers, order, names, log)
        try:
            if code := await supervisor.start(listening):
                return code
            url = url_of(settings.server, port)
            with _noted(settings, url):
                options.greet(settings, url)
                log("service.started", instance=service, workers=len(names), port=port)
                return await Service(settings, of_workers, supervisor, options, log).run(signals)
        finally:
            await supervisor.close()


class Service:
    """A running service: what it does at a signal."""

    def __init__(
        self,
        settings: Settings,
        shared: Settings,
        supervisor: Supervisor,
        options: ServiceOptions,
        log: EventLog,
    ) -> None:
        self._settings = settings
        # The settings of the workers, with the port and the address of the store.
        self._shared = shared
        self._supervisor = supervisor
        self._options = options
        self._log = log

    async def run(self, signals: Signals) -> int:
        """Serve until a signal to stop; exit code 1 if open work could not be finished."""
        supervisor = self._supervisor
        rolling = asyncio.create_task(self._roll_when(signals))
        failing = asyncio.create_task(supervisor.failed())
        stopping = asyncio.create_task(signals.stopped.wait())
        tasks = (rolling, failing, stopping)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if rolling.done():
                rolling.result()  # raises why it failed
            if failing.done():
                self._log.error("serve.failed", code=failing.result())
                await supervisor.drain()
                return failing.result()
        finally:
            for task in tasks:
                task.cancel()
        return await self._stop(signals)

    async def _stop(self, signals: Signals) -> int:
        self._log("serve.drains")
        draining = asyncio.create_task(self._supervisor.drain())
        hurrying = asyncio.create_task(signals.stopped_again.wait())
        done, pending = await asyncio.wait(
            (draining, hurrying), return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        finished = draining in done and draining.result()
        self._log("serve.stopped", finished=finished)
        return 0 if finished else 1

    async def _roll_when(self, signals: Signals) -> None:
        """Restart the workers in turn at each SIGHUP, with the settings of that moment."""
        while True:
            await signals.reloaded.wait()
            signals.reloaded.clear()
            try:
                settings = self._options.read_settings()
                check_unchanged(self._settings, settings)
            except LinguaError as error:
                self._log.error("serve.reload_refused", error=error)
                continue
            self._log("serve.reloads")
            await self._supervisor.roll(self._of_workers(settings))
            self._log("serve.reloaded")

    def _of_workers(self, settings: Settings) -> Settings:
        shared = msgspec.structs.replace(
            settings, deployment_mode=self._shared.deployment_mode, redis=self._shared.redis
        )
        return worker_settings(shared, self._shared.server.port, self._options.workers)


def worker_names(service: str, count: int) -> tuple[str, ...]:
    """Return the instance names of the workers, which their successors keep."""
    names = tuple(f"{service}-{number}" for number in range(1, count + 1))
    if len(names[-1]) > NAME_CHARS_MAX:
        room = NAME_CHARS_MAX - len(str(count)) - 1
        raise ConfigError("instance_id", f"with workers it has at most {room} characters")
    return names


def worker_settings(shared: Settings, port: int, count: int) -> Settings:
    """Return the settings of a worker: the real port, and its share of the connections."""
    server = shared.server
    own = msgspec.structs.replace(
        server, port=port, workers=1, connections_max=-(-server.connections_max // count)
    )
    return msgspec.structs.replace(shared, server=own)


def check_unchanged(old: Settings, new: Settings) -> None:
    """Raise if settings differ that a restart in turn cannot change."""
    for name in FIXED:
        if getattr(old, name) != getattr(new, name):
            raise ConfigError(name, "cannot change without a restart of the whole service")
    for name in FIXED_OF_SERVER:
        if getattr(old.server, name) != getattr(new.server, name):
            problem = "cannot change without a restart of the whole service"
            raise ConfigError(f"server.{name}", problem)


@asynccontextmanager
async def shared_store(settings: Settings, log: EventLog) -> AsyncIterator[Settings]:
    """Start a private server in local mode; yield settings by which workers reach the store."""
    if settings.deployment_mode != "local":
        yield settings
        return
    async with EmbeddedServer(store_directory(settings)) as server:
        url = SecretUrl(f"unix://{quote(str(server.socket_path))}")
        redis = msgspec.structs.replace(settings.redis, url=url)
        shared = msgspec.structs.replace(settings, deployment_mode="cross_instance", redis=redis)
        await forget_former(settings, shared, log)
        yield shared


async def forget_former(settings: Settings, shared: Settings, log: EventLog) -> None:
    """Remove what a dead service left in its private store, once and before the first worker."""
    connection = await connect(shared)
    try:
        instance = Instance(settings, connection, log)
        await instance.store.warm()
        await instance.forget_former()
    finally:
        await connection.close()


async def _listen(server: ServerSettings) -> list[socket.socket]:
    try:
        return open_port(server.host, server.port)
    except OSError as error:
        raise await explain_listen_error(server.host, server.port, error) from error


def _noted(settings: Settings, url: str) -> AbstractContextManager[None]:
    """Write the address into the data directory, for other processes."""
    if settings.deployment_mode != "local":
        return nullcontext()
    return noted_address(store_directory(settings), url)
