"""The client SDK resumes at real servers: two instances over one store, with moves and kills.

Each chunk carries its number, and the node reports the numbers that it received: the outcomes show
every chunk that was lost, doubled or out of order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from edge.live_server import QUICK
from lingua_client import Event, Notice, Options, Outcome, Reset, Session, connect
from lingua_node import Job, Node, Result
from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.server import NODE_PATH, SESSION_PATH, running_server
from servers import _die_with_parent, free_port, start_server, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from servers import Server

pytestmark = pytest.mark.stress

BOUND_S = 20.0
# 100 ms of opus: opaque to the server, so that it finds no silence in it.
CHUNK_BYTES = 300
CHUNK_MS = 100


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Server]:
    with start_server(tmp_path / "store", port=free_port(), unix=False) as server:
        yield server


def environment(store: Server, name: str, **settings: Any) -> dict[str, str]:
    chosen = QUICK | settings
    return {
        "LINGUA_DEPLOYMENT_MODE": "cross_instance",
        "LINGUA_REDIS__URL": f"redis://127.0.0.1:{store.port}",
        "LINGUA_INSTANCE_ID": name,
        "LINGUA_SERVER__PORT": "0",
        "LINGUA_NODES__RESOURCE_PERCENT_MAX": "100",
        **{f"LINGUA_{key.upper()}": str(value) for key, value in chosen.items()},
    }


class Stage:
    """Instances over one store, a node at one of them, and the sessions connected to them."""

    def __init__(self, store: Server, logs: Path, stack: AsyncExitStack) -> None:
        self._store = store
        self._logs = logs
        self._stack = stack

    async def instance(self, name: str, **settings: Any) -> str:
        """Serve in this process; return the address."""
        chosen = load_settings(None, environment(self._store, name, **settings))
        server = await self._stack.enter_async_context(running_server(chosen))
        return server.url

    async def process(self, name: str) -> tuple[asyncio.subprocess.Process, str]:
        """Serve in a process of its own; return it and its address."""
        return await self._stack.enter_async_context(self._process(name))

    async def node(self, *urls: str) -> None:
        """Serve a node that reports the chunks it received."""
        sockets = [url.replace("http", "ws", 1) + NODE_PATH for url in urls]
        await self._stack.enter_async_context(serving(Node(sockets, node_id="n1", **ANY_WORK)))

    async def session(self, *urls: str, **settings: Any) -> Session:
        """Open a session at the first of these."""
        sockets = [url.replace("http", "ws", 1) + SESSION_PATH for url in urls]
        chosen: dict[str, Any] = {"source": "en", "targets": ("es",), "audio_format": "opus"}
        return await self._stack.enter_async_context(connect(sockets, **(chosen | settings)))

    @asynccontextmanager
    async def _process(self, name: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
        with (self._logs / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "lingua_cli",
                "serve",
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=os.environ | environment(self._store, name),
                preexec_fn=_die_with_parent(os.getpid()),
            )
        try:
            assert process.stdout is not None
            line = await asyncio.wait_for(process.stdout.readline(), BOUND_S)
            assert line, f"{name} ended at once"
            yield process, next(word for word in line.decode().split() if word.startswith("http"))
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


ANY_WORK: dict[str, Any] = {"max_jobs": 64, "reports_usage": False, "watch": lambda _, __: None}


@asynccontextmanager
async def serving(node: Node) -> AsyncIterator[None]:
    node.job(tell)
    task = asyncio.create_task(node.serve())
    try:
        yield
    finally:
        node.stop()
        await asyncio.wait_for(task, BOUND_S)


async def tell(job: Job) -> Result:
    """Return the chunks of a job."""
    audio = job.audio
    numbers = [
        int.from_bytes(audio[at : at + 4], "big") for at in range(0, len(audio), CHUNK_BYTES)
    ]
    return Result(text_asr=",".join(map(str, numbers)), text_translated=job.tgt_lang)


def play(scenario: Callable[[Stage], Coroutine[Any, Any, None]], store: Server, logs: Path) -> None:
    async def whole() -> None:
        async with asyncio.timeout(90), AsyncExitStack() as stack:
            await scenario(Stage(store, logs, stack))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


def chunk(number: int) -> bytes:
    return number.to_bytes(4, "big") * (CHUNK_BYTES // 4)


class Ear:
    """Collects the events of a session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.events: list[Event] = []
        self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        async for event in self.session:
            self.events.append(event)

    @property
    def outcomes(self) -> list[Outcome]:
        return [event for event in self.events if isinstance(event, Outcome)]

    @property
    def accepted(self) -> int:
        """Return how many utterances were accepted."""
        notices = (event for event in self.events if isinstance(event, Notice))
        return sum(1 for notice in notices if notice.kind == "utterance_accepted")

    @property
    def chunks(self) -> list[int]:
        """Return the numbers of all chunks that were translated, in the order of outcomes."""
        return [int(number) for o in self.outcomes for number in o.text_asr.split(",") if number]

    async def hears(self, count: int) -> None:
        """Wait for this many outcomes."""
        await until(lambda: len(self.outcomes) >= count, BOUND_S, f"{count} outcomes")

    async def all_of(self, chunks: int) -> None:
        """Close, and check that each chunk was translated once, in order, in one session."""
        await self.session.close()
        await asyncio.wait_for(self._task, BOUND_S)
        assert [event for event in self.events if isinstance(event, Reset)] == []
        assert {(o.kind, o.reason) for o in self.outcomes} == {("translation", "")}
        assert self.chunks == [*range(chunks)]
        seqs = [outcome.seq for outcome in self.outcomes]
        assert seqs == sorted(set(seqs))


async def say(session: Session, first: int, count: int = 4, *, cut: bool = True) -> int:
    """Send chunks from a number on, and the end of the utterance; return the next number."""
    for number in range(first, first + count):
        await session.send(chunk(number))
        await asyncio.sleep(0.01)
    if cut:
        await session.cut()
    return first + count


def test_a_session_moves_between_instances_while_it_speaks(store: Server, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        urls = [await stage.instance("a"), await stage.instance("b")]
        await stage.node(*urls)
        session = await stage.session(*urls)
        ear, at = Ear(session), 0
        for number in range(20):
            at = await say(session, at, 2, cut=False)
            # In the middle of an utterance, right after its end, and between utterances.
            if number % 3 == 0:
                await asyncio.wait_for(session.move(), BOUND_S)
            at = await say(session, at, 2)
            if number % 3 == 1:
                await asyncio.wait_for(session.move(), BOUND_S)
            await asyncio.sleep(0.05)
        await ear.all_of(at)
        assert session.resumes >= 14

    play(scenario, store, tmp_path)


def test_a_session_goes_on_at_the_same_instance_with_what_it_has(
    store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        url = await stage.instance("a")
        await stage.node(url)
        session = await stage.session(url)
        ear, at = Ear(session), 0
        for _ in range(5):
            at = await say(session, at, 3, cut=False)
            await asyncio.wait_for(session.move(), BOUND_S)
            at = await say(session, at, 3)
            await asyncio.sleep(0.05)
        coverage = asyncio.create_task(session.close())
        await ear.all_of(at)
        ended = await coverage
        assert ended is not None
        assert ended.admitted_ms == ended.delivered_ms == at * CHUNK_MS

    play(scenario, store, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_instance_that_dies_or_stops_under_a_session_costs_nothing(
    number: signal.Signals, store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        process, dying = await stage.process("dying")
        staying = await stage.instance("staying")
        await stage.node(staying)
        session = await stage.session(dying, staying, options=Options(silence_s=2))
        ear, at = Ear(session), 0
        for turn in range(8):
            at = await say(session, at, 2, cut=False)
            if turn == 3:
                process.send_signal(number)
            at = await say(session, at, 2)
            await asyncio.sleep(0.1)
        await ear.all_of(at)
        assert session.resumes >= 1
        await asyncio.wait_for(process.wait(), BOUND_S)

    play(scenario, store, tmp_path)


def test_what_the_store_and_the_instance_lose_together_is_said_again(
    store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        process, dying = await stage.process("dying")
        staying = await stage.instance("staying")
        session = await stage.session(dying, staying, options=Options(silence_s=2))
        ear = Ear(session)
        at = await say(session, 0)
        await until(lambda: ear.accepted == 1, BOUND_S, "the first is accepted")
        store.ask("SAVE")
        # There is no node yet: this is accepted, without an outcome, when the store loses it.
        at = await say(session, at)
        await until(lambda: ear.accepted == 2, BOUND_S, "the second is accepted")
        process.kill()
        store.restart()
        await stage.node(staying)
        await ear.all_of(at)

    play(scenario, store, tmp_path)


def test_a_listener_in_a_room_moves_and_hears_everything_once(
    store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        urls = [await stage.instance("a"), await stage.instance("b")]
        await stage.node(*urls)
        speaker = await stage.session(urls[0])
        listener = await stage.session(*urls, source="es", targets="en")
        code = await speaker.create_room(preferred_lang="en")
        await listener.join_room(code, preferred_lang="es")
        ear, at = Ear(listener), 0
        talking = Ear(speaker)
        for turn in range(8):
            at = await say(speaker, at)
            if turn % 2:
                await asyncio.wait_for(listener.move(), BOUND_S)
            await asyncio.sleep(0.1)
        await until(lambda: len(ear.chunks) >= at, BOUND_S, "the listener heard everything")
        assert {outcome.speaker for outcome in ear.outcomes} == {speaker.id}
        assert talking.outcomes == []
        await ear.all_of(at)

    play(scenario, store, tmp_path)


def test_what_was_answered_while_nobody_listened_comes_with_the_next_connection(
    store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        urls = [await stage.instance("a"), await stage.instance("b")]
        await stage.node(*urls)
        session = await stage.session(*urls)
        ear, at = Ear(session), 0
        for _ in range(3):
            at = await say(session, at)
        session.move()
        at = await say(session, at)
        await until(lambda: ear.chunks == [*range(at)], BOUND_S, "all outcomes")
        await ear.all_of(at)

    play(scenario, store, tmp_path)


def test_speech_that_is_sent_as_fast_as_possible_is_not_refused(
    store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        url = await stage.instance("a", segmentation__hangover_manual_ms=0)
        await stage.node(url)
        session = await stage.session(url)
        ear = Ear(session)
        for number in range(120):
            await session.send(chunk(number))
            await session.cut()
        for number in range(120, 1500):
            await session.send(chunk(number))
        await ear.all_of(1500)

    play(scenario, store, tmp_path)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_session_that_loses_its_socket_while_it_is_closed_still_hears_everything(
    elsewhere: bool, store: Server, tmp_path: Path
) -> None:
    async def scenario(stage: Stage) -> None:
        urls = [await stage.instance("a"), await stage.instance("b")]
        await stage.node(*urls)
        for pause_s in (0, 0.002, 0.01, 0.03, 0.06):
            session = await stage.session(*(urls if elsewhere else urls[:1]))
            ear = Ear(session)
            at = await say(session, await say(session, 0), cut=False)
            closing = asyncio.create_task(session.close())
            await asyncio.sleep(pause_s)
            session.move()
            await asyncio.wait_for(closing, BOUND_S)
            await ear.all_of(at)

    play(scenario, store, tmp_path)
