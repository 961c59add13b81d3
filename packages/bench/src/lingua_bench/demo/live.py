"""The story of `lingua demo live`: a room of three, two nodes, one of them killed in mid-sentence.

A real scheduler on a free port with a private store, real node processes, real sockets; a real
`kill -9`. Only the translating is simulated, and its texts say so. The story checks what it claims:
`tell_live_story` returns what did not hold. How it looks is up to the `DemoOutput`.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import tempfile
from array import array
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import msgspec

from lingua_scheduler.config import load_settings
from lingua_scheduler.edge.server import NODE_PATH, SESSION_PATH, running_server
from lingua_wire.codec import JSON_PROTOCOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from lingua_bench.demo.placement import DemoOutput
    from lingua_scheduler.edge.server import RunningServer

SAMPLE_RATE = 16_000
FRAME_MS = 100
SENTENCES = 6
FRAMES_PER_SENTENCE = 12
# The sentence during which the first node is killed.
KILL_AT = 2
WAIT_S = 30.0
POLL_S = 0.01
NODE_DELAY_MS = 400


@dataclass(slots=True)
class DemoParticipant:
    """A participant of the room, with a socket and the messages received on it."""

    name: str
    language: str
    socket: aiohttp.ClientWebSocketResponse
    session: str = ""
    heard: list[dict[str, Any]] = field(default_factory=list)

    async def send(self, kind: str, **fields: Any) -> None:
        """Send one message."""
        await self.socket.send_str(msgspec.json.encode({"type": kind, **fields}).decode())

    async def wait_for(self, *kinds: str) -> dict[str, Any]:
        """Return the next message of these types; others are kept."""
        async with asyncio.timeout(WAIT_S):
            while True:
                message: dict[str, Any] = msgspec.json.decode(await self.socket.receive_str())
                self.heard.append(message)
                if message["type"] in kinds:
                    return message


async def tell_live_story(screen: DemoOutput) -> list[str]:
    """Run the whole story; returns what did not hold."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as data_dir:
        environ = {"LINGUA_DATA_DIR": data_dir, "LINGUA_SERVER__PORT": "0"}
        async with running_server(load_settings(None, environ)) as server:
            screen.title("A scheduler, two nodes")
            screen.say(f"scheduler at {server.url}, its store is a private process of its own")
            async with node_processes(server, ("node-a", "node-b")) as nodes:
                await until_ready(server, 2)
                screen.table(*fleet(server))
                await screen.pause()
                await speak_in_a_room(screen, server, nodes, problems)
    return problems


async def speak_in_a_room(
    screen: DemoOutput,
    server: RunningServer,
    nodes: dict[str, asyncio.subprocess.Process],
    problems: list[str],
) -> None:
    """Let Ana speak English to Ben and Cleo; kill a node while it works for her."""
    async with aiohttp.ClientSession() as http:
        ana, ben, cleo = [
            await enter(http, server, name, code)
            for name, code in (("Ana", "en"), ("Ben", "es"), ("Cleo", "fr"))
        ]
        await gather_in_room(ana, ben, cleo)
        screen.title("Ana speaks English; Ben hears Spanish, Cleo French")
        listening = [asyncio.create_task(listen(screen, person)) for person in (ben, cleo)]
        for number in range(SENTENCES):
            await say_sentence(ana)
            if number == KILL_AT:
                await kill_busy_node(screen, server, nodes, problems)
        outcomes = await asyncio.gather(*listening)
        await ana.send("session_close", session_id=ana.session, reason="done")
        closed = await ana.wait_for("session_close_ack")
        judge(screen, dict(zip(("Ben", "Cleo"), outcomes, strict=True)), closed, problems)
        for person in (ana, ben, cleo):
            await person.socket.close()


async def enter(
    http: aiohttp.ClientSession, server: RunningServer, name: str, code: str
) -> DemoParticipant:
    """Open a session."""
    socket = await http.ws_connect(f"{server.url}{SESSION_PATH}", protocols=(JSON_PROTOCOL,))
    person = DemoParticipant(name, code, socket)
    target = "es" if code == "en" else "en"
    await person.send(
        "session_init",
        client_version="demo",
        platform="demo",
        src_lang=code,
        tgt_lang=target,
        audio_format="pcm16",
        sample_rate=SAMPLE_RATE,
    )
    person.session = (await person.wait_for("session_init_ack"))["session_id"]
    return person


async def gather_in_room(host: DemoParticipant, *guests: DemoParticipant) -> None:
    """Create a room and let the guests in."""
    await host.send("room_create", display_name=host.name, preferred_lang=host.language)
    code = (await host.wait_for("room_create_ack"))["room_code"]
    for guest in guests:
        await guest.send(
            "room_join", room_code=code, display_name=guest.name, preferred_lang=guest.language
        )
        await guest.wait_for("room_members")


async def say_sentence(person: DemoParticipant) -> None:
    """Stream one sentence, somewhat faster than people speak."""
    for number in range(FRAMES_PER_SENTENCE):
        await person.socket.send_bytes(voice(number))
        await asyncio.sleep(FRAME_MS / 4000)
    seq = sum(message["type"] == "utterance_accepted" for message in person.heard)
    await person.send("audio_chunk", session_id=person.session, seq=seq, is_final=True)
    accepted = await person.wait_for("utterance_accepted")
    assert accepted["session_id"] == person.session


async def kill_busy_node(
    screen: DemoOutput,
    server: RunningServer,
    nodes: dict[str, asyncio.subprocess.Process],
    problems: list[str],
) -> None:
    """End a node that has a job, as a crash would."""
    instance = server.instance
    busy: list[str] = []

    def is_busy() -> bool:
        busy[:] = [job.node for job in instance.jobs if job.node]
        return bool(busy)

    await until(is_busy)
    name = busy[0]
    victim = nodes[name]
    victim.send_signal(signal.SIGKILL)
    await victim.wait()
    screen.say(f"kill -9 {victim.pid}: {name} died with work in progress", "bad")
    await until(lambda: name not in instance.nodes)
    survivors = set(nodes) - {name}
    if not survivors:
        problems.append("no node survived")
    screen.say(f"its jobs go on at {', '.join(sorted(survivors))}", "note")


async def listen(screen: DemoOutput, person: DemoParticipant) -> list[dict[str, Any]]:
    """Read the outcomes as they come."""
    outcomes: list[dict[str, Any]] = []
    while len(outcomes) < SENTENCES:
        message = await person.wait_for("translation_result", "missing_result")
        outcomes.append(message)
        text = message.get("text_translated") or f"({message.get('reason')})"
        parts = message.get("timeline") or {}
        total, retried = parts.get("total_ms", 0), parts.get("retry_ms", 0)
        note = f", {retried} ms of it lost with the dead node" if retried else ""
        line = f"{person.name:<5}#{message['utterance_index']}  {text}  [{total} ms{note}]"
        screen.say(line, "wait" if retried else "good")
    return outcomes


def judge(
    screen: DemoOutput,
    outcomes: dict[str, list[dict[str, Any]]],
    closed: dict[str, Any],
    problems: list[str],
) -> None:
    """Check order and completeness, and print the account of the speech."""
    screen.title("The account of the speech")
    for name, messages in outcomes.items():
        order = [message["utterance_index"] for message in messages]
        if order != list(range(SENTENCES)):
            problems.append(f"{name} got the sentences as {order}")
        translated = sum(message["type"] == "translation_result" for message in messages)
        if translated != SENTENCES:
            problems.append(f"{name} got {translated} of {SENTENCES} translations")
        screen.say(f"{name}: {len(order)} outcomes for {SENTENCES} sentences, in order")
    coverage = closed["coverage"]
    if coverage["delivered_ms"] != coverage["admitted_ms"]:
        problems.append(f"not all speech was delivered: {coverage}")
    admitted, delivered = coverage["admitted_ms"], coverage["delivered_ms"]
    screen.say(f"{admitted} ms of speech admitted, {delivered} ms delivered, 0 ms unaccounted for")


@asynccontextmanager
async def node_processes(
    server: RunningServer, names: tuple[str, ...]
) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    """Run nodes as processes of their own."""
    url = server.url.replace("http", "ws", 1) + NODE_PATH
    processes: dict[str, asyncio.subprocess.Process] = {}
    try:
        for name in names:
            options = f"--url {url} --node-id {name} --pairs en:es,en:fr --delay-ms {NODE_DELAY_MS}"
            processes[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "lingua_cli", "node", "--simulate", *options.split()),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ},
            )
        yield processes
    finally:
        for process in processes.values():
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(process.wait() for process in processes.values()))


async def until_ready(server: RunningServer, count: int) -> None:
    """Wait until so many nodes may get work."""
    nodes = server.instance.nodes
    await until(lambda: sum(node.status == "ready" for node in nodes.values()) >= count)


async def until(holds: Callable[[], bool]) -> None:
    """Wait, within a bound, until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 the truth is in a process that sends no event
            await asyncio.sleep(POLL_S)


def fleet(server: RunningServer) -> tuple[tuple[str, ...], list[tuple[str | int, ...]]]:
    """Return the nodes as a table."""
    nodes = server.instance.nodes.values()
    rows = [(node.id, node.status, node.max_jobs) for node in nodes]
    return ("node", "status", "slots"), sorted(rows)


def voice(number: int) -> bytes:
    """Return a frame of something that sounds like a vowel."""
    count = SAMPLE_RATE * FRAME_MS // 1000
    start = number * count
    return array(
        "h",
        (
            int(6000 * math.sin(at / 20) * (1.2 + math.sin(at / 900)))
            for at in range(start, start + count)
        ),
    ).tobytes()
