"""`lingua bench rooms`: a room in which most have stopped reading, and what that costs the others.

One real scheduler, one real store, a node whose results carry as much sound as is asked for, one
speaker and one listener who reads. First without, then with the ones who do not read: the wait of
the one who reads, the memory of the scheduler and of the store, and what is left of it when the
slow ones are gone.
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

from lingua_scheduler.bench.chaos.cast import Instance
from lingua_scheduler.bench.chaos.checker import percentile
from lingua_scheduler.bench.chaos.process import until
from lingua_scheduler.bench.chaos.speech import CHUNK_BYTES, SAMPLE_RATE
from lingua_scheduler.bench.chaos.store import running_store
from lingua_scheduler.bench.live_usage import usage_of
from lingua_scheduler.dial import Dialect, Socket, dial
from lingua_scheduler.messages.codec import CLIENT_MESSAGES, MSGPACK_PROTOCOL, SERVER_MESSAGES
from lingua_scheduler.messages.from_client import AudioChunk, RoomCreate, RoomJoin, SessionInit
from lingua_scheduler.messages.to_client import (
    RoomCreateAck,
    RoomMembers,
    SessionInitAck,
    TranslationResult,
)
from lingua_scheduler.node import Job, Node, Result

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lingua_scheduler.bench.chaos.report import Tell
    from lingua_scheduler.bench.chaos.store import Store

ANSWER_S: Final = 30.0
SILENCE_S: Final = 600.0
SOURCE, TARGET = "zh", "en"
SETTLE_S: Final = 3.0
LOOK_S: Final = 0.1
AT_ONCE: Final = 20
# What the machine of a slow reader keeps unread for it. Theirs is this one, and left to itself it
# would take megabytes for each: who has them unread is not slow yet.
UNREAD_BYTES_MAX: Final = 32 * 1024
# Room for all of them, cuts where the speaker says, and a machine that is meant to be busy.
SETTINGS: Final = {
    "LINGUA_DEPLOYMENT_MODE": "cross_instance",
    "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
    "LINGUA_SEGMENTATION__HANGOVER_MANUAL_MS": "0",
    "LINGUA_SEGMENTATION__PAUSE_MS": "0",
    "LINGUA_SEGMENTATION__VOICE_DETECTOR": "off",
}
# What is asked of it.
INSTANCE_MB_MAX, STORE_MB_MAX, SLOWER_MAX = 150.0, 1.0, 1.2


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of it."""

    slow: int = 200
    result_bytes: int = 256 * 1024
    # Utterances without and with the slow ones, and the time between two.
    utterances: int = 100
    every_s: float = 0.2


QUICK: Final = Plan(utterances=40)
FULL: Final = Plan()


@dataclass(frozen=True, slots=True)
class SlowReport:
    """What was measured; memory in megabytes beyond what it was before the slow ones came."""

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
    # Of the one who reads; none may be.
    unheard: int

    @property
    def problems(self) -> list[str]:
        """Return what is not as it must be."""
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
                f"{self.unheard} results were not heard": self.unheard > 0,
            }.items()
            if is_so
        ]


class Member:
    """One socket in the room, in MessagePack, without the SDK."""

    def __init__(self) -> None:
        self.session = self.room = ""
        self.heard_at: dict[int, float] = {}
        self.socket: Socket[Any, Any]
        self._seq = 0
        self._change = asyncio.Event()

    async def open(self, url: str, source: str, target: str) -> None:
        """Connect and have a session."""
        dialect = Dialect(SERVER_MESSAGES, CLIENT_MESSAGES, (MSGPACK_PROTOCOL,))
        self.socket = await dial(url, dialect, self._take, silence_s=SILENCE_S)
        self.socket.send(
            SessionInit(
                src_lang=source, tgt_lang=target, audio_format="pcm16", sample_rate=SAMPLE_RATE
            )
        )
        await self._until(lambda: bool(self.session))

    async def create(self) -> str:
        """Make the room."""
        self.socket.send(RoomCreate(preferred_lang=SOURCE))
        await self._until(lambda: bool(self.room))
        return self.room

    async def join(self, code: str) -> None:
        """Enter the room."""
        self.socket.send(RoomJoin(room_code=code, preferred_lang=TARGET))
        await self._until(lambda: bool(self.room))

    def say(self) -> float:
        """Say one utterance; returns when."""
        payload = b"\x00\x30\x00\xd0" * (CHUNK_BYTES // 4)
        for chunk in (payload, None):
            self.socket.send(
                AudioChunk(
                    session_id=self.session, seq=self._seq, is_final=chunk is None, payload=chunk
                )
            )
            self._seq += 1
        return monotonic()

    async def heard(self, index: int) -> bool:
        """Wait for the result of an utterance; tells whether it came."""
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
    """The room with who is in it, and what is measured there."""

    def __init__(self, plan: Plan, instance: Instance, store: Store) -> None:
        self._plan = plan
        self._instance = instance
        self._store = store
        self.speaker, self.reader = Member(), Member()
        self.said = 0
        self.unheard = 0
        self.most_kb = 0

    async def fill(self) -> None:
        """Have the speaker and the one who reads sit in it."""
        url = self._instance.client_url()
        await self.speaker.open(url, SOURCE, TARGET)
        await self.reader.open(url, TARGET, SOURCE)
        await self.reader.join(await self.speaker.create())

    async def add_slow(self) -> list[Member]:
        """Have many more enter and read nothing from then on."""
        slow = [Member() for _ in range(self._plan.slow)]
        for at in range(0, len(slow), AT_ONCE):
            await asyncio.gather(*(self._add(member) for member in slow[at : at + AT_ONCE]))
        for member in slow:
            member.socket.keep_unread(UNREAD_BYTES_MAX)
            member.socket.pause()
        return slow

    async def _add(self, member: Member) -> None:
        await member.open(self._instance.client_url(), TARGET, SOURCE)
        await member.join(self.speaker.room)

    async def speak(self) -> list[float]:
        """Say what is to be said; returns how long the one who reads waited, in milliseconds."""
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
        """Return how much of the scheduler is in RAM now."""
        return usage_of(self._instance.pid).rss_kb

    async def watch(self) -> None:
        """Remember the most the scheduler ever had."""
        while True:
            self.most_kb = max(self.most_kb, self.rss_kb())
            await asyncio.sleep(LOOK_S)

    async def store_bytes(self) -> int:
        """Return what the store has in memory."""
        about = (await self._store.server.ask("INFO", "memory")).decode()
        return int(about.partition("used_memory:")[2].split()[0])


async def measure_slow_readers(plan: Plan, tell: Tell) -> SlowReport:
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
        tell("they are gone", 0.9)
        for member in slow:
            member.socket.abort()
        await asyncio.sleep(SETTLE_S)
        watching.cancel()
        return SlowReport(
            plan.slow, plan.result_bytes, plan.utterances,
            percentile(alone, 0.5), percentile(alone, 0.99),
            percentile(among, 0.5), percentile(among, 0.99),
            before_kb / 1024, (room.most_kb - before_kb) / 1024,
            (room.rss_kb() - before_kb) / 1024, grown_bytes / plan.utterances / 2**20,
            room.unheard,
        )  # fmt: skip


@asynccontextmanager
async def _running_room(place: Path, plan: Plan) -> AsyncIterator[_Room]:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(running_store(place / "store"))
        members = {"LINGUA_ROOMS__MEMBERS_MAX": str(plan.slow + 50)}
        instance = Instance(0, place, SETTINGS | members | store.settings())
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
        url, node_id="loud", pairs=[f"{SOURCE}>{TARGET}"], max_jobs=64, reports_usage=False,
        watch=lambda *_: None,
    )  # fmt: skip

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
