"""One worker process as the node sees it: start it, give it one errand at a time, end it.

A `Worker` lives once: when its process is gone, for whatever reason, it stays gone and `wait` tells
why. It knows nothing of queues, of replacement or of other workers: that is `crew.py`. All of it
runs on the event loop of the node, and none of it imports an engine.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lingua_scheduler.errors import LinguaError
from lingua_scheduler.speech.engine import EngineError
from lingua_scheduler.speech.host import wire
from lingua_scheduler.speech.host.link import Link
from lingua_scheduler.speech.host.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from lingua_scheduler.speech.plugins import Spec

CHILD: Final = "lingua_scheduler.speech.host.child"
# A process that is dead has its last frames and lines in the kernel: they come at once.
LAST_WORDS_S: Final = 1.0
# SIGKILL takes effect at once, but for a process stuck in the kernel.
KILL_S: Final = 5.0
# An utterance and its frame go out in one piece.
SOCKET_BYTES: Final = 1024 * 1024

Why = Literal["died", "hung", "memory", "closed"]


class WorkerLost(LinguaError):
    """A worker process is gone, and with it the answer to a call."""

    def __init__(self, why: Why, detail: str) -> None:
        self.why: Why = why
        self.detail = detail
        super().__init__(f"{why}: {detail}")


class WorkerRules(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker process is kept."""

    # How long loading all engines may take.
    load_s: float = 120.0
    # The most address space a worker process may use; 0: no limit.
    memory_mb: int = 0
    # How long an engine may take to notice that its call was cancelled.
    grace_s: float = 2.0
    # How long engines may take to close.
    close_s: float = 2.0
    # Partial results come at most this often.
    partial_ms: int = 100


class Errand:
    """One call on its way: what is sent, who waits for the answer, how long it may take."""

    __slots__ = ("frame", "future", "id", "index", "partial", "timeout_s", "worker")

    def __init__(
        self, errand_id: int, index: int, arguments: tuple[object, ...], timeout_s: float
    ) -> None:
        self.id = errand_id
        self.index = index
        self.frame = wire.frame(wire.Call(errand_id, index, arguments))
        self.timeout_s = timeout_s
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.partial: Callable[[str], object] | None = None
        # Who does it; None while it waits and when it is over.
        self.worker: Worker | None = None

    def succeed(self, result: object) -> None:
        """Give the answer to whoever waits, if anybody does."""
        self.worker = None
        if not self.future.done():
            self.future.set_result(result)

    def fail(self, error: LinguaError) -> None:
        """Tell whoever waits, if anybody does, that there is no answer."""
        self.worker = None
        if not self.future.done():
            self.future.set_exception(error)


class Worker:
    """One process with all engines of the specs."""

    def __init__(
        self, specs: tuple[Spec, ...], rules: WorkerRules, freed: Callable[[Worker], None]
    ) -> None:
        self._specs = specs
        self._rules = rules
        # Told when an errand is over and the process can take another.
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._process: asyncio.subprocess.Process | None = None
        self._link = Link(self)
        self._output = Output()
        self._output_transport: asyncio.BaseTransport | None = None
        # Resolved when the process has loaded; resolved when it is gone.
        self._loaded: asyncio.Future[wire.Loaded] = self._loop.create_future()
        self._gone: asyncio.Future[WorkerLost] = self._loop.create_future()
        self._reaper: asyncio.Task[None] | None = None
        # Which engine is being loaded: the one to blame.
        self._loading = 0
        # What the process does now, and what happens if it does not end that in time.
        self._errand: Errand | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Why we killed it; None if we did not.
        self._sentence: WorkerLost | None = None
        # It was killed only because it went on with what nobody wanted any more.
        self.was_abandoned = False

    @property
    def pid(self) -> int:
        """Return the process' id; 0 if there is none."""
        return self._process.pid if self._process and not self._gone.done() else 0

    @property
    def is_free(self) -> bool:
        """Tell whether it can take an errand now."""
        return (
            self._errand is None
            and self._sentence is None
            and self._loaded.done()
            and not self._link.ended.is_set()
            and not self._gone.done()
        )

    async def start(self) -> wire.Loaded:
        """Start the process and wait until it has tried all engines; raises `WorkerLost`."""
        try:
            await self._spawn_whole()
        except OSError as error:
            raise WorkerLost("died", f"no process could be started: {error.strerror}") from error
        rules = self._rules
        specs = tuple(self._specs)
        self._link.send(wire.frame(wire.Load(specs, rules.memory_mb, rules.partial_ms)))
        waits: set[asyncio.Future[Any]] = {self._loaded, self._gone}
        await asyncio.wait(waits, timeout=rules.load_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._loaded.done() and not self._gone.done():
            self.kill("hung", f"{self._blamed()} did not load within {rules.load_s:g} s")
        if not self._loaded.done():
            raise await self.wait()
        self._output.is_private = True
        return self._loaded.result()

    def run(self, errand: Errand) -> None:
        """Do an errand; only while it is free."""
        assert self.is_free
        self._errand = errand
        errand.worker = self
        self._timer = self._loop.call_later(errand.timeout_s, self._hung)
        self._link.send(errand.frame)

    def abandon(self) -> None:
        """Stop what is being done: soon by itself, or by the end of the process."""
        if self._errand is not None:
            self._link.send(wire.frame(wire.Cancel(self._errand.id)))
            self._set_timer(self._rules.grace_s, self._ignored)

    def kill(self, why: Why, detail: str) -> None:
        """End the process and whatever it started, now; the errand it has fails."""
        if self._gone.done():
            return
        if self._sentence is None:
            self._sentence = WorkerLost(why, detail)
        self._end_errand(self._sentence)
        self._kill_group()

    async def wait(self) -> WorkerLost:
        """Wait until the process is gone and return why."""
        return await asyncio.shield(self._gone)

    async def close(self) -> None:
        """End the process within a bound: asked first, then killed."""
        if self._process is None:
            return
        closed = WorkerLost("closed", "the node closes its workers")
        try:
            if self.is_free or (self._errand is not None and self._sentence is None):
                self.abandon()
                self._end_errand(closed)
                self._sentence = closed
                self._link.send(wire.frame(wire.Close()))
                await asyncio.wait({self._gone}, timeout=self._rules.close_s)
        finally:
            # Also if whoever closes is cancelled meanwhile.
            self.kill(closed.why, closed.detail)
        await asyncio.wait({self._gone}, timeout=KILL_S)
        if self._reaper is not None and not self._reaper.done():
            self._reaper.cancel()
            await asyncio.wait({self._reaper})
            self._let_go()

    async def _spawn_whole(self) -> None:
        """Start the process; cancelled, it is cancelled when there is one, for `close` to end.

        In the middle it cannot be: uvloop then closes descriptors that are ours to close, and the
        error of closing them again would hide the cancellation.
        """
        spawning = self._loop.create_task(self._spawn())
        try:
            await asyncio.shield(spawning)
        except asyncio.CancelledError:
            await asyncio.wait({spawning})
            # Seen: a process that could not be started needs no end.
            spawning.exception()
            raise

    async def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        pipe = os.fdopen(read_end, "rb", buffering=0)
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
            await self._loop.create_unix_connection(lambda: self._link, sock=ours)
            self._output_transport, _ = await self._loop.connect_read_pipe(
                lambda: self._output, pipe
            )
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", CHILD,
                stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=write_end,
                # Its own group, so that what engines start can be ended with it.
                start_new_session=True,
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(write_end)
            if self._process is None:
                self._let_go()
                if self._output_transport is None:
                    pipe.close()
                if not self._link.is_connected:
                    ours.close()
        self._output.pid = self._process.pid
        self._reaper = self._loop.create_task(self._reap(self._process))

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        status = await process.wait()
        self._kill_group()
        # What it sent and printed last may still be on its way, unless somebody else holds the end.
        last_words = [
            self._loop.create_task(event.wait()) for event in (self._link.ended, self._output.ended)
        ]
        try:
            await asyncio.wait(last_words, timeout=LAST_WORDS_S)
        finally:
            for waiting in last_words:
                waiting.cancel()
        self._let_go()
        loss = self._sentence or self._loss(status)
        self._end_errand(loss)
        self._gone.set_result(loss)

    def _loss(self, status: int) -> WorkerLost:
        if status == wire.EXIT_MEMORY:
            return WorkerLost("memory", f"{self._blamed()} got no more memory")
        if status == -signal.SIGABRT and self._output.said_no_memory:
            return WorkerLost("memory", f"{self._blamed()} got no more memory and aborted")
        return WorkerLost("died", f"{self._blamed()} ended its process: {_ending(status)}")

    def _blamed(self) -> str:
        if not self._loaded.done():
            spec = self._specs[self._loading]
        elif self._errand is not None:
            spec = self._specs[self._errand.index]
        else:
            return "an idle worker"
        # Without its options, which may hold a secret.
        return f"{spec.role}={spec.name}"

    def received(self, body: memoryview) -> None:
        """Take a whole frame."""
        try:
            message = wire.UP.decode(body)
        except msgspec.DecodeError:
            self.kill("died", f"{self._blamed()} sent what is no message")
            return
        match message:
            case wire.Done():
                self._done(message)
            case wire.Failed():
                self._end_errand_of(message.id, message.fault.error())
            case wire.Partial():
                self._partial(message)
            case wire.Loading():
                self._loading = min(message.index, len(self._specs) - 1)
            case wire.Loaded():
                if not self._loaded.done():
                    self._loaded.set_result(message)

    def _done(self, message: wire.Done[msgspec.Raw]) -> None:
        errand = self._errand
        if errand is None or errand.id != message.id:
            return
        spec = self._specs[errand.index]
        try:
            result = wire.RESULTS[spec.role].decode(message.result)
        except msgspec.DecodeError as error:
            answer = f"{self._blamed()} gave an answer of the wrong type: {error}"
            self._end_errand_of(message.id, EngineError("PROCESSING_ERROR", answer))
            return
        self._drop_timer()
        self._errand = None
        errand.succeed(result)
        self._freed(self)

    def _partial(self, message: wire.Partial) -> None:
        errand = self._errand
        if errand is None or errand.id != message.id or errand.future.done():
            return
        if errand.partial is not None:
            # Not from here: an error of whoever listens is not one of the worker.
            self._loop.call_soon(errand.partial, message.text)

    def _end_errand_of(self, errand_id: int, error: LinguaError) -> None:
        if self._errand is not None and self._errand.id == errand_id:
            self._end_errand(error)
            if self.is_free:
                self._freed(self)

    def _end_errand(self, error: LinguaError) -> None:
        self._drop_timer()
        errand, self._errand = self._errand, None
        if errand is not None:
            errand.fail(error)

    def _hung(self) -> None:
        assert self._errand is not None
        took = f"{self._errand.timeout_s:g} s"
        self.kill("hung", f"{self._blamed()} did not answer within {took}")

    def _ignored(self) -> None:
        self.was_abandoned = True
        grace = f"{self._rules.grace_s:g} s"
        self.kill("hung", f"{self._blamed()} did not stop within {grace} of being cancelled")

    def link_lost(self) -> None:
        """End the process: without a line to it it is of no use, if it is not gone already."""
        if self._process is not None and self._process.returncode is None:
            self._kill_group()

    def _kill_group(self) -> None:
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # Nobody is left in it; macOS says EPERM of a group of zombies.
            return

    def _set_timer(self, after_s: float, then: Callable[[], None]) -> None:
        self._drop_timer()
        self._timer = self._loop.call_later(after_s, then)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _let_go(self) -> None:
        self._link.close()
        if self._output_transport is not None:
            self._output_transport.close()


def _ending(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
