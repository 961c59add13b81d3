"""One worker process as the node sees it: start it, give it one call at a time, end it.

A `WorkerProcess` is used once: after its process has ended, for any reason, `wait` returns why.
Queues, replacement and other workers are the job of `worker_pool.py`. Everything here runs on the
event loop of the node, and nothing imports an engine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lingua_speech.engine import EngineError
from lingua_speech.host import messages
from lingua_speech.host.connection import WorkerConnection
from lingua_speech.host.output import WorkerOutput
from lingua_wire.errors import LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_speech.plugins import Spec

CHILD: Final = "lingua_speech.host.child"
# The last frames and lines of a dead process are in kernel buffers and arrive at once.
LAST_OUTPUT_S: Final = 1.0
# SIGKILL takes effect at once, except on a process stuck in the kernel.
KILL_S: Final = 5.0
# Large enough to send an utterance in one write.
SOCKET_BYTES: Final = 1024 * 1024

LossReason = Literal["died", "hung", "memory", "closed"]


class Urgency(IntEnum):
    """How urgent a call is; the lower, the sooner it gets a worker."""

    JOB = 0
    # Work that a job will probably need in a moment.
    HEAD_START = 1
    # Text to be shown while somebody speaks: a more urgent call stops it.
    CAPTION = 2


class WorkerLost(LinguaError):
    """A worker process ended, and its call got no answer."""

    def __init__(self, why: LossReason, detail: str) -> None:
        self.why: LossReason = why
        self.detail = detail
        super().__init__(f"{why}: {detail}")


class WorkerRules(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one worker process."""

    # How long loading all engines may take.
    load_s: float = 120.0
    # Maximum address space of a worker process; 0: no limit.
    memory_mb: int = 0
    # How long an engine may take to notice that its call was cancelled.
    grace_s: float = 2.0
    # How long engines may take to close.
    close_s: float = 2.0
    # Minimum time between two partial results.
    partial_ms: int = 100


class PendingCall:
    """A call that waits or runs: the frame to send, the future of its caller, its time limit."""

    __slots__ = ("frame", "future", "id", "index", "partial", "timeout_s", "urgency", "worker")

    def __init__(
        self, call_id: int, index: int, arguments: tuple[object, ...], timeout_s: float
    ) -> None:
        self.id = call_id
        self.index = index
        self.frame = messages.frame(messages.EngineCall(call_id, index, arguments))
        self.timeout_s = timeout_s
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.partial: Callable[[str], object] | None = None
        self.urgency = Urgency.JOB
        # The process that runs it; None while it waits and after its end.
        self.worker: WorkerProcess | None = None

    def succeed(self, result: object) -> None:
        """Give the answer to the caller, if it still waits."""
        self.worker = None
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: LinguaError) -> None:
        """Raise an error in the caller, if it still waits."""
        self.worker = None
        if not self.future.done():
            self.future.set_exception(error)


class WorkerProcess:
    """One process that has loaded all engines of the specs."""

    def __init__(
        self, specs: tuple[Spec, ...], rules: WorkerRules, on_free: Callable[[WorkerProcess], None]
    ) -> None:
        self._specs = specs
        self._rules = rules
        # Called when a call has ended and the process can run another.
        self._on_free = on_free
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._connection = WorkerConnection(self)
        self._output = WorkerOutput()
        self._output_transport: asyncio.BaseTransport | None = None
        # Resolved when the process has loaded; resolved when it has ended.
        self._loaded: asyncio.Future[messages.EnginesLoaded] = self._loop.create_future()
        self._ended: asyncio.Future[WorkerLost] = self._loop.create_future()
        self._reaper: asyncio.Task[None] | None = None
        # Index of the engine being loaded, for error messages.
        self._loading = 0
        # The running call, and the timer that ends the process if the call takes too long.
        self._call: PendingCall | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Why the node ended it; None if the node did not.
        self._kill_reason: WorkerLost | None = None
        # It was killed only because it continued a cancelled call.
        self.was_abandoned = False

    @property
    def pid(self) -> int:
        """Return the process id; 0 if no process runs."""
        return self._process.pid if self._process and not self._ended.done() else 0

    @property
    def is_free(self) -> bool:
        """Tell whether it can run a call now."""
        return (
            self._call is None
            and self._kill_reason is None
            and self._loaded.done()
            and not self._connection.ended.is_set()
            and not self._ended.done()
        )

    async def start(self) -> messages.EnginesLoaded:
        """Start the process and wait until it has tried to load all engines.

        Raises `WorkerLost`.
        """
        try:
            await self._spawn_uncancelled()
        except OSError as error:
            raise WorkerLost("died", f"no process could be started: {error.strerror}") from error
        rules = self._rules
        specs = tuple(self._specs)
        self._connection.send(
            messages.frame(messages.LoadEngines(specs, rules.memory_mb, rules.partial_ms))
        )
        waits: set[asyncio.Future[Any]] = {self._loaded, self._ended}
        await asyncio.wait(waits, timeout=rules.load_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._loaded.done() and not self._ended.done():
            self.kill("hung", f"{self._active_engine()} did not load within {rules.load_s:g} s")
        if not self._loaded.done():
            raise await self.wait()
        self._output.is_private = True
        return self._loaded.result()

    def run(self, call: PendingCall) -> None:
        """Run a call; only while the process is free."""
        assert self.is_free
        self._call = call
        call.worker = self
        self._timer = self._loop.call_later(call.timeout_s, self._hung)
        self._connection.send(call.frame)

    def abandon(self) -> None:
        """Cancel the running call; if the engine ignores that, the process is killed."""
        if self._call is not None:
            self._connection.send(messages.frame(messages.CancelCall(self._call.id)))
            if self._call.urgency is Urgency.JOB:
                self._set_timer(self._rules.grace_s, self._ignored)
            # Else its time limit remains: no job may lose its worker for the sake of a caption.

    @property
    def shows_caption(self) -> bool:
        """Tell whether it runs a call that a more urgent one may stop."""
        call = self._call
        return call is not None and call.urgency is Urgency.CAPTION and not call.future.done()

    def preempt(self, error: LinguaError) -> None:
        """Fail the running call, so that the process is free as soon as the engine notices."""
        assert self._call is not None
        self._call.fail(error)
        self.abandon()

    def kill(self, why: LossReason, detail: str) -> None:
        """Kill the process and its children now; the running call fails."""
        if self._ended.done():
            return
        if self._kill_reason is None:
            self._kill_reason = WorkerLost(why, detail)
        self._end_call(self._kill_reason)
        self._kill_group()

    async def wait(self) -> WorkerLost:
        """Wait until the process has ended and return why."""
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """End the process within a time limit: ask first, then kill."""
        if self._process is None:
            return
        closed = WorkerLost("closed", "the node closes its workers")
        try:
            if self.is_free or (self._call is not None and self._kill_reason is None):
                self.abandon()
                self._end_call(closed)
                self._kill_reason = closed
                self._connection.send(messages.frame(messages.CloseEngines()))
                await asyncio.wait({self._ended}, timeout=self._rules.close_s)
        finally:
            # Also if the caller is cancelled meanwhile.
            self.kill(closed.why, closed.detail)
        await asyncio.wait({self._ended}, timeout=KILL_S)
        if self._reaper is not None and not self._reaper.done():
            self._reaper.cancel()
            await asyncio.wait({self._reaper})
            self._close_transports()

    async def _spawn_uncancelled(self) -> None:
        """Start the process; a cancellation takes effect after the start, so `close` can end it.

        During the start uvloop would close descriptors that this class closes, too. The error of
        closing them twice would hide the cancellation.
        """
        spawning = self._loop.create_task(self._spawn())
        try:
            await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await asyncio.wait({spawning})
            # Retrieved and ignored: a process that did not start need not be ended.
            spawning.exception()
            raise

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        pipe = os.fdopen(read_end, "rb", buffering=0)
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            await self._loop.create_unix_connection(lambda: self._connection, sock=ours)
            self._output_transport, _ = await self._loop.connect_read_pipe(
                lambda: self._output, pipe
            )
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", CHILD),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=write_end,
                # A process group of its own, so that the children of engines can be ended with it.
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(write_end)
            if self._process is None:
                self._close_transports()
                if self._output_transport is None:
                    pipe.close()
                if not self._connection.was_connected:
                    ours.close()
        self._output.pid = self._process.pid
        self._reaper = self._loop.create_task(self._reap(self._process))

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        self._kill_group()
        # Its last frames and lines may still arrive, unless another process holds the descriptors.
        last_output = [
            self._loop.create_task(event.wait())
            for event in (self._connection.ended, self._output.ended)
        ]
        try:
            await asyncio.wait(last_output, timeout=LAST_OUTPUT_S)
        finally:
            for waiting in last_output:
                waiting.cancel()
        self._close_transports()
        loss = self._kill_reason or self._loss(status)
        self._end_call(loss)
        self._ended.set_result(loss)

    def _loss(self, status: int) -> WorkerLost:
        if status == messages.EXIT_MEMORY:
            return WorkerLost("memory", f"{self._active_engine()} ran out of memory")
        if status == -signal.SIGABRT and self._output.reported_no_memory:
            return WorkerLost("memory", f"{self._active_engine()} ran out of memory and aborted")
        return WorkerLost("died", f"{self._active_engine()} ended its process: {_ending(status)}")

    def _active_engine(self) -> str:
        if not self._loaded.done():
            spec = self._specs[self._loading]
        elif self._call is not None:
            spec = self._specs[self._call.index]
        else:
            return "an idle worker"
        # Without its options, which may contain a secret.
        return f"{spec.role}={spec.name}"

    def handle_frame(self, body: memoryview) -> None:
        """Handle a whole frame from the process."""
        try:
            message = messages.FROM_WORKER.decode(body)
        except msgspec.DecodeError:
            self.kill("died", f"{self._active_engine()} sent an invalid message")
            return
        match message:
            case messages.CallDone():
                self._done(message)
            case messages.CallFailed():
                self._end_call_of(message.id, message.fault.error())
            case messages.PartialText():
                self._partial(message)
            case messages.EngineLoading():
                self._loading = min(message.index, len(self._specs) - 1)
            case messages.EnginesLoaded():
                if not self._loaded.done():
                    self._loaded.set_result(message)

    def _done(self, message: messages.CallDone[msgspec.Raw]) -> None:
        call = self._call
        if call is None or call.id != message.id:
            return
        spec = self._specs[call.index]
        try:
            result = messages.RESULTS[spec.role].decode(message.result)
        except msgspec.DecodeError as error:
            answer = f"{self._active_engine()} returned an answer of the wrong type: {error}"
            self._end_call_of(message.id, EngineError("PROCESSING_ERROR", answer))
            return
        self._drop_timer()
        self._call = None
        call.succeed(result)
        self._on_free(self)

    def _partial(self, message: messages.PartialText) -> None:
        call = self._call
        if call is None or call.id != message.id or call.future.done():
            return
        if call.partial is not None:
            # Not called directly: an error of the listener must not end the worker.
            self._loop.call_soon(call.partial, message.text)

    def _end_call_of(self, call_id: int, error: LinguaError) -> None:
        if self._call is not None and self._call.id == call_id:
            self._end_call(error)
            if self.is_free:
                self._on_free(self)

    def _end_call(self, error: LinguaError) -> None:
        self._drop_timer()
        call, self._call = self._call, None
        if call is not None:
            call.fail(error)

    def _hung(self) -> None:
        assert self._call is not None
        took = f"{self._call.timeout_s:g} s"
        self.kill("hung", f"{self._active_engine()} did not answer within {took}")

    def _ignored(self) -> None:
        self.was_abandoned = True
        grace = f"{self._rules.grace_s:g} s"
        self.kill("hung", f"{self._active_engine()} did not stop within {grace} of being cancelled")

    def handle_protocol_error(self, problem: str) -> None:
        """Kill a process that sent an invalid frame."""
        self.kill("died", problem)

    def handle_connection_lost(self) -> None:
        """Kill a process that still runs: without a connection it is of no use."""
        if self._process is not None and self._process.returncode is None:
            self._kill_group()

    def _kill_group(self) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # The group is empty; macOS returns EPERM for a group of zombies.
            return

    def _set_timer(self, after_s: float, then: Callable[[], None]) -> None:
        self._drop_timer()
        self._timer = self._loop.call_later(after_s, then)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_transports(self) -> None:
        self._connection.close()
        if self._output_transport is not None:
            self._output_transport.close()


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
