"""The cast of the live load: a scheduler, nodes and clients, all of them real processes.

    Scheduler          `lingua serve` with its private store
    Cradle ──> nodes   forked in milliseconds; each writes down what it started and ended
    Talker             one session; writes down what was sent and what came back

Used by `live_load.py` and the tests beside it. As a script it is the process of the nodes or of the
clients. All times are of the machine's one monotonic clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import aiohttp
import msgspec

from lingua_scheduler.node import Job, Node, Result

sys.path.append(str(Path(__file__).parents[1]))  # a script does not have it
import servers

BOUND_S = 30.0
AUDIO = b"\x01\x02" * 1000
SOURCE, TARGETS = "zh", ("en", "es")
ADDITIONS = {"audio_format": "pcm16", "sample_rate": 16_000, "ui_events": False}
# Into one language, into two at once, into the one or the other by turns.
KINDS = ("both", "either", "one", "one", "one")
# Nodes report the load of the machine they share with everything else here.
NEVER_TOO_BUSY = {"LINGUA_NODES__RESOURCE_PERCENT_MAX": "100"}


@dataclass(frozen=True, slots=True)
class Load:
    """What is played."""

    sessions: int
    utterances: int
    nodes: int
    max_jobs: int
    # Utterances a session may have under way, and how long it waits between two on average.
    window: int
    pause_s: float
    # How often a node is killed, and how often and how many at a time are frozen.
    kill_every_s: float
    freeze_every_s: float
    frozen_max: int
    # Nodes that nothing is done to just now: the others' work needs a place to go.
    well_min: int
    attempts_max: int = 3
    seed: int = 1
    # Everything must have had its outcome by then.
    bound_s: float = 300.0


class Scheduler:
    """A running `lingua serve`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, data_dir: Path) -> None:
        self.process = process
        self.url = url
        self.data_dir = data_dir

    def ws(self, path: str) -> str:
        return self.url.replace("http", "ws", 1) + path

    async def metrics(self) -> dict[str, float]:
        """Read every sample, and the sum over labels of each metric under its bare name."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/metrics") as answer:
            assert answer.status == 200, answer.status
            lines = (await answer.text()).splitlines()
        samples: Counter[str] = Counter()
        for line in lines:
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] += float(value)
                if "{" in name:
                    samples[name.partition("{")[0]] += float(value)
        return samples

    def ask(self, *words: str) -> Any:
        """Send a command to the private store."""
        with contextlib.closing(socket_to(self.data_dir / "store" / "server.sock")) as connection:
            return servers._exchange(connection, words)

    def leases(self, node: str = "*") -> int:
        """Count the slots that are taken, on one node or all."""
        return sum(self.ask("ZCARD", key) for key in self.ask("KEYS", f"*:leases:{node}"))

    def ready_nodes(self) -> int:
        """Count the nodes that may be given work."""
        keys = self.ask("KEYS", "*:node:*")
        return sum(self.ask("HGET", key, "status") == b"ready" for key in keys)

    def ready_socket(self, node: str) -> bytes:
        """Return what names the socket of a node that may be given work, else nothing."""
        status, conn = self.ask("HMGET", f"lingua:v1:{{c0}}:node:{node}", "status", "conn")
        return conn if status == b"ready" else b""

    async def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.terminate()
        async with asyncio.timeout(BOUND_S):
            return await self.process.wait()


def socket_to(path: Path) -> Any:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(str(path))
    return connection


@contextlib.asynccontextmanager
async def scheduler(place: Path, **settings: str) -> AsyncIterator[Scheduler]:
    """Run a scheduler on a free port; it is killed at the end if it has not ended before."""
    data_dir = place / "data"
    environment = os.environ | NEVER_TOO_BUSY | settings | {"LINGUA_DATA_DIR": str(data_dir)}
    command = [sys.executable, "-m", "lingua_scheduler", "serve", "--port", "0"]
    with (place / "scheduler.log").open("wb") as log:
        async with child(command, environment, log) as process:
            line = await said_by(process)
            url = next(word for word in line.split() if word.startswith("http"))
            yield Scheduler(process, url, data_dir)


@contextlib.asynccontextmanager
async def child(
    command: list[str], environment: dict[str, str] | None = None, log: Any = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process with pipes for a conversation; it dies with this one at the latest."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=environment,
        preexec_fn=servers._die_with_parent(os.getpid()),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def said_by(process: asyncio.subprocess.Process, bound_s: float = BOUND_S) -> str:
    """Wait for the next line of a process."""
    assert process.stdout is not None
    async with asyncio.timeout(bound_s):
        line = await process.stdout.readline()
    assert line, "the process ended without a word"
    return line.decode().strip()


def role(name: str, *arguments: object) -> list[str]:
    return [sys.executable, str(Path(__file__).resolve()), name, *map(str, arguments)]


class Records:
    """Lines of JSON in a file, written at once: what a killed process wrote is there."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, *items: object) -> None:
        os.write(self._file, msgspec.json.encode(items) + b"\n")


def recorded(path: Path) -> list[list[Any]]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """How the nodes of a cradle work."""

    max_jobs: int
    least_ms: float = 20
    most_ms: float = 200
    # Speech in every result.
    tts_bytes: int = 0


class Cradle:
    """Forks nodes that have everything imported already, so that a restart costs milliseconds."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._lock = asyncio.Lock()

    async def start(self, name: str) -> int:
        """Start a node process and return its pid, which stays its own while the cradle lives."""
        async with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{name}\n".encode())
            return int(await said_by(self._process))


@contextlib.asynccontextmanager
async def cradle(url: str, place: Path, kind: NodeKind) -> AsyncIterator[Cradle]:
    """Run a cradle; its nodes die with it."""
    described = msgspec.json.encode(kind).decode()
    with (place / "nodes.log").open("wb") as log:
        async with child(role("cradle", url, place, described), log=log) as process:
            yield Cradle(process)
            assert process.stdin is not None
            process.stdin.close()  # it ends its nodes and waits for them, so their CPU is counted
            async with asyncio.timeout(BOUND_S):
                await process.wait()


def be_cradle(url: str, place: str, kind: str) -> None:
    """Fork a node for every name that is read; without anybody to read from, end them all."""
    how = msgspec.json.decode(kind, type=NodeKind)
    # Never waited for before the end: a pid that was killed must not become another's.
    pids, parent = [], os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            servers._die_with_parent(parent)()
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1):
                os.dup2(silence, stream)
            be_node(url, line.strip(), Path(place), how)
            os._exit(0)
        pids.append(pid)
        print(pid, flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def be_node(url: str, name: str, place: Path, kind: NodeKind) -> None:
    """Work until killed; the result names the utterance and the attempt, for the checker."""
    note = Records(place / f"{os.getpid()}.node").note
    node = Node(url, node_id=name, pairs=[f"{SOURCE}>{code}" for code in TARGETS],
                max_jobs=kind.max_jobs, watch=lambda *_: None, reports_usage=False)  # fmt: skip
    chance = Random(f"{name} {os.getpid()}")
    running = 0

    @node.job
    async def translate(job: Job) -> Result:
        nonlocal running
        running += 1
        note("start", monotonic(), job.job_id, job.attempt_id, running, node.stats.refused)
        is_done = False
        try:
            await asyncio.sleep(chance.uniform(kind.least_ms, kind.most_ms) / 1000)
            is_done = True
        finally:
            running -= 1
            note("end", monotonic(), job.job_id, job.attempt_id, is_done)
        return Result(
            text_asr=f"{job.session_id} {job.utterance_index}",
            text_translated=f"{job.tgt_lang} {job.attempt_id}",
            tts_audio=bytes(kind.tts_bytes),
        )

    try:
        node.run()
    finally:
        note("exit", monotonic(), name)


class Talker:
    """One session: sends its utterances within a window and writes down what comes back."""

    def __init__(
        self, number: int, load: Load, note: Callable[..., None], *, is_old: bool = False
    ) -> None:
        self.number = number
        # A client of the older protocol: JSON, no subprotocol, none of the additions.
        self.is_old = is_old
        self._load = load
        self._note = note
        self._chance = Random(load.seed * 1000 + number)
        self._kind = "one" if is_old else KINDS[number % len(KINDS)]
        self.is_binary = number % 2 == 1 and not is_old
        self.session_id = ""
        # Utterance -> languages whose outcome has not come, and when each was sent.
        self.open: dict[int, set[str]] = {}
        self.sent_at: dict[int, float] = {}
        self.latencies: list[float] = []
        self.close_code = 0
        self.went_away = False
        self._may_speak = asyncio.Event()
        self._may_speak.set()
        self._change = asyncio.Event()
        self.socket: aiohttp.ClientWebSocketResponse

    async def begin(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connect and open the session."""
        protocol = "lingua.v1.msgpack" if self.is_binary else "lingua.v1.json"
        offered = () if self.is_old else (protocol,)
        self.socket = await http.ws_connect(url, protocols=offered, max_msg_size=0)
        more: dict[str, Any] = {} if self.is_old else {**ADDITIONS}
        if self._kind == "both":
            more["tgt_langs"] = TARGETS
        await self.send({
            "type": "session_init", "client_version": "1", "platform": "web", "src_lang": SOURCE,
            "tgt_lang": TARGETS[0], **more,
        })  # fmt: skip
        answer = self._read(await self.socket.receive(timeout=BOUND_S))
        assert answer["type"] == "session_init_ack", answer
        self.session_id = answer["session_id"]
        self._note(monotonic(), self.number, "opened", self.session_id)

    async def speak(self, count: int) -> None:
        """Send so many more utterances, as fast as the window and the scheduler allow."""
        first = len(self.sent_at)
        for index in range(first, first + count):
            await asyncio.sleep(self._chance.uniform(0, 2 * self._load.pause_s))
            await self._may_speak.wait()
            await self.until(lambda: len(self.open) < self._load.window)
            langs = (self._chance.choice(TARGETS),) if self._kind == "either" else TARGETS[:1]
            if self._kind == "both":
                langs = TARGETS
            self.open[index] = set(langs)
            await self.utter(index, langs)

    async def utter(self, index: int, langs: tuple[str, ...]) -> None:
        """Send one utterance; a list of languages is the session's own, named by its first."""
        self.sent_at[index] = monotonic()
        self._note(self.sent_at[index], self.number, "sent", index, langs)
        await self.send({
            "type": "utterance", "session_id": self.session_id, "utterance_index": index,
            "manual_cut": True, "src_lang": SOURCE, "tgt_lang": langs[0], "audio": AUDIO,
            "audio_format": "pcm16", "sample_rate": 16_000, "trace_id": f"{self.number}-{index}",
        })  # fmt: skip

    async def send(self, message: dict[str, Any]) -> None:
        if self.is_binary:
            await self.socket.send_bytes(msgspec.msgpack.encode(message))
        else:
            await self.socket.send_str(msgspec.json.encode(message).decode())

    async def listen(self) -> None:
        """Take messages until the socket ends."""
        async for message in self.socket:
            self._take(self._read(message))
            self._change.set()
        self.close_code = self.socket.close_code or 0
        self._note(monotonic(), self.number, "closed", self.close_code)
        self._change.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that a message can bring."""
        while not condition():
            self._change.clear()
            await self._change.wait()

    async def end(self) -> None:
        """Close the session as a client should."""
        await self.send({"type": "session_close", "session_id": self.session_id, "reason": "end"})

    def _read(self, message: aiohttp.WSMessage) -> dict[str, Any]:
        decode = msgspec.msgpack.decode if self.is_binary else msgspec.json.decode
        found: dict[str, Any] = decode(message.data)
        return found

    def _take(self, message: dict[str, Any]) -> None:
        kind, now = message["type"], monotonic()
        if kind == "utterance_accepted":
            self._note(now, self.number, "accepted", message["utterance_index"])
        elif kind in {"translation_result", "missing_result"}:
            self._take_outcome(message, now)
        elif kind == "backpressure":
            action = self._may_speak.clear if message["action"] == "PAUSE" else self._may_speak.set
            action()
        elif kind == "error":
            self._take_error(message, now)
        elif kind == "go_away":
            self.went_away = True
            self._note(now, self.number, "go_away")

    def _take_outcome(self, message: dict[str, Any], now: float) -> None:
        index, lang = message["utterance_index"], message["tgt_lang"]
        self._note(
            now, self.number, "outcome", index, lang, message.get("reason", "result"),
            message["seq"], message.get("job_id"), message.get("text_asr"),
            message.get("text_translated"), message.get("detail"),
        )  # fmt: skip
        left = self.open.get(index, set())
        left.discard(lang)
        if not left and self.open.pop(index, None) is not None:
            self.latencies.append(now - self.sent_at[index])

    def _take_error(self, message: dict[str, Any], now: float) -> None:
        index = (message.get("details") or {}).get("utterance_index")
        self._note(now, self.number, "error", message["code"], index)


def be_clients(url: str, place: str, described: str) -> None:
    """Play all sessions; say when all is settled, close when told to."""
    load = msgspec.json.decode(described, type=Load)
    asyncio.run(play_clients(url, load, Records(Path(place) / "clients.history").note))


async def play_clients(url: str, load: Load, note: Callable[..., None]) -> None:
    loop = asyncio.get_running_loop()
    talkers = [Talker(number, load, note) for number in range(load.sessions)]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        for talker in talkers:
            await talker.begin(http, url)
        listening = [asyncio.create_task(talker.listen()) for talker in talkers]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(load.bound_s), asyncio.TaskGroup() as group:
                for talker in talkers:
                    group.create_task(speak_and_hear(talker, load.utterances))
        print("open", sum(len(talker.open) for talker in talkers), flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        for talker in talkers:
            await talker.end()
        await asyncio.wait(listening, timeout=BOUND_S)
    print("closed", flush=True)


async def speak_and_hear(talker: Talker, count: int) -> None:
    await talker.speak(count)
    await talker.until(lambda: not talker.open)


if __name__ == "__main__":
    {"cradle": be_cradle, "clients": be_clients}[sys.argv[1]](*sys.argv[2:])
