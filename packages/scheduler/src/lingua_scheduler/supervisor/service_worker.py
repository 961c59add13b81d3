"""One worker as its supervisor sees it: a process, its two sockets, and what it reported last."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

from lingua_scheduler.supervisor.messages import (
    ControlSocket,
    DrainOrder,
    EndOrder,
    FromWorker,
    LastWords,
    SessionsFinished,
    WorkerLoad,
    WorkerReady,
    hand_over,
    take_over,
)
from lingua_scheduler.supervisor.spread import ConnectionCount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from lingua_scheduler.supervisor.messages import StartOrder, SupervisorMessage

EXIT_POLL_S = 0.02
EXIT_WAIT_S = 5.0
# After so many checks without a message it gets no connections and questions, if a sibling does.
QUIET_CHECKS = 3


class WorkerState(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    # It takes no new connections, and ends when it has finished or handed over what it has.
    DRAINING = "draining"
    ENDED = "ended"


class ServiceWorker:
    """One process of a worker; its successor is another object."""

    def __init__(self, name: str, order: StartOrder) -> None:
        self.name = name
        self.state = WorkerState.STARTING
        self.connections = ConnectionCount()
        self.nodes = 0
        # The last metrics that it sent.
        self.metrics = b""
        # The sessions of a draining worker are finished, and whether completely.
        self.is_finished = asyncio.Event()
        self.all_of_it = False
        # How it ended, and whether it was ordered to.
        self.exit_code = 0
        self.was_ordered = False
        # Checks since its last message.
        self.silence = 0
        self._order = order
        self._control: ControlSocket[FromWorker] | None = None
        ours, theirs = socket.socketpair()
        # Both ends of the hand-over stay open here: what a dead worker has not taken is given to
        # its siblings.
        self._pipe, self._pipe_end = socket.socketpair()
        for sock in (self._pipe, self._pipe_end):
            sock.setblocking(False)  # noqa: FBT003 - the only parameter
        self._ours = ours
        with theirs:
            fds = (theirs.fileno(), self._pipe_end.fileno())
            self._child = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "lingua_scheduler.supervisor.worker", *map(str, fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,  # Ctrl-C must only reach the supervisor
            )

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._child.pid

    @property
    def serves(self) -> bool:
        """Tell whether it takes connections."""
        return self.state is WorkerState.READY

    @property
    def is_quiet(self) -> bool:
        """Tell whether it has said nothing for longer than is usual."""
        return self.silence >= QUIET_CHECKS

    def has_ended(self) -> bool:
        """Tell whether its process has ended."""
        return self.state is WorkerState.ENDED

    async def messages(self) -> AsyncIterator[FromWorker]:
        """Start it, and yield what it says until it ends."""
        control: ControlSocket[FromWorker] = await ControlSocket.open(self._ours, FromWorker)
        self._control = control
        control.send(self._order)
        async for message in control.messages():
            self.silence = 0
            self._note(message)
            yield message

    def _note(self, message: FromWorker) -> None:
        match message:
            case WorkerReady():
                self.state = WorkerState.READY
            case WorkerLoad():
                self.connections.report(message.taken, message.open)
                self.nodes = message.nodes
            case SessionsFinished():
                self.all_of_it = message.all_of_it
                self.is_finished.set()
            case LastWords():
                self.metrics = message.metrics
                self.all_of_it = message.all_of_it
                self.is_finished.set()
            case _:
                pass

    def send(self, message: SupervisorMessage) -> None:
        """Send it a message; one to a worker that has ended is dropped."""
        if self._control is not None:
            self._control.send(message)

    def take(self, connection: socket.socket, kind: int) -> bool:
        """Hand it a connection; False if it does not take any now."""
        try:
            hand_over(self._pipe, connection, kind)
        except OSError:
            return False
        self.connections.give(kind)
        return True

    def untaken(self) -> Iterator[tuple[socket.socket, int]]:
        """Yield the connections that it was given and has not taken."""
        with suppress(BlockingIOError):
            while True:
                connection, kind = take_over(self._pipe_end)
                self.connections.take_back(kind)
                if connection is not None:
                    yield connection, kind

    def drain(self, leaving: tuple[str, ...]) -> None:
        """Let it finish or hand over what it has."""
        self.state = WorkerState.DRAINING
        self.send(DrainOrder(leaving=leaving))

    def end(self, *, at_once: bool = False) -> None:
        """Let it end, because its siblings are finished or because nobody waits any more."""
        self.send(EndOrder(at_once=at_once))

    def note_metrics(self, text: bytes | None) -> None:
        """Keep its latest metrics, unless it has ended meanwhile."""
        if text is not None and self.state is not WorkerState.ENDED:
            self.metrics = text

    def count_silence(self) -> None:
        """Count a check without a message of it."""
        self.silence += 1

    def kill(self) -> None:
        """Kill it."""
        self._child.kill()

    async def ended(self) -> None:
        """Wait until its process has ended, within a bound."""
        with suppress(TimeoutError):
            async with asyncio.timeout(EXIT_WAIT_S):
                while self._child.poll() is None:  # noqa: ASYNC110 - nothing sets an event
                    await asyncio.sleep(EXIT_POLL_S)
        if self._child.poll() is None:
            self._child.kill()
        self.exit_code = self._child.wait()
        self.was_ordered = self.state is WorkerState.DRAINING
        self.state = WorkerState.ENDED
        self.is_finished.set()

    def close(self) -> None:
        """Close its sockets, after what it left was given away."""
        if self._control is not None:
            self._control.close()
        else:
            self._ours.close()
        self._pipe.close()
        self._pipe_end.close()
