"""Keeps the workers of one service running: starts, replaces, restarts in turn, and ends them.

    signals ──► Supervisor ──► ServiceWorker (one per process) ◄── control, hand-over ──► worker.py
                    │
                SharedPort     the only listening sockets of the service

A worker that dies is replaced under its name. Its clients and nodes connect again to the same port
and are given to its siblings. Its successor takes over its inbox.
"""

from __future__ import annotations

import asyncio
import itertools
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from lingua_scheduler.supervisor.gathering import Gathering
from lingua_scheduler.supervisor.messages import (
    PageAnswered,
    PageAsked,
    ReleaseOrder,
    StartOrder,
    WorkerReady,
    settings_to_json,
)
from lingua_scheduler.supervisor.restarts import WorkerRestarts
from lingua_scheduler.supervisor.service_worker import ServiceWorker, WorkerState
from lingua_scheduler.supervisor.shared_port import SharedPort
from lingua_scheduler.supervisor.spread import NodeBalance, in_turn

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine

    from lingua_cli.logs import EventLog
    from lingua_scheduler.config import Settings

CHECK_S = 1.0
# A worker that says nothing during so many checks is stuck: it is killed and replaced. Checks and
# not time, so that a supervisor that was suspended itself kills nobody.
SILENT_CHECKS_MAX = 15
# The same for one that is starting.
STARTING_CHECKS_MAX = 60
# How long a worker may take beyond `server.drain_ms`: last messages, sockets, its peers.
LAST_STEPS_S = 10.0
START_S = 60.0


class Supervisor:
    """The workers of one service."""

    def __init__(
        self, settings: Settings, order: StartOrder, names: tuple[str, ...], log: EventLog
    ) -> None:
        # The settings of the workers, all but their names.
        self._settings = settings
        self._order = order
        self._names = names
        self._log = log
        self._gathering = Gathering()
        self._balance = NodeBalance()
        self._restarts = {name: WorkerRestarts() for name in names}
        # The latest process of each name.
        self._workers: dict[str, ServiceWorker] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._questions: set[asyncio.Task[None]] = set()
        self._port: SharedPort | None = None
        # Numbers the connections.
        self._turns = itertools.count()
        self._is_stopping = False
        # Set whenever a worker becomes ready or ends.
        self._changed = asyncio.Condition()
        # The exit code of a worker that cannot be started.
        self._gave_up: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(self, listening: list[socket.socket]) -> int:
        """Start all workers, the first one alone; return 0, or the exit code of one that failed."""
        is_tls = bool(self._settings.server.tls_cert_file)
        self._port = SharedPort(listening, self._give, self._log, is_tls=is_tls)
        first, *others = self._names
        for names in ([first], others):
            self._keepers += [self._run(self._keep(name)) for name in names]
            await self._until(lambda: self._gave_up.done() or self._are_ready(names))  # noqa: B023
            if self._gave_up.done():
                return self._gave_up.result()
        self._keepers.append(self._run(self._check()))
        return 0

    async def failed(self) -> int:
        """Wait until a worker can not be started any more; return its exit code."""
        return await asyncio.shield(self._gave_up)

    async def roll(self, settings: Settings) -> None:
        """Restart the workers in turn, with these settings."""
        self._settings = settings
        for name in self._names:
            await self._until(lambda: all(worker.serves for worker in self._workers.values()))
            worker = self._workers[name]
            self._log("worker.restarts", name=name)
            self._drain(worker, ())
            bound_s = self._settings.server.drain_ms / 1000 + LAST_STEPS_S
            if not await self._until(worker.has_ended, bound_s):
                worker.kill()
            await self._until(lambda: self._are_ready(self._names), START_S)

    async def drain(self) -> bool:
        """Let all workers finish; tells whether everything was finished."""
        self._stop()
        # A worker that has ended has nothing left: its clients are with its siblings.
        workers = [worker for worker in self._workers.values() if not worker.has_ended()]
        for worker in workers:
            leaving = tuple(name for name in self._names if name != worker.name)
            self._drain(worker, leaving)  # without effect on one that drains already
        bound_s = self._settings.server.drain_ms / 1000 + LAST_STEPS_S / 2
        await self._wait_for([worker.is_finished.wait() for worker in workers], bound_s)
        for worker in workers:
            worker.end()
        await self._until(lambda: not self._are_alive(), LAST_STEPS_S / 2)
        return all(worker.all_of_it for worker in workers)

    async def close(self) -> None:
        """End all workers that are left, without waiting for their work."""
        self._stop()
        for worker in self._workers.values():
            worker.end(at_once=True)
        await self._until(lambda: not self._are_alive(), LAST_STEPS_S / 2)
        for worker in self._workers.values():
            if not worker.has_ended():
                worker.kill()
        await self._until(lambda: not self._are_alive(), LAST_STEPS_S)
        tasks = [*self._keepers, *self._questions]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _stop(self) -> None:
        self._is_stopping = True
        if self._port is not None:
            self._port.close()

    def _drain(self, worker: ServiceWorker, leaving: tuple[str, ...]) -> None:
        worker.drain(leaving)
        if not leaving:
            self._give_again(worker)

    # The life of one worker

    async def _keep(self, name: str) -> None:
        """Keep a worker of this name running until the service stops."""
        restarts = self._restarts[name]
        while not self._is_stopping:
            try:
                worker = self._workers[name] = self._new_worker(name)
            except OSError as error:  # no more processes, files or memory
                self._log.error("worker.not_started", name=name, error=error)
                code, was_ready = 1, False
            else:
                was_ready = await self._live(worker)
                code = worker.exit_code
                if self._is_stopping or worker.was_ordered:
                    continue
            pause_s = restarts.ended(monotonic(), was_ready=was_ready)
            if restarts.is_hopeless(has_siblings=any(w.serves for w in self._workers.values())):
                await self._give_up(code)
                return
            self._log.error("worker.died", name=name, code=code, pause_s=pause_s)
            self._gathering.service.workers_replaced_total.inc()
            await asyncio.sleep(pause_s)

    def _run(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a part of the supervisor; if it fails, the service ends."""
        task = asyncio.create_task(part)
        task.add_done_callback(self._ended_part)
        return task

    def _ended_part(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("supervisor.error", error=error)
            if not self._gave_up.done():
                self._gave_up.set_result(1)

    async def _live(self, worker: ServiceWorker) -> bool:
        """Follow a worker to its end and clear up after it; tells whether it was ready once."""
        await self._follow(worker)
        was_ready = worker.state is not WorkerState.STARTING
        await worker.ended()
        self._gathering.ended(worker)
        self._give_again(worker)
        worker.close()
        await self._notify()
        return was_ready

    async def _give_up(self, code: int) -> None:
        if not self._gave_up.done():
            self._gave_up.set_result(code if code > 0 else 1)
        await self._notify()

    def _new_worker(self, name: str) -> ServiceWorker:
        own = msgspec.structs.replace(self._settings, instance_id=name)
        order = msgspec.structs.replace(self._order, settings=settings_to_json(own))
        return ServiceWorker(name, order)

    async def _follow(self, worker: ServiceWorker) -> None:
        """Handle what a worker says until it ends."""
        async for message in worker.messages():
            match message:
                case WorkerReady():
                    self._restarts[worker.name].ready()
                    await self._notify()
                case PageAsked():
                    self._ask(worker, message)
                case PageAnswered():
                    self._gathering.answered(message)
                case _:
                    pass
            if self._port is not None and worker.serves and not self._is_stopping:
                self._port.accept()

    def _ask(self, worker: ServiceWorker, question: PageAsked) -> None:
        states = (WorkerState.READY, WorkerState.DRAINING)
        alive = [one for one in self._workers.values() if one.state in states]
        task = asyncio.create_task(self._gathering.answer(worker, question, alive))
        self._questions.add(task)
        task.add_done_callback(self._questions.discard)

    async def _check(self) -> None:
        """Find workers that are stuck, and even out nodes."""
        while True:
            await asyncio.sleep(CHECK_S)
            workers = [worker for worker in self._workers.values() if worker.serves]
            self._check_silence()
            if len(workers) < len(self._names):
                continue
            if (surplus := self._balance.surplus([worker.nodes for worker in workers])) is not None:
                place, count = surplus
                self._log("worker.releases", name=workers[place].name, nodes=count)
                workers[place].send(ReleaseOrder(nodes=count))

    def _check_silence(self) -> None:
        for worker in self._workers.values():
            worker.count_silence()
            if worker.serves and worker.is_quiet:
                self._give_again(worker)
            most = SILENT_CHECKS_MAX if worker.serves else STARTING_CHECKS_MAX
            if worker.silence > most and not worker.has_ended():
                self._log.error("worker.stuck", name=worker.name, pid=worker.pid)
                worker.kill()

    # Connections

    def _give(self, connection: socket.socket, kind: int) -> bool:
        """Hand a connection to the worker with the fewest of its kind that takes it."""
        serving = [worker for worker in self._workers.values() if worker.serves]
        workers = [worker for worker in serving if not worker.is_quiet] or serving
        order = in_turn([worker.connections for worker in workers], kind, next(self._turns))
        return any(workers[place].take(connection, kind) for place in order)

    def _give_again(self, worker: ServiceWorker) -> None:
        """Give to siblings what a worker was given and did not take."""
        for connection, kind in worker.untaken():
            if self._port is None or self._is_stopping:
                connection.close()
            else:
                self._port.give(connection, kind)

    # Waiting

    def _are_ready(self, names: tuple[str, ...] | list[str]) -> bool:
        return all(name in self._workers and self._workers[name].serves for name in names)

    def _are_alive(self) -> bool:
        return any(not worker.has_ended() for worker in self._workers.values())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool], bound_s: float | None = None) -> bool:
        """Wait until a condition about the workers holds; False if that takes too long."""
        try:
            async with asyncio.timeout(bound_s), self._changed:
                await self._changed.wait_for(condition)
        except TimeoutError:
            return False
        return True

    async def _wait_for(self, waits: list[Coroutine[Any, Any, Any]], bound_s: float) -> None:
        tasks = [asyncio.create_task(wait) for wait in waits]
        _, pending = await asyncio.wait(tasks, timeout=bound_s)
        for task in pending:
            task.cancel()
