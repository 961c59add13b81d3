"""`Node`: an async function that does jobs, made a node by a decorator.

    node = Node(url, node_id="gpu-1", pairs=["en>es"], max_jobs=4)

    @node.job
    async def translate(job: Job) -> Result: ...

    node.run()

This module starts, drains and stops a node. docs/node-sdk.md is the manual.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lingua_node.connection import SchedulerConnection
from lingua_node.job_runner import JobRunner
from lingua_node.node_socket import Outbox
from lingua_node.registration import capabilities_of, registration_of
from lingua_node.settings import NodeSettings
from lingua_node.stats import Stats
from lingua_node.stream_runner import StreamRunner
from lingua_wire.errors import ConfigError

try:
    import uvloop
except ImportError:  # Not available on all systems, and only faster.
    uvloop = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from lingua_node.job import Handler
    from lingua_node.stream import StreamHandler

# A scheduler acknowledges within milliseconds; an older one never does.
LAST_ACKS_S: Final = 3.0
DRAIN_REASON: Final = "the node stops"

_logger = logging.getLogger("lingua_node")


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of the event loop; None is the standard library's."""
    return uvloop.new_event_loop if uvloop else None


@dataclass(eq=False)
class Node(NodeSettings):
    """A node: its settings, then `job`, then `run` or `serve`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._handler: Handler | None = None
        self._stream_handler: StreamHandler | None = None
        # While the node is served.
        self._connection: SchedulerConnection | None = None
        self._stats = Stats()
        self._drain_asked = asyncio.Event()
        self._stop_asked = asyncio.Event()
        # Services that do not work now, and why.
        self._problems: dict[str, str] = {}
        # Built here, so that an invalid setting is reported where it is written.
        self.registration = registration_of(self)

    @property
    def stats(self) -> Stats:
        """Return what was done since `serve` started."""
        return self._stats

    def job(self, handler: Handler) -> Handler:
        """Make an async function the handler of this node's jobs."""
        if not inspect.iscoroutinefunction(handler):
            raise TypeError("a handler must be an async function")
        self._handler = handler
        return handler

    def stream(self, handler: StreamHandler) -> StreamHandler:
        """Make an async function the handler of speech that is still going on."""
        if not inspect.iscoroutinefunction(handler):
            raise TypeError("a handler must be an async function")
        self._stream_handler = handler
        self.registration = msgspec.structs.replace(self.registration, max_streams=self.max_streams)
        return handler

    def run(self) -> None:
        """Serve until SIGTERM or Ctrl-C, which drain; a second signal ends the node at once."""
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(self._serve_until_signal())

    async def serve(self) -> None:
        """Serve until drained, stopped or cancelled; raises `NodeRefused` if refused."""
        connection, runner = self._prepare()
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(connection.run()),
            asyncio.create_task(self._until_drained(runner)),
            asyncio.create_task(self._stop_asked.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._end(waits, runner)

    def set_ready(self, service: str, ready: bool, reason: str = "") -> None:
        """Report at once that a type of service works, or why it does not."""
        if service not in self.service_types:
            known = ", ".join(self.service_types)
            raise ConfigError("services", f"{service!r} is not one of {known}")
        before = dict(self._problems)
        if ready:
            self._problems.pop(service, None)
        else:
            self._problems[service] = reason or "not ready"
        if before != self._problems:
            now = capabilities_of(self, self._problems)
            self.registration = msgspec.structs.replace(self.registration, capability_by_type=now)
            if self._connection is not None:
                self._connection.reporter.update(self.registration)

    def drain(self, reason: str = DRAIN_REASON) -> None:
        """Take no new jobs, finish those under way, then end `serve`."""
        if not self._drain_asked.is_set():
            self._drain_asked.set()
            self.watch("draining", reason)
            if self._connection is not None:
                self._connection.drain(reason)

    def stop(self) -> None:
        """End `serve` now; jobs under way are cancelled and go to other nodes."""
        self._stop_asked.set()

    async def _serve_until_signal(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._handle_signal)
        await self.serve()

    def _handle_signal(self) -> None:
        if self._drain_asked.is_set():
            self.stop()
        else:
            self.drain()

    def _prepare(self) -> tuple[SchedulerConnection, JobRunner]:
        if self._handler is None:
            raise ConfigError("job", "no function was decorated with @node.job")
        if self._connection is not None:
            raise ConfigError("serve", "this node is being served already")
        outbox = Outbox()
        runner = JobRunner(
            self._handler,
            outbox,
            node_id=self.node_id,
            max_jobs=self.max_jobs,
            acks=self.acks,
            streams=StreamRunner(self._stream_handler, outbox, max_streams=self.max_streams),
        )
        connection = SchedulerConnection(self, self.registration, runner, outbox)
        self._connection, self._stats = connection, runner.stats
        return connection, runner

    async def _until_drained(self, runner: JobRunner) -> None:
        await self._drain_asked.wait()
        await _at_most(self.drain_s, runner.wait_until(lambda: not runner.running_count))
        await _at_most(LAST_ACKS_S, runner.wait_until(lambda: not runner.unacknowledged_count))

    async def _end(self, waits: Sequence[asyncio.Task[Any]], runner: JobRunner) -> None:
        # The socket first: the scheduler then moves the remaining jobs to other nodes at once.
        for task in waits:
            task.cancel()
        await asyncio.wait(waits)
        await runner.stop()
        self._connection = None
        self._drain_asked.clear()
        self._stop_asked.clear()


async def _at_most(seconds: float, waiting: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        _logger.warning("not everything ended within %g s of draining", seconds)
