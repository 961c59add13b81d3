"""The program of a worker: an instance that takes its connections and orders from a supervisor.

It ends when its supervisor has ended, by an order or with the end of the control socket. Signals
that a terminal or a service manager sends to all processes are for the supervisor alone.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from lingua_cli.logs import EventLog, configure_logs
from lingua_scheduler.config import Settings
from lingua_scheduler.edge.event_loop import event_loop_factory, tune_collector
from lingua_scheduler.edge.server import running_server
from lingua_scheduler.edge.sibling_pages import SiblingPages
from lingua_scheduler.supervisor.messages import (
    KINDS,
    ControlSocket,
    DrainOrder,
    EndOrder,
    LastWords,
    PageAnswered,
    PageAsked,
    PagesAnswered,
    ReleaseOrder,
    SessionsFinished,
    StartOrder,
    ToWorker,
    WorkerLoad,
    WorkerReady,
    settings_from_json,
    take_over,
)
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lingua_scheduler.edge.server import RunningServer

# How often the supervisor learns of changes, and that this process lives.
REPORT_S = 0.05
LIFE_SIGN_REPORTS = 20
ASK_S = 0.6
TAKES_PER_TURN = 32
# How long a worker without a supervisor may take to leave its peers.
LEAVE_S = 5.0
METRICS = "metrics"


class SupervisorLost(LinguaError):
    """The supervisor has ended: nobody would send connections any more."""

    def __init__(self) -> None:
        super().__init__("the supervisor of this worker has ended")


class AskedSiblings:
    """The siblings of this worker, asked through the supervisor."""

    def __init__(self, service: str, control: ControlSocket[ToWorker]) -> None:
        self.service = service
        self._control = control
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Sequence[bytes]]] = {}

    async def ask(self, page: str, **about: str | int) -> Sequence[bytes]:
        """Return the answers of the siblings; none if the supervisor is too slow."""
        number = next(self._ids)
        future: asyncio.Future[Sequence[bytes]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._control.send(PageAsked(id=number, page=page, about=about))
        try:
            async with asyncio.timeout(ASK_S):
                return await future
        except TimeoutError:
            return ()
        finally:
            del self._waiting[number]

    async def metrics(self, own: bytes) -> bytes:
        """Return the metrics of the service; the own ones if the supervisor is too slow."""
        found = await self.ask(METRICS)
        return found[0] if found else own

    def answered(self, answers: PagesAnswered) -> None:
        """Use the answers of siblings."""
        future = self._waiting.get(answers.id)
        if future is not None and not future.done():
            future.set_result(answers.bodies)


class OrderedDrain:
    """How this worker drains: alone, or together with its siblings."""

    def __init__(self, control: ControlSocket[ToWorker], order: DrainOrder) -> None:
        self.leaving: Collection[str] = order.leaving
        self.hands_over = not order.leaving
        self._control = control
        self._end = asyncio.Event()

    async def finished(self, *, all_of_it: bool) -> None:
        """Report that the sessions are finished; wait until those of the siblings are."""
        self._control.send(SessionsFinished(all_of_it=all_of_it))
        if not self.hands_over:
            await self._end.wait()

    def end(self) -> None:
        """Wait no longer."""
        self._end.set()


class Worker:
    """A running worker: its server, and what the supervisor orders."""

    def __init__(
        self,
        server: RunningServer,
        control: ControlSocket[ToWorker],
        pipe: socket.socket,
        siblings: AskedSiblings,
    ) -> None:
        self._server = server
        self._control = control
        self._pipe = pipe
        self._siblings = siblings
        self._pages = SiblingPages(server.instance)
        self._tasks = server.instance.tasks
        self._loop = asyncio.get_running_loop()
        # Connections that were taken over, with those that could not be served.
        self._taken = 0
        self._drain: OrderedDrain | None = None
        self._draining: asyncio.Task[bool] | None = None
        # Set when it must end; whether everything was finished.
        self._end = asyncio.Event()

    async def run(self) -> int:
        """Serve until an order to end; exit code 1 if open work could not be finished."""
        self._loop.add_reader(self._pipe.fileno(), self._take)
        self._control.send(WorkerReady())
        obeying = asyncio.create_task(self._obey())
        reporting = asyncio.create_task(self._report())
        ending = asyncio.create_task(self._end.wait())
        tasks = {obeying, reporting, ending, self._server.loops}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ending}:
                task.result()  # raises why it failed
            return await self._last_words()
        finally:
            self._loop.remove_reader(self._pipe.fileno())
            for task in tasks - {self._server.loops}:
                task.cancel()
            if self._draining is not None:
                self._draining.cancel()

    async def _last_words(self) -> int:
        draining = self._draining
        all_of_it = draining is not None and draining.done() and draining.result()
        metrics = self._server.instance.metrics.render()
        self._control.send(LastWords(metrics=metrics, all_of_it=all_of_it))
        await self._control.sent()
        return 0 if all_of_it else 1

    async def _obey(self) -> None:
        async for order in self._control.messages():
            match order:
                case DrainOrder():
                    self._begin_drain(order)
                case EndOrder():
                    if self._drain is None or order.at_once:
                        self._end.set()
                    else:
                        self._drain.end()
                case ReleaseOrder() if self._drain is None:
                    self._release(order.nodes)
                case PageAsked():
                    self._tasks.start(self._answer(order))
                case PagesAnswered():
                    self._siblings.answered(order)
                case _:
                    pass  # nodes of a draining worker leave anyway
        raise SupervisorLost

    def _begin_drain(self, order: DrainOrder) -> None:
        if self._drain is not None:
            return  # it was restarted in turn when the whole service was stopped
        # What is not taken yet is left to the siblings.
        self._loop.remove_reader(self._pipe.fileno())
        self._drain = OrderedDrain(self._control, order)
        self._draining = asyncio.create_task(self._server.drain(self._drain))
        self._draining.add_done_callback(lambda _: self._end.set())

    def _release(self, count: int) -> None:
        """Send nodes away that then register at a sibling; those with the least work first."""
        parts, nodes = self._server.instance.node_parts, self._server.instance.nodes
        held = {name: sum(job.node == name for job in parts.held) for name in nodes}
        for name in sorted(held, key=held.__getitem__)[:count]:
            self._tasks.start(parts.registry.send_away(nodes[name]))

    async def _answer(self, question: PageAsked) -> None:
        if question.page == METRICS:
            body = self._server.instance.metrics.render()
        else:
            body = await self._pages.answer(question.page, dict[str, Any](question.about))
        self._control.send(PageAnswered(id=question.id, body=body))

    async def _report(self) -> None:
        """Report connections and nodes when they change, and now and then anyway."""
        last, unchanged = None, 0
        while True:
            front = self._server.front
            load = WorkerLoad(
                taken=self._taken,
                open=(front.taken[KINDS[0]], front.taken[KINDS[1]], front.taken[KINDS[2]]),
                nodes=len(self._server.instance.nodes),
            )
            unchanged = unchanged + 1 if load == last else 0
            if unchanged % LIFE_SIGN_REPORTS == 0:
                self._control.send(load)
            last = load
            await asyncio.sleep(REPORT_S)

    def _take(self) -> None:
        for _ in range(TAKES_PER_TURN):
            try:
                connection, kind = take_over(self._pipe)
            except (BlockingIOError, EOFError):
                return
            if connection is None:
                self._taken += 1
                self._server.front.refused["too many open files"] += 1
            else:
                self._tasks.start(self._serve(connection, kind))

    async def _serve(self, connection: socket.socket, kind: int) -> None:
        try:
            await self._server.front.take(connection, kind)
        except OSError:
            connection.close()  # the peer has gone
        finally:
            self._taken += 1


async def work(control_socket: socket.socket, pipe: socket.socket) -> int:
    """Run a worker until it is ordered to end; return the exit code."""
    control: ControlSocket[ToWorker] = await ControlSocket.open(control_socket, ToWorker)
    order = await anext(control.messages(), None)
    if not isinstance(order, StartOrder):
        return 1  # the supervisor ended before it said anything
    settings = settings_from_json(order.settings, Settings)
    name = settings.instance_id
    handler = configure_logs(sys.stderr, order.log_level, as_json=order.log_json, worker=name)
    log = EventLog("scheduler")
    try:
        siblings = AskedSiblings(order.service, control)
        async with running_server(settings, siblings) as server:
            tune_collector()
            log("serve.started", instance=name, port=server.port)
            try:
                code = await Worker(server, control, pipe, siblings).run()
            except SupervisorLost as error:
                log("serve.failed", error=error)
                # The store of a private server has ended as well: do not wait for it.
                asyncio.get_running_loop().call_later(LEAVE_S, os._exit, 1)
                code = 1
            log("serve.stopped", finished=code == 0)
        return code
    finally:
        handler.close()


def main() -> int:
    """Run the worker of the two sockets on the command line."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control, pipe = (socket.socket(fileno=int(word)) for word in sys.argv[1:])
    try:
        with asyncio.Runner(loop_factory=event_loop_factory()) as runner:
            return runner.run(work(control, pipe))
    except LinguaError as error:
        sys.stderr.write(f"lingua: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1


if __name__ == "__main__":
    sys.exit(main())
