"""A node of the older protocol, to try a scheduler before real nodes are moved to it.

It uses JSON without a subprotocol and knows only `node_register_ack`, `job_assign` and
`job_cancel`. It sends no acks and no boot id, sends heartbeats every 15 s, buffers the slices of
long speech without an answer, refuses jobs that it has seen before, and loses results while it is
disconnected. The work itself is simulated. New nodes use `Node`.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import KW_ONLY, dataclass, field
from time import time
from typing import TYPE_CHECKING, Any, Final

import msgspec
from picows import WSError

from lingua_node.addresses import addresses
from lingua_node.job import Job, JobFailed, Result, failure_message
from lingua_node.machine import MachineUsage
from lingua_node.node_socket import NodeSocket, open_node_socket
from lingua_node.registration import registration_of
from lingua_node.settings import DEFAULT_URL, NodeSettings, log_state
from lingua_node.simulate import Simulation
from lingua_node.stats import Stats
from lingua_wire.from_node import JobResult, NodeAsrPartial, NodeHeartbeat
from lingua_wire.to_node import JobAssign, JobCancel, NodeRegisterAck

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lingua_wire.from_node import FromNode
    from lingua_wire.to_node import SchedulerToNode

HEARTBEAT_S: Final = 15.0
RECONNECT_FIRST_S, RECONNECT_MAX_S = 5.0, 60.0
# The older node never forgets; here the oldest are dropped.
SEEN_MAX: Final = 100_000
SILENCE_S: Final = 60.0


@dataclass(eq=False)
class OldNode:
    """A simulated node of the older protocol: `serve` until `stop`."""

    # One address or several, tried in turn.
    url: str | Sequence[str] = DEFAULT_URL
    _: KW_ONLY
    # Without one the scheduler assigns an id, which the node keeps.
    node_id: str | None = None
    pairs: Sequence[str] = ()
    simulation: Simulation = field(default_factory=Simulation)
    heartbeat_s: float = HEARTBEAT_S
    reconnect_s: float = RECONNECT_FIRST_S
    # Called with ("connecting" | "registered" | "lost", detail).
    watch: Callable[[str, str], None] = log_state

    def __post_init__(self) -> None:
        self.stats = Stats()
        self._handler = self.simulation.handler()
        self._description = registration_of(NodeSettings(self.url, pairs=self.pairs))
        self._urls = itertools.cycle(addresses(self.url))
        self._socket: NodeSocket | None = None
        # On this socket, and how often on all.
        self._is_registered = False
        self._registrations = 0
        self._usage = MachineUsage(is_measured=False)
        self._timer: asyncio.TimerHandle | None = None
        # Job id -> its task; a cancelled job is not answered.
        self._tasks: dict[str, asyncio.Task[Result]] = {}
        # Ids of jobs, and utterances of sessions, seen so far; oldest first.
        self._seen: dict[object, None] = {}
        # Audio of a turn into one language whose last slice has not arrived yet.
        self._buffers: dict[tuple[str, str], bytes] = {}
        self._stop_asked = asyncio.Event()

    async def serve(self) -> None:
        """Stay connected until stopped or cancelled; refusals are not understood."""
        connecting = asyncio.create_task(self._stay_connected())
        stopping = asyncio.create_task(self._stop_asked.wait())
        try:
            await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connecting.result()
        finally:
            leftovers: list[asyncio.Task[Any]] = [connecting, stopping, *self._tasks.values()]
            for task in leftovers:
                task.cancel()
            await asyncio.wait(leftovers)

    def stop(self) -> None:
        """End `serve` now."""
        self._stop_asked.set()

    async def _stay_connected(self) -> None:
        wait_s = self.reconnect_s
        while True:
            url = next(self._urls)
            self.watch("connecting", f"to {url}")
            self._is_registered = False
            lost = await self._connect_once(url)
            wait_s = self.reconnect_s if self._is_registered else wait_s
            self.watch("lost", lost)
            await asyncio.sleep(wait_s)
            wait_s = min(RECONNECT_MAX_S, wait_s * 2)

    async def _connect_once(self, url: str) -> str:
        try:
            socket = await open_node_socket(url, (), self._handle, silence_s=SILENCE_S)
        except (OSError, TimeoutError, WSError) as error:
            return str(error) or "the scheduler did not answer"
        self._socket = socket
        try:
            self._register(socket)
            await socket.closed()
        except asyncio.CancelledError:
            await socket.finish()
            raise
        finally:
            self._socket = None
            if self._timer is not None:
                self._timer.cancel()
        return f"the connection was closed ({socket.close_code})"

    def _register(self, socket: NodeSocket) -> None:
        additions = dict.fromkeys(
            ("boot_id", "max_jobs", "sends_acks", "running", "token", "labels")
        )
        socket.send(msgspec.structs.replace(self._description, node_id=self.node_id, **additions))

    def _handle(self, message: SchedulerToNode) -> None:
        if isinstance(message, JobAssign):
            self._handle_assign(message)
        elif isinstance(message, JobCancel):
            task = self._tasks.pop(message.job_id, None)
            if task is not None:
                self.stats.cancelled += 1
                task.cancel()
        elif isinstance(message, NodeRegisterAck):
            self.stats.reconnects += 1 if self._registrations else 0
            self._registrations += 1
            self._is_registered = True
            self.node_id = message.node_id
            self._beat()
            self.watch("registered", f"as {message.node_id}")

    def _beat(self) -> None:
        self._send(
            NodeHeartbeat(
                node_id=self.node_id or "",
                timestamp=int(time() * 1000),
                resource_usage=self._usage.now(len(self._tasks)),
                installed_services=self._description.installed_services,
                capability_by_type=self._description.capability_by_type,
                language_capabilities=self._description.language_capabilities,
            )
        )
        self._timer = asyncio.get_running_loop().call_later(self.heartbeat_s, self._beat)

    def _handle_assign(self, message: JobAssign) -> None:
        seen = self._seen_before(message)
        if seen:
            self.stats.duplicates += 1
            self._answer(self._failure(message, JobFailed("PROCESSING_ERROR", seen)))
            return
        turn = (message.turn_id or message.job_id, message.tgt_lang)
        audio = self._buffers.pop(turn, b"") + message.audio
        if message.is_max_duration_triggered:
            self._buffers[turn] = audio
            return
        self._start(msgspec.structs.replace(message, audio=audio))

    def _seen_before(self, message: JobAssign) -> str:
        utterance = (message.session_id, message.utterance_index)
        if message.job_id in self._seen:
            return f"DUPLICATE_JOB_ID: {message.job_id}"
        if utterance in self._seen:
            return f"DUPLICATE_UTTERANCE_INDEX: {message.utterance_index}"
        self._seen[message.job_id] = self._seen[utterance] = None
        while len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return ""

    def _start(self, message: JobAssign) -> None:
        self.stats.jobs += 1
        job = Job(message, self.node_id or "", self._send)
        task = asyncio.create_task(self._handler(job))
        self._tasks[message.job_id] = task
        task.add_done_callback(lambda task: self._ended(job, task))

    def _ended(self, job: Job, task: asyncio.Task[Result]) -> None:
        if self._tasks.pop(job.job_id, None) is None or task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.stats.succeeded += 1
            self._answer(task.result().as_message(job, self.node_id or ""))
            return
        # The older node reports everything but a missing model as PROCESSING_ERROR.
        known = isinstance(error, JobFailed) and error.code == "MODEL_NOT_AVAILABLE"
        failed = error if known else JobFailed("PROCESSING_ERROR", str(error))
        self._answer(self._failure(job.assign, failed))

    def _failure(self, message: JobAssign, failed: BaseException) -> JobResult:
        assert isinstance(failed, JobFailed)
        self.stats.failed += 1
        return failure_message(message, self.node_id or "", failed)

    def _answer(self, result: JobResult) -> None:
        if self._socket is None:
            self.stats.lost_results += 1
        self._send(result)

    def _send(self, message: FromNode) -> None:
        if isinstance(message, NodeAsrPartial):
            message = msgspec.structs.replace(message, attempt_id=None)
        if self._socket is not None:
            self._socket.send(message)
