"""`lingua bench rooms`: a room in which most members have stopped reading, and its cost.

One real scheduler, one real store, a node whose results carry as much audio as is asked for, one
speaker and one listener that reads. First without, then with members that do not read: the latency
of the reading listener, the memory of the scheduler and of the store, and what remains of it when
the slow members have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from lingua_bench.chaos.checker import percentile
from lingua_bench.chaos.marked_audio import CHUNK_BYTES, SAMPLE_RATE
from lingua_bench.chaos.process import until
from lingua_bench.chaos.scheduler_process import SchedulerProcess
from lingua_bench.chaos.store import running_store
from lingua_bench.live_usage import usage_of
from lingua_node import Job, Node, Result
from lingua_wire.codec import CLIENT_MESSAGES, MSGPACK_PROTOCOL, SERVER_MESSAGES
from lingua_wire.from_client import AudioChunk, RoomCreate, RoomJoin, SessionInit
from lingua_wire.socket_client import Socket, SocketCodecs, open_socket
from lingua_wire.to_client import (
    RoomCreateAck,
    RoomMembers,
    SessionInitAck,
    TranslationResult,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lingua_bench.chaos.report import Tell
    from lingua_bench.chaos.store import ChaosStore

ANSWER_S: Final = 30.0
SILENCE_S: Final = 600.0
SOURCE, TARGET = "zh", "en"
SETTLE_S: Final = 3.0
LOOK_S: Final = 0.1
AT_ONCE: Final = 20
# The receive buffer of a slow reader. It is on this machine, and would by default be megabytes: a
# member whose unread data fits there is not slow yet.
UNREAD_BYTES_MAX: Final = 32 * 1024
# Room for all members, cuts only by the speaker, and a machine that is meant to be busy.
SETTINGS: Final = {
    "LINGUA_DEPLOYMENT_MODE": "cross_instance",
    "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
    "LINGUA_SEGMENTATION__HANGOVER_MANUAL_MS": "0",
    "LINGUA_SEGMENTATION__PAUSE_MS": "0",
    "LINGUA_SEGMENTATION__VOICE_DETECTOR": "off",
}
# The limits of the measurement.
INSTANCE_MB_MAX, STORE_MB_MAX, SLOWER_MAX = 150.0, 1.0, 1.2


@dataclass(frozen=True, slots=True)
class SlowReaderPlan:
    """The size of the measurement."""

    slow: int = 200
    result_bytes: int = 256 * 1024
    # Utterances without and with the slow members, and the time between two.
    utterances: int = 100
    every_s: float = 0.2


QUICK: Final = SlowReaderPlan(utterances=40)
FULL: Final = SlowReaderPlan()


@dataclass(frozen=True, slots=True)
class SlowReport:
    """The results; memory in megabytes beyond the value before the slow members joined."""

    slow: int
    result_bytes: int
    utterances: int
    alone_p50_ms: float
    alone_p99_ms: float
    among_p50_ms: float
    among_p99_ms: float
    instance_mb_before: float
    instance_mb_grown: float
    instance_mb_kept: float
    store_mb_per_utterance: float
    # Results that the reading listener did not receive; must be 0.
    unheard: int

    @property
    def problems(self) -> list[str]:
        """Return the violated limits."""
        slower = self.among_p99_ms / max(0.001, self.alone_p99_ms)
        return [
            text
            for text, is_so in {
                f"the scheduler grew by {self.instance_mb_grown:.0f} MB": (
                    self.instance_mb_grown > INSTANCE_MB_MAX
                ),
                f"the store grew by {self.store_mb_per_utterance:.2f} MB per utterance": (
                    self.store_mb_per_utterance > STORE_MB_MAX
                ),
                f"p99 of who reads is {slower:.2f} times what it was": slower > SLOWER_MAX,
                f"{self.unheard} results were not received": self.unheard > 0,
            }.items()
            if is_so
        ]


class RawRoomMember:
    """One socket in the room, in MessagePack, without the SDK."""

    def __init__(self) -> None:
        self.session = self.room = ""
        self.heard_at: dict[int, float] = {}
        self.socket: Socket[Any, Any]
        self._seq = 0
        self._change = asyncio.Event()

    async def open(self, url: str, source: str, target: str) -> None:
        """Connect and open a session."""
        codecs = SocketCodecs(SERVER_MESSAGES, CLIENT_MESSAGES, (MSGPACK_PROTOCOL,))
        self.socket = await open_socket(url, codecs, self._take, silence_s=SILENCE_S)
        self.socket.send(
            SessionInit(
                src_lang=source, tgt_lang=target, audio_format="pcm16", sample_rate=SAMPLE_RATE
            )
        )
        await self._until(lambda: bool(self.session))

    async def create(self) -> str:
        """Create the room."""
        self.socket.send(RoomCreate(preferred_lang=SOURCE))
        await self._until(lambda: bool(self.room))
        return self.room

    async def join(self, code: str) -> None:
        """Enter the room."""
        self.socket.send(RoomJoin(room_code=code, preferred_lang=TARGET))
        await self._until(lambda: bool(self.room))

    def say(self, chunks: int = 1) -> float:
        """Send one utterance; return the time."""
        payload = b"\x00\x30\x00\xd0" * (CHUNK_BYTES // 4)
        for chunk in (*(payload,) * chunks, None):
            self.socket.send(
                AudioChunk(
                    session_id=self.session, seq=self._seq, is_final=chunk is None, payload=chunk
                )
            )
            self._seq += 1
        return monotonic()

    async def heard(self, index: int) -> bool:
        """Wait for the result of an utterance; return whether it came."""
        try:
            await self._until(lambda: index in self.heard_at)
        except TimeoutError:
            return False
        return True

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(ANSWER_S):
            while not condition():
                self._change.clear()
                await self._change.wait()

    def _take(self, message: object) -> None:
        if isinstance(message, SessionInitAck):
            self.session = message.session_id
        elif isinstance(message, (RoomCreateAck, RoomMembers)):
            self.room = message.room_code
        elif isinstance(message, TranslationResult):
            self.heard_at.setdefault(message.utterance_index, monotonic())
        self._change.set()


class _Room:
    """The room with its members, and the measurements there."""

    def __init__(self, plan: SlowReaderPlan, instance: SchedulerProcess, store: ChaosStore) -> None:
        self._plan = plan
        self._instance = instance
        self._store = store
        self.speaker, self.reader = RawRoomMember(), RawRoomMember()
        self.said = 0
        self.unheard = 0
        self.most_kb = 0

    async def fill(self) -> None:
        """Let the speaker and the reading listener enter."""
        url = self._instance.client_url()
        await self.speaker.open(url, SOURCE, TARGET)
        await self.reader.open(url, TARGET, SOURCE)
        await self.reader.join(await self.speaker.create())

    async def add_slow(self) -> list[RawRoomMember]:
        """Let many more members enter, which read nothing from then on."""
        slow = [RawRoomMember() for _ in range(self._plan.slow)]
        for at in range(0, len(slow), AT_ONCE):
            await asyncio.gather(*(self._add(member) for member in slow[at : at + AT_ONCE]))
        for member in slow:
            member.socket.limit_unread(UNREAD_BYTES_MAX)
            member.socket.pause()
        return slow

    async def _add(self, member: RawRoomMember) -> None:
        await member.open(self._instance.client_url(), TARGET, SOURCE)
        await member.join(self.speaker.room)

    async def speak(self) -> list[float]:
        """Send the utterances; return the latencies of the reading listener in milliseconds."""
        waits: list[float] = []
        for _ in range(self._plan.utterances):
            index, next_at = self.said, monotonic() + self._plan.every_s
            said_at = self.speaker.say()
            self.said += 1
            if await self.reader.heard(index):
                waits.append((self.reader.heard_at[index] - said_at) * 1000)
            else:
                self.unheard += 1
            await asyncio.sleep(max(0.0, next_at - monotonic()))
        return waits

    def rss_kb(self) -> int:
        """Return the memory of the scheduler in RAM now."""
        return usage_of(self._instance.pid).rss_kb

    async def watch(self) -> None:
        """Keep the highest memory of the scheduler."""
        while True:
            self.most_kb = max(self.most_kb, self.rss_kb())
            await asyncio.sleep(LOOK_S)

    async def store_bytes(self) -> int:
        """Return the memory of the store."""
        about = (await self._store.server.ask("INFO", "memory")).decode()
        return int(about.partition("used_memory:")[2].split()[0])


async def measure_slow_readers(plan: SlowReaderPlan, tell: Tell) -> SlowReport:
    """Measure both cases, one after the other, on the same scheduler."""
    async with AsyncExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lingua-rooms-")))
        tell("starting store, scheduler, node", 0.0)
        room = await stack.enter_async_context(_running_room(place, plan))
        await room.fill()
        tell("without slow readers", 0.1)
        alone = await room.speak()
        before_kb, before_bytes = room.rss_kb(), await room.store_bytes()
        watching = asyncio.create_task(room.watch())
        tell(f"{plan.slow} stop reading", 0.4)
        slow = await room.add_slow()
        among = await room.speak()
        grown_bytes = await room.store_bytes() - before_bytes
        tell("after the slow readers have left", 0.9)
        for member in slow:
            member.socket.abort()
        await asyncio.sleep(SETTLE_S)
        watching.cancel()
        return SlowReport(
            slow=plan.slow,
            result_bytes=plan.result_bytes,
            utterances=plan.utterances,
            alone_p50_ms=percentile(alone, 0.5),
            alone_p99_ms=percentile(alone, 0.99),
            among_p50_ms=percentile(among, 0.5),
            among_p99_ms=percentile(among, 0.99),
            instance_mb_before=before_kb / 1024,
            instance_mb_grown=(room.most_kb - before_kb) / 1024,
            instance_mb_kept=(room.rss_kb() - before_kb) / 1024,
            store_mb_per_utterance=grown_bytes / plan.utterances / 2**20,
            unheard=room.unheard,
        )


@asynccontextmanager
async def _running_room(place: Path, plan: SlowReaderPlan) -> AsyncIterator[_Room]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(running_store(place / "store"))
        members = {"LINGUA_ROOMS__MEMBERS_MAX": str(plan.slow + 50)}
        instance = SchedulerProcess(0, place, SETTINGS | members | store.settings())
        stack.push_async_callback(instance.kill)
        await instance.start()
        await stack.enter_async_context(_running_node(instance.node_url(), plan.result_bytes))

        async def is_ready() -> bool:
            return await store.ready_nodes() == 1

        await until(is_ready, ANSWER_S, "the node is ready")
        yield _Room(plan, instance, store)


@asynccontextmanager
async def _running_node(url: str, result_bytes: int) -> AsyncIterator[None]:
    sound = bytes(result_bytes)
    node = Node(
        url,
        node_id="loud",
        pairs=[f"{SOURCE}>{TARGET}"],
        max_jobs=64,
        reports_usage=False,
        watch=lambda *_: None,
    )

    @node.job
    async def translate(job: Job) -> Result:
        text = str(job.utterance_index)
        return Result(text_asr=text, text_translated=text, tts_audio=sound)

    serving = asyncio.create_task(node.serve())
    try:
        yield
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
