"""Several worker processes behind one queue: what the node calls when it wants an engine.

Every worker has all engines of the specs and does one call at a time; calls wait in order for the
next that is free. A worker that is lost takes only its own call with it and is replaced by itself,
more slowly each time while it does not last. Which engines there are is settled by the first worker
that has loaded: a later one that lacks any of them is not taken into service.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from lingua_scheduler.errors import ConfigError, LinguaError
from lingua_scheduler.logs import EventLog
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import About, EngineError
from lingua_scheduler.speech.host.worker import Errand, Worker, WorkerLost, WorkerRules

if TYPE_CHECKING:
    from lingua_scheduler.speech.host import wire
    from lingua_scheduler.speech.plugins import Spec

BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 10.0
# A worker that served for so long was healthy: its loss says nothing of the next.
HEALTHY_S: Final = 60.0

State = Literal["ready", "lost", "loading"]
Tell = Callable[[State, str], object]

log = EventLog("speech.host")


class CrewRules(WorkerRules, frozen=True, kw_only=True):
    """How many workers there are and how they are kept."""

    workers: int = 1
    # How many calls may wait, beside those that are being done, and for how long.
    queue_max: int = 64
    wait_s: float = 60.0


class WorkerBusy(LinguaError):
    """All workers have work and too many calls wait, or this one waited for too long."""


class Crew:
    """Workers for one set of engines; made, started, closed on one event loop."""

    def __init__(
        self, specs: Sequence[Spec], rules: CrewRules | None = None, watch: Tell | None = None
    ) -> None:
        self._specs = tuple(specs)
        self._rules = rules or CrewRules()
        # Told what becomes of workers: ("loading" | "ready" | "lost", detail).
        self._watch = watch
        self._ids = itertools.count(1)
        # Calls that wait, in order; workers that have loaded; those of them without work.
        self._queue: deque[Errand] = deque()
        self._serving: set[Worker] = set()
        self._idle: deque[Worker] = deque()
        # All workers with a process.
        self._workers: set[Worker] = set()
        self._keepers: list[asyncio.Task[None]] = []
        # Resolved when the first worker has loaded, or all have failed; which have by now.
        self._begun: asyncio.Future[None] | None = None
        self._failed: set[int] = set()
        self._is_closed = False
        # By index of the spec: what was loaded, and why the others were not.
        self.abouts: dict[int, About] = {}
        self.failures: dict[int, EngineError] = {}
        # How long loading took the first time.
        self.load_s = 0.0
        # Workers that were lost, and why the last one was.
        self.restarts = 0
        self.reason = ""

    @property
    def is_ready(self) -> bool:
        """Tell whether there is a worker that has loaded."""
        return bool(self._serving)

    @property
    def pids(self) -> list[int]:
        """Return the ids of all worker processes."""
        return sorted(worker.pid for worker in self._workers if worker.pid)

    @property
    def waiting(self) -> int:
        """Return how many calls wait for a worker."""
        return len(self._queue)

    async def start(self) -> None:
        """Load; at least one engine works in at least one worker then.

        Raises `ConfigError` if any spec is impossible, otherwise the first spec's `EngineError` if
        none works, or `WorkerLost` if every worker was lost; nothing is left behind then.
        """
        assert not self._keepers, "a crew is started once"
        if self._is_closed:
            raise WorkerLost("closed", "the crew is closed")
        for spec in self._specs:
            plugins.check(spec)
        if not self._specs:
            raise ConfigError("engines", "there is none")
        loop = asyncio.get_running_loop()
        self._begun = loop.create_future()
        self._keepers = [loop.create_task(self._keep(at)) for at in range(self._rules.workers)]
        for keeper in self._keepers:
            keeper.add_done_callback(self._kept)
        try:
            await self._begun
        except BaseException:
            await self.close()
            raise

    async def call(
        self,
        index: int,
        *arguments: object,
        timeout_s: float,
        partial: Callable[[str], object] | None = None,
    ) -> Any:
        """Ask the engine of that spec; it may work for `timeout_s`, beside the time in the queue.

        Raises `EngineError`, `WorkerLost` or `WorkerBusy`. Cancelled, it lets go at once; the
        worker is free again when the engine has noticed.
        """
        if index in self.failures:
            raise self.failures[index].with_traceback(None)
        assert index in self.abouts, "no engine of that index was loaded"
        errand = Errand(next(self._ids), index, arguments, timeout_s)
        errand.partial = partial
        self._give(errand)
        # Most calls find a free worker and need no clock of their own here.
        clock = self._clock(errand) if errand.worker is None else None
        try:
            return await errand.future
        finally:
            self._leave(errand)
            if clock is not None:
                clock.cancel()

    async def close(self) -> None:
        """End all workers within a bound; calls that are not over fail, as does `start`."""
        is_first, self._is_closed = not self._is_closed, True
        closed = WorkerLost("closed", "the node closes its workers")
        for errand in self._queue:
            errand.fail(closed)
        self._queue.clear()
        if self._begun is not None and not self._begun.done():
            self._begun.set_exception(closed)
        for keeper in self._keepers:
            # Once: a second time would interrupt what the first began.
            if is_first:
                keeper.cancel()
        if self._keepers:
            await asyncio.wait(self._keepers)

    def _give(self, errand: Errand) -> None:
        if self._is_closed:
            raise WorkerLost("closed", "the crew is closed")
        if len(self._queue) >= self._rules.queue_max and not self._idle:
            raise WorkerBusy(f"{len(self._queue)} calls wait for a worker")
        self._queue.append(errand)
        self._dispatch()

    def _dispatch(self) -> None:
        while self._queue and self._idle:
            worker = self._idle.popleft()
            # One that has died is told to us a moment later.
            if worker.is_free:
                worker.run(self._queue.popleft())

    def _freed(self, worker: Worker) -> None:
        if worker in self._serving:
            self._idle.append(worker)
            self._dispatch()

    def _clock(self, errand: Errand) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(self._rules.wait_s, self._waited_too_long, errand)

    def _waited_too_long(self, errand: Errand) -> None:
        if errand in self._queue:
            self._queue.remove(errand)
            waited = f"no worker was free within {self._rules.wait_s:g} s"
            errand.fail(WorkerBusy(waited) if self.is_ready else WorkerLost("died", self.reason))

    def _leave(self, errand: Errand) -> None:
        """Forget an errand that its caller no longer waits for."""
        if errand.worker is not None:
            errand.worker.abandon()
        elif not errand.future.cancelled():
            # Over, and seen, also if the caller was cancelled in the same moment.
            errand.future.exception()
        elif errand in self._queue:
            self._queue.remove(errand)

    async def _keep(self, at: int) -> None:
        """Keep one worker alive until cancelled."""
        loop = asyncio.get_running_loop()
        backoff_s = BACKOFF_FIRST_S
        while True:
            began_s = loop.time()
            worker = Worker(self._specs, self._rules, self._freed)
            loss = await self._live(worker)
            self.restarts += 1
            self.reason = loss.detail if isinstance(loss, WorkerLost) else str(loss)
            self._tell("lost", self.reason)
            self._failed_start(at, loss)
            if worker.was_abandoned or loop.time() - began_s >= HEALTHY_S:
                backoff_s = BACKOFF_FIRST_S
            log.warning("worker.lost", reason=self.reason, retry_s=backoff_s)
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_MAX_S)

    async def _live(self, worker: Worker) -> LinguaError:
        """Run one worker from its start to its end; return why it ended."""
        self._workers.add(worker)
        self._tell("loading", "")
        try:
            loaded = await worker.start()
            self._admit(loaded)
            self._serving.add(worker)
            log("worker.ready", pid=worker.pid, load_s=round(loaded.load_s, 3))
            self._tell("ready", "")
            self._freed(worker)
            return await worker.wait()
        except (WorkerLost, EngineError, ConfigError) as error:
            return error
        finally:
            self._serving.discard(worker)
            if worker in self._idle:
                self._idle.remove(worker)
            await worker.close()
            self._workers.discard(worker)

    def _admit(self, loaded: wire.Loaded) -> None:
        """Learn from the first worker what there is; raises if a later one has less."""
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
        assert self._begun is not None
        if not self._begun.done():
            self._begun.set_result(None)

    def _failed_start(self, at: int, loss: LinguaError) -> None:
        assert self._begun is not None
        self._failed.add(at)
        is_last = len(self._failed) == self._rules.workers or isinstance(loss, ConfigError)
        if is_last and not self._begun.done():
            self._begun.set_exception(loss)

    def _kept(self, keeper: asyncio.Task[None]) -> None:
        """Tell of a keeper that failed, which only a mistake of ours can bring about."""
        error = None if keeper.cancelled() else keeper.exception()
        if error is not None:
            log.error("worker.not_kept", error=error)
            if self._begun is not None and not self._begun.done():
                self._begun.set_exception(error)

    def _tell(self, state: State, detail: str) -> None:
        if self._watch is not None:
            # Not from here: an error of whoever watches must not end the keeping.
            asyncio.get_running_loop().call_soon(self._watch, state, detail)
