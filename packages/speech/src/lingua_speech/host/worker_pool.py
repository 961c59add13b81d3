"""Several worker processes behind one queue: the node's interface to its engines.

Every worker has loaded all engines of the specs and runs one call at a time; calls wait in order
for the next free worker, the more urgent ones first. A call for a caption is stopped when a more
urgent one waits. When a worker is lost, only its own call fails. It is replaced, with a growing
delay if its successors do not last. The first worker that has loaded determines which engines are
available: a later worker that lacks one of them is not used.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from lingua_cli.logs import EventLog
from lingua_speech import plugins
from lingua_speech.engine import About, EngineError
from lingua_speech.host.worker_process import (
    PendingCall,
    Urgency,
    WorkerLost,
    WorkerProcess,
    WorkerRules,
)
from lingua_wire.errors import ConfigError, LinguaError

if TYPE_CHECKING:
    from lingua_speech.host import messages
    from lingua_speech.plugins import Spec

BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 10.0
# A worker that served this long was healthy: the delay before its successor starts over.
HEALTHY_S: Final = 60.0

WorkerState = Literal["ready", "lost", "loading"]
StateListener = Callable[[WorkerState, str], object]

log = EventLog("speech.host")


class WorkerPoolRules(WorkerRules, frozen=True, kw_only=True):
    """The number of workers, and the limits of the queue."""

    workers: int = 1
    # How many calls may wait, besides the running ones, and for how long.
    queue_max: int = 64
    wait_s: float = 60.0


class WorkerBusy(LinguaError):
    """Too many calls wait for a worker, or this one waited too long."""


class CallPreempted(WorkerBusy):
    """The call for a caption was stopped, because a more urgent one waited."""


class WorkerPool:
    """Workers for one set of engines; created, started and closed on one event loop."""

    def __init__(
        self,
        specs: Sequence[Spec],
        rules: WorkerPoolRules | None = None,
        on_state: StateListener | None = None,
    ) -> None:
        self._specs = tuple(specs)
        self._rules = rules or WorkerPoolRules()
        # Called with each change of a worker's state, and a detail.
        self._on_state = on_state
        self._ids = itertools.count(1)
        # Calls that wait, by urgency and in order; loaded workers; those of them that are idle.
        self._queues: tuple[deque[PendingCall], ...] = tuple(deque() for _ in Urgency)
        self._serving: set[WorkerProcess] = set()
        self._idle: deque[WorkerProcess] = deque()
        # All workers that have a process.
        self._workers: set[WorkerProcess] = set()
        self._supervisors: list[asyncio.Task[None]] = []
        # Resolved when the first worker has loaded or all have failed; workers that failed so far.
        self._started: asyncio.Future[None] | None = None
        self._failed: set[int] = set()
        self._is_closed = False
        # By index of the spec: the loaded engines, and why the others failed.
        self.abouts: dict[int, About] = {}
        self.failures: dict[int, EngineError] = {}
        # How long the first worker took to load.
        self.load_s = 0.0
        # Number of lost workers, and why the last one was lost.
        self.restarts = 0
        self.reason = ""

    @property
    def is_ready(self) -> bool:
        """Tell whether any worker has loaded."""
        return bool(self._serving)

    @property
    def pids(self) -> list[int]:
        """Return the ids of all worker processes; may be called from any thread."""
        return sorted(worker.pid for worker in tuple(self._workers) if worker.pid)

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait for a worker."""
        return sum(map(len, self._queues))

    async def start(self) -> None:
        """Start the workers; returns when one of them has loaded at least one engine.

        Raises `ConfigError` if a spec is invalid, otherwise the `EngineError` of the first spec if
        no engine works, or `WorkerLost` if every worker was lost. No process is left after an
        error.
        """
        assert not self._supervisors, "a pool is started once"
        if self._is_closed:
            raise WorkerLost("closed", "the worker pool is closed")
        for spec in self._specs:
            plugins.check(spec)
        if not self._specs:
            raise ConfigError("engines", "no engine is given")
        loop = asyncio.get_running_loop()
        self._started = loop.create_future()
        self._supervisors = [
            loop.create_task(self._supervise(at)) for at in range(self._rules.workers)
        ]
        for supervisor in self._supervisors:
            supervisor.add_done_callback(self._supervisor_ended)
        try:
            await self._started
        except BaseException:
            await self.close()
            raise

    async def call(
        self,
        index: int,
        *arguments: object,
        timeout_s: float,
        partial: Callable[[str], object] | None = None,
        urgency: Urgency = Urgency.JOB,
    ) -> Any:
        """Call the engine of a spec; `timeout_s` does not include the time in the queue.

        Raises `EngineError`, `WorkerLost` or `WorkerBusy`. A cancellation takes effect at once; the
        worker is free again when the engine has noticed it.
        """
        if index in self.failures:
            raise self.failures[index].with_traceback(None)
        assert index in self.abouts, "no engine of that index was loaded"
        call = PendingCall(next(self._ids), index, arguments, timeout_s)
        call.partial = partial
        call.urgency = urgency
        self._enqueue(call)
        # Most calls find a free worker and need no timer.
        timer = self._start_timer(call) if call.worker is None else None
        try:
            return await call.future
        finally:
            self._abandon(call)
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """End all workers within a time limit; unfinished calls and a running `start` fail."""
        is_first, self._is_closed = not self._is_closed, True
        closed = WorkerLost("closed", "the node closes its workers")
        for queue in self._queues:
            for call in queue:
                call.fail(closed)
            queue.clear()
        if self._started is not None and not self._started.done():
            self._started.set_exception(closed)
        for supervisor in self._supervisors:
            # Only once: a second cancellation would interrupt the cleanup.
            if is_first:
                supervisor.cancel()
        if self._supervisors:
            await asyncio.wait(self._supervisors)

    def _enqueue(self, call: PendingCall) -> None:
        if self._is_closed:
            raise WorkerLost("closed", "the worker pool is closed")
        queue = self._queues[call.urgency]
        if len(queue) >= self._rules.queue_max and not self._idle:
            raise WorkerBusy(f"{len(queue)} calls wait for a worker")
        queue.append(call)
        self._dispatch()
        if call.worker is None and call.urgency < Urgency.CAPTION:
            self._stop_a_caption()

    def _stop_a_caption(self) -> None:
        worker = next((one for one in self._serving if one.shows_caption), None)
        if worker is not None:
            worker.preempt(CallPreempted("a more urgent call waits"))

    def _dispatch(self) -> None:
        while self._idle and (queue := next(filter(None, self._queues), None)):
            worker = self._idle.popleft()
            # A worker that has just died may still be in the list.
            if worker.is_free:
                worker.run(queue.popleft())

    def _worker_is_free(self, worker: WorkerProcess) -> None:
        if worker in self._serving:
            self._idle.append(worker)
            self._dispatch()

    def _start_timer(self, call: PendingCall) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(self._rules.wait_s, self._waited_too_long, call)

    def _waited_too_long(self, call: PendingCall) -> None:
        if call in self._queues[call.urgency]:
            self._queues[call.urgency].remove(call)
            waited = f"no worker was free within {self._rules.wait_s:g} s"
            call.fail(WorkerBusy(waited) if self.is_ready else WorkerLost("died", self.reason))

    def _abandon(self, call: PendingCall) -> None:
        """Drop a call that its caller no longer waits for."""
        if call.worker is not None:
            call.worker.abandon()
        elif not call.future.cancelled():
            # Retrieve the error, also if the caller was cancelled at the same moment.
            call.future.exception()
        elif call in self._queues[call.urgency]:
            self._queues[call.urgency].remove(call)

    async def _supervise(self, at: int) -> None:
        """Keep one worker running until cancelled."""
        loop = asyncio.get_running_loop()
        backoff_s = BACKOFF_FIRST_S
        while True:
            began_s = loop.time()
            worker = WorkerProcess(self._specs, self._rules, self._worker_is_free)
            loss = await self._run_worker(worker)
            self.restarts += 1
            self.reason = loss.detail if isinstance(loss, WorkerLost) else str(loss)
            self._report_state("lost", self.reason)
            self._worker_failed(at, loss)
            if worker.was_abandoned or loop.time() - began_s >= HEALTHY_S:
                backoff_s = BACKOFF_FIRST_S
            log.warning("worker.lost", reason=self.reason, retry_s=backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _run_worker(self, worker: WorkerProcess) -> LinguaError:
        """Run one worker from start to end; return why it ended."""
        self._workers.add(worker)
        self._report_state("loading", "")
        try:
            loaded = await worker.start()
            self._register(loaded)
            self._serving.add(worker)
            log("worker.ready", pid=worker.pid, load_s=round(loaded.load_s, 3))
            self._report_state("ready", "")
            self._worker_is_free(worker)
            return await worker.wait()
        except (WorkerLost, EngineError, ConfigError) as error:
            return error
        finally:
            self._serving.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            await worker.close()
            self._workers.discard(worker)

    def _register(self, loaded: messages.EnginesLoaded) -> None:
        """Store the engines of the first worker; raises if a later one lacks any of them."""
        faults = {index: fault.error() for index, fault in loaded.faults.items()}
        for error in faults.values():
            if isinstance(error, ConfigError):
                raise error
        missing = [index for index in self.abouts if index in faults]
        if missing or not loaded.abouts:
            raise faults[min(missing or faults)]
        if not self.abouts:
            self.abouts = loaded.abouts
            self.failures = {i: e for i, e in faults.items() if isinstance(e, EngineError)}
            self.load_s = loaded.load_s
        assert self._started is not None
        if not self._started.done():
            self._started.set_result(None)

    def _worker_failed(self, at: int, loss: LinguaError) -> None:
        assert self._started is not None
        self._failed.add(at)
        is_last = len(self._failed) == self._rules.workers or isinstance(loss, ConfigError)
        if is_last and not self._started.done():
            self._started.set_exception(loss)

    def _supervisor_ended(self, supervisor: asyncio.Task[None]) -> None:
        """Log the failure of a supervisor, which is always a programming error."""
        error = None if supervisor.cancelled() else supervisor.exception()
        if error is not None:
            log.error("worker.not_kept", error=error)
            if self._started is not None and not self._started.done():
                self._started.set_exception(error)

    def _report_state(self, state: WorkerState, detail: str) -> None:
        if self._on_state is not None:
            # Not called directly: an error of the listener must not end the supervisor.
            asyncio.get_running_loop().call_soon(self._on_state, state, detail)
